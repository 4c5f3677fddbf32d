"""How tests read the API server's audit log, which is written after the answers."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from integration.conftest import AuditLog

pytestmark = pytest.mark.nightly


def line(name: str, seconds: float) -> str:
    """An entry of a request that was received so many seconds from now."""
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    entry = {"objectRef": {"name": name}, "requestReceivedTimestamp": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
    return json.dumps(entry) + "\n"


@pytest.mark.parametrize(("everything", "expected"), [(False, ["after"]), (True, ["long ago", "late", "after"])])
def test_requests_since_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, everything: bool, expected: list[str]
) -> None:
    monkeypatch.setattr(AuditLog, "LAG_SECONDS", 0)
    path = tmp_path / "audit.log"
    path.write_text(line("long ago", -9))
    log = AuditLog(path, everything=everything)
    with path.open("a") as file:
        file.write(line("late", -0.5))  # of a request whose answer came before the moment, and its entry after it
        file.write(line("after", 0.5))
        file.write('{"objectRef": {"na')  # on its way
    assert [entry["objectRef"]["name"] for entry in log.entries()] == expected
