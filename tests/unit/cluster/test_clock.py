"""The present is the API server's: its own clock and those of nodes may be minutes off."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import pytest

from tandem.cluster import clock
from tandem.cluster.pods import by_the_api_server
from tandem.times import seconds, stamp


@pytest.mark.parametrize("ahead", [0, 120, -120], ids=["right", "ahead", "behind"])
def test_the_present_is_that_of_the_last_answer(
    ahead: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    at, passed = datetime(2026, 1, 1, tzinfo=UTC), 1000.0

    class Host(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return at + timedelta(seconds=ahead)

    monkeypatch.setattr(clock, "datetime", Host)
    monkeypatch.setattr("tandem.cluster.clock.time", SimpleNamespace(monotonic=lambda: passed))
    known = clock.ServerClock()
    assert known.now() == stamp(Host.now()), "nothing else is known before an answer"
    known.heard(format_datetime(at, usegmt=True))
    known.heard(None)
    known.heard("no date")
    assert known.now() == "2026-01-01T00:00:00Z"
    passed += 60
    assert known.now() == "2026-01-01T00:01:00Z"
    assert ("of the API server's" in caplog.text) is bool(ahead)


def told(at: int, *stamps: int) -> dict[str, Any]:
    """A pod whose status the API server took at that second; its kubelet's clock showed these when a container began,
    or ended, and when it was Ready."""
    began, ended, ready = (stamp(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=each)) for each in stamps)
    taken = stamp(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=at))
    state = {"state": {"running": {"startedAt": began}}, "lastState": {"terminated": {"finishedAt": ended}}}
    others = [{"manager": "kube-scheduler", "time": "2027-01-01T00:00:00Z"}]
    return {
        "metadata": {"managedFields": [*others, {"manager": "kubelet", "subresource": "status", "time": taken}]},
        "status": {
            "conditions": [
                {"type": "PodScheduled", "lastTransitionTime": "2027-01-01T00:00:00Z"},
                {"type": "Ready", "lastTransitionTime": ready},
            ],
            "containerStatuses": [{"name": "triton", **state}],
        },
    }


SKEWS = [
    ("the same clock", told(50, 20, 10, 50), 50),
    ("a node 120 s ahead", told(50, 140, 130, 170), 170),
    ("a node 120 s behind", told(170, 20, 10, 50), 50),
    ("it began last", told(50, 150, 130, 20), 150),
]


@pytest.mark.parametrize(("what", "pod", "last"), SKEWS, ids=[row[0] for row in SKEWS])
def test_a_nodes_times_become_the_api_servers(what: str, pod: dict[str, Any], last: int) -> None:
    taken = pod["metadata"]["managedFields"][1]["time"]
    shown = stamp(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=last))
    assert by_the_api_server(pod, shown) == taken, what
    earlier = stamp(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=last - 7))
    assert seconds(by_the_api_server(pod, earlier), taken) == 7


@pytest.mark.parametrize("lacks", ["at", "managedFields", "status"])
def test_a_time_stays_where_nothing_tells_the_difference(lacks: str) -> None:
    pod = told(50, 140, 130, 170)
    if lacks == "managedFields":
        pod["metadata"] = {}
    elif lacks == "status":
        pod.pop("status")
    at = "" if lacks == "at" else "2026-01-01T00:02:50Z"
    assert by_the_api_server(pod, at) == at
