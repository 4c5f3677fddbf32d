"""The line of `tandem diff` on a service: what happens to its pods. tests/integration has the diffs themselves."""

from dataclasses import replace
from typing import Any

import pytest

from support.services import QUICKSTART, parse
from support.world import applied
from tandem.accept import Refusal
from tandem.children.desired import Desired
from tandem.cli.changes import revision_of
from tandem.cli.diff import _foreign, _summary
from tandem.rollout.observed import Autoscaler, Live, Observed, Workload
from tandem.rollout.offline import desired_of
from tandem.settings import Settings


def desired(settings: Settings, **changes: Any) -> Desired:
    found = desired_of(parse(QUICKSTART, **changes), settings)
    assert not isinstance(found, Refusal)
    return found


def live(made: Desired, autoscaler: bool = False, written: Any = None) -> Observed:
    """The workload of what was desired, as it runs, and what somebody has `written` there."""
    assert made.workload
    manifest = applied(made.workload)
    manifest["metadata"]["managedFields"].append({"manager": "me", "operation": "Update", "fieldsV1": written or {}})
    workload = Workload(Live("Deployment", "quickstart-server", manifest=manifest), revision_of(made.workload))
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


def test_what_others_wrote_goes(settings: Settings) -> None:
    made = desired(settings)
    assert made.workload
    paused: dict[str, Any] = {"f:spec": {"f:paused": {}}}
    node: dict[str, Any] = {"f:spec": {"f:template": {"f:spec": {"f:nodeName": {}}}}}
    for written, path, line in (
        (paused, "spec.paused", "pods stay as they are"),
        (node, "spec.template.spec.nodeName", "pods roll one by one: what others wrote into them goes"),
    ):
        observed = live(made, written=written)
        text = _foreign([made.workload], observed)
        assert text == f"# Deployment quickstart-server: me wrote {path}: the operator removes it\n"
        assert _summary(made, observed, bool(text)) == line
    assert _foreign([made.workload], live(made)) == ""


def test_a_new_service(settings: Settings) -> None:
    assert _summary(desired(settings), Observed(), True) == "new"


def test_a_workload_of_another_kind_takes_its_place(settings: Settings) -> None:
    made = desired(settings)
    group = replace(live(made).workloads[0], live=Live("LeaderWorkerSet", "quickstart-server"))
    line = _summary(made, Observed(workloads=[group]), True)
    assert line.endswith("; removes LeaderWorkerSet quickstart-server")
