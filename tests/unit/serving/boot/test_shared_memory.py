"""What a killed server leaves in shared memory, and what is another's."""

import mmap
from pathlib import Path

import pytest

from tandem_serving.boot.shared_memory import OPTION, PREFIX, clear

LEFT = f"{PREFIX}0a1b"
OTHERS = ("nccl-0a1b", f"x{PREFIX}0a1b", "tandem-0a1b")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (LEFT, f"{PREFIX}2c3d", *OTHERS):
        (tmp_path / name).write_bytes(b"\0" * mmap.PAGESIZE)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "removed"),
    [
        (["tritonserver", "--backend-config=python,thread-pool-size=160"], {LEFT, f"{PREFIX}2c3d"}),
        (["tritonserver", f"--backend-config=python,{OPTION}tandem-"], {"tandem-0a1b"}),
        (["tritonserver", f"--backend-config=python,{OPTION}none-"], set()),
    ],
    ids=["of the names that Triton gives", "of those that the command gives", "there are none"],
)
def test_a_server_s_regions_are_removed_and_nothing_else(
    folder: Path, command: list[str], removed: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name for path in folder.iterdir()}
    assert clear(command, folder) == len(removed)
    assert before - {path.name for path in folder.iterdir()} == removed
    assert (f"removed {len(removed)} regions" in capsys.readouterr().out) is bool(removed)


def test_a_region_that_a_process_maps_stays(folder: Path) -> None:
    with (folder / LEFT).open("r+b") as file, mmap.mmap(file.fileno(), 0):
        assert clear((), folder) == 1
        assert (folder / LEFT).exists()
    assert clear((), folder) == 1


def test_processes_that_may_not_be_looked_at_are_passed_over(folder: Path, tmp_path: Path) -> None:
    for name in ("1", "2"):
        (tmp_path / "proc" / name).mkdir(parents=True)
    (tmp_path / "proc/1/maps").mkdir()  # which cannot be read
    (tmp_path / "proc/2/maps").write_text(f"7f00-7f01 rw-s 00000000 00:1a 12345    {folder / LEFT}\n7f02-7f03 r\n")
    assert clear((), folder, tmp_path / "proc") == 1
    assert (folder / LEFT).exists()
