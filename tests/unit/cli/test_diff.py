"""The line of `tandem diff` on a service: what happens to its pods. tests/integration has the diffs themselves."""

from dataclasses import replace
from typing import Any

import pytest

from support.services import QUICKSTART, parse
from tandem.accept import Refusal
from tandem.children.desired import Desired
from tandem.cli.changes import revision_of
from tandem.cli.diff import _summary
from tandem.rollout.observed import Autoscaler, Live, Observed, Workload
from tandem.rollout.offline import desired_of
from tandem.settings import Settings


def desired(settings: Settings, **changes: Any) -> Desired:
    found = desired_of(parse(QUICKSTART, **changes), settings)
    assert not isinstance(found, Refusal)
    return found


def live(made: Desired, autoscaler: bool = False) -> Observed:
    """The workload of what was desired, as it runs."""
    assert made.workload
    workload = Workload(Live("Deployment", "quickstart-server"), revision_of(made.workload))
    scaler = Autoscaler(Live("HorizontalPodAutoscaler", "quickstart-server"))
    return Observed(workloads=[workload], autoscalers=[scaler] if autoscaler else [])


CASES: list[tuple[str, dict[str, Any], bool, bool, str]] = [
    # reason, changes, whether there is an autoscaler, whether children differ, the line
    ("as it is", {}, False, False, "nothing changes for its children"),
    ("more pods", {"replicas": 2}, False, True, "pods stay as they are"),
    (
        "no autoscaling any more",
        {},
        True,
        False,
        "pods stay as they are; removes HorizontalPodAutoscaler quickstart-server",
    ),
    ("it goes on", {"autoscaling": {"maxReplicas": 3}}, True, True, "pods stay as they are"),
    ("another length", {"speculation__maxDraftLen": 2}, False, True, "pods roll one by one: revision "),
]


@pytest.mark.parametrize(("reason", "changes", "scaled", "differs", "line"), CASES, ids=[row[0] for row in CASES])
def test_the_line(
    reason: str, changes: dict[str, Any], scaled: bool, differs: bool, line: str, settings: Settings
) -> None:
    found = _summary(desired(settings, **changes), live(desired(settings), scaled), differs)
    assert found.startswith(line) if line.endswith(" ") else found == line, reason


def test_a_new_service(settings: Settings) -> None:
    assert _summary(desired(settings), Observed(), True) == "new"


def test_a_workload_of_another_kind_takes_its_place(settings: Settings) -> None:
    made = desired(settings)
    group = replace(live(made).workloads[0], live=Live("LeaderWorkerSet", "quickstart-server"))
    line = _summary(made, Observed(workloads=[group]), True)
    assert line.endswith("; removes LeaderWorkerSet quickstart-server")
