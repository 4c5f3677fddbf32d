"""The operator's reader against the metrics server itself, over TLS with its own authority and a token."""

from pathlib import Path

import pytest

from tandem.http.listener import Listener
from tandem.metrics_server.authentication import Authenticator
from tandem.metrics_server.authorization import Authorizer
from tandem.metrics_server.board import Board
from tandem.metrics_server.certificates import renewed, utc_now
from tandem.metrics_server.gate import Gate
from tandem.metrics_server.server import application
from tandem.process.reports import SILENT_SECONDS, ReportReader
from tandem.settings import ReportsSettings

from .conftest import FakeReviews, report


@pytest.mark.parametrize(
    ("token", "authority", "problem"),
    [
        ("team-a-token", "its own", ""),
        ("cluster-wide", "its own", "401"),
        ("expired", "its own", "401"),
        ("hpa-token", "its own", "403"),
        ("team-a-token", "another", "certificate verify failed"),
        ("team-a-token", "not there yet", "No such file"),
    ],
)
async def test_reading(token: str, authority: str, problem: str, reviews: FakeReviews, tmp_path: Path) -> None:
    certificate, other = renewed(None, ["localhost"], utc_now()), renewed(None, ["localhost"], utc_now())
    assert certificate is not None
    assert other is not None
    board = Board(120)
    board.post([report(), report("idle", load=None)])
    reviews.allowed = {("alice", "/v1/services")}
    listener = Listener(application(board, Gate(Authenticator(reviews), Authorizer(reviews))), "127.0.0.1", 0)
    await listener.listen(certificate.context(""))
    (tmp_path / "token").write_text(token, encoding="utf-8")
    if authority != "not there yet":
        trusted = certificate if authority == "its own" else other
        (tmp_path / "ca.crt").write_bytes(trusted.authorities)
    now, told = [0.0], []
    reader = ReportReader(
        ReportsSettings(
            url=f"https://localhost:{listener.port}",
            ca_file=str(tmp_path / "ca.crt"),
            token_file=str(tmp_path / "token"),
        ),
        lambda *key: told.append(key),
        lambda: now[0],
    )
    now[0] = SILENT_SECONDS
    await reader.read()
    await listener.close()
    reading = reader.reading("team-a", "llama", "")
    assert reading is not None
    assert problem in reading.problem
    assert bool(reading.problem) is bool(problem)
    if not problem:
        assert told == [("team-a", "idle"), ("team-a", "llama")]
        assert reading.report is not None
        assert reading.report.speculation.acceptance_rate == 0.8123
