"""Removing the control groups of a node that died."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from cluster import cgroups

pytestmark = pytest.mark.nightly


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node's group with a pod's, in the one hierarchy."""
    monkeypatch.setattr(cgroups, "hierarchies", lambda mounts: [(tmp_path, False)])
    (tmp_path / "n0" / "pod").mkdir(parents=True)
    return tmp_path / "n0"


def refuse(monkeypatch: pytest.MonkeyPatch, *codes: int) -> None:
    """The kernel's answers to the next removals."""
    answers, removes = list(codes), Path.rmdir

    def rmdir(folder: Path) -> None:
        if answers:
            raise OSError(answers.pop(), "no")
        removes(folder)

    monkeypatch.setattr(Path, "rmdir", rmdir)


def test_processes_that_were_killed_may_still_be_ending(group: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, errno.EBUSY, errno.EBUSY)
    cgroups.remove("/n0")
    assert not group.exists()
    cgroups.remove("/n0")


@pytest.mark.parametrize(("code", "seconds"), [(errno.EBUSY, 0.0), (errno.EPERM, 30.0)])
def test_what_stays_is_an_error(group: Path, monkeypatch: pytest.MonkeyPatch, code: int, seconds: float) -> None:
    monkeypatch.setattr(cgroups, "ENDING_SECONDS", seconds - 1)
    refuse(monkeypatch, *[code] * 9)
    with pytest.raises(OSError, match="no"):
        cgroups.remove("/n0")
