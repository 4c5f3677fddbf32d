"""When the operator is Ready, and when it should be restarted."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from tandem.process.health import API_SILENT_SECONDS, Health

RESYNC = 60.0
STUCK = 3 * RESYNC + 61
"""Seconds without a comparison after which the operator is restarted."""


def health(**state: Any) -> Health:
    """Of an operator in which all is well, but for `state`: how long ago things happened, in seconds."""
    now = time.monotonic()
    ago = {"answered": 1.0, "compared": 5.0, "moved": 5.0, **state}
    at = {name: 0.0 if ago[name] is None else now - ago[name] for name in ("answered", "compared", "moved")}
    resync: Any = SimpleNamespace(
        problem=ago.get("problem", ""),
        forbidden=ago.get("forbidden"),
        compared_at=at["compared"],
        moved_at=at["moved"],
    )
    acquired = asyncio.Event()
    if ago.get("leader", True):
        acquired.set()
    api: Any = SimpleNamespace(answered_at=at["answered"])
    leadership: Any = SimpleNamespace(acquired=acquired)
    source: Any = SimpleNamespace(watching=ago.get("watching", True))
    claim: Any = SimpleNamespace(problem=ago.get("claimed", ""))
    return Health(api, leadership, source, resync, RESYNC, now - ago.get("started", 3600.0), claim)


SILENT = API_SILENT_SECONDS + 5.0
STATES: list[tuple[str, dict[str, Any], str, str]] = [
    ("all is well", {}, "", ""),
    (
        "a restart does not bring the API server back",
        {"answered": SILENT, "moved": STUCK},
        "has not answered for",
        "",
    ),
    ("it never answered since the start", {"answered": None, "started": SILENT}, "has not answered for", ""),
    ("it has not answered yet, after a second", {"answered": None, "started": 1.0, "moved": 1.0}, "", ""),
    ("lists fail: nothing that a restart mends", {"problem": "pods: 500", "moved": STUCK}, "pods: 500", ""),
    ("another operator serves here: a restart changes nothing", {"claimed": "is of another"}, "is of another", ""),
    ("no comparison yet", {"compared": None}, "starting", ""),
    ("a watch is being started", {"watching": False}, "the watches are being started", ""),
    ("comparisons stand still, though the API server answers", {"moved": STUCK}, "", "no comparison of the watches"),
    ("a slow comparison is none that stands still", {"moved": STUCK - 5}, "", ""),
    ("the first one never began", {"moved": None, "started": STUCK}, "", "no comparison of the watches"),
]


@pytest.mark.parametrize(("reason", "state", "not_ready", "broken"), STATES, ids=[row[0] for row in STATES])
def test_health(reason: str, state: dict[str, Any], not_ready: str, broken: str) -> None:
    seen = health(**state)
    assert bool(seen.not_ready()) is bool(not_ready), reason
    assert not_ready in seen.not_ready(), reason
    assert bool(seen.broken()) is bool(broken), reason
    assert broken in seen.broken(), reason


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ({}, "ok: leader"),
        ({"leader": False}, "ok: standby"),
        ({"forbidden": "may not list pods"}, "ok: leader, but may not list pods"),
    ],
)
def test_ready_names_the_role_and_the_rights_that_are_missing(state: dict[str, Any], shown: str) -> None:
    assert health(**state).ready() == shown
