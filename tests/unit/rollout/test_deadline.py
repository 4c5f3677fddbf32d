"""Rollouts: what the workload is told, when one is given up, and what serves then."""

from typing import Any

import pytest

from support.groups import GROUPS, revision
from support.services import QUICKSTART, parse
from support.world import GOOD, World, applied, observed_of
from tandem import children, names
from tandem.api.types import ServiceStatus, SpeculativeInferenceService
from tandem.conditions.ready import rolls_out, status
from tandem.conditions.situation import Situation
from tandem.rollout.deadline import overdue, previous
from tandem.rollout.decide import Decision
from tandem.settings import Settings

APPLIED = "2026-01-01T00:00:00Z"
REPLACE: dict[str, Any] = {"strategy": "Replace", "progressDeadlineSeconds": 600}


def test_what_a_deployment_is_told() -> None:
    service = parse(QUICKSTART)
    spec = children.deployment(service, revision(service))["spec"]
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    assert spec["progressDeadlineSeconds"] == 3900
    service = parse(QUICKSTART, rollout=REPLACE)
    spec = children.deployment(service, revision(service))["spec"]
    assert (spec["strategy"], spec["progressDeadlineSeconds"]) == ({"type": "Recreate"}, 600)


@pytest.mark.parametrize(
    ("strategy", "replicas", "wanted", "reason"),
    [
        ("Surge", 2, (1, 0), "a new group answers before an old one stops"),
        ("Replace", 2, (0, 2), "all stop at once"),
        ("Replace", 0, (0, 1), "LeaderWorkerSet refuses 0 and 0"),
    ],
)
def test_what_groups_are_told(strategy: str, replicas: int, wanted: tuple[int, int], reason: str) -> None:
    service = parse(GROUPS, rollout={"strategy": strategy}, replicas=replicas)
    workload = children.workload(service, revision(service))
    update = workload["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]
    assert (update["maxSurge"], update["maxUnavailable"]) == wanted, reason


def at(minute: int) -> str:
    return f"2026-01-01T00:{minute:02}:00Z"


def server(minute: int | None, digest: str = "new") -> dict[str, Any]:
    """A server that answers since that minute; None: it does not."""
    state = "False" if minute is None else "True"
    ready = {"type": "Ready", "status": state, "lastTransitionTime": at(59 if minute is None else minute)}
    labels = {names.LABEL_COMPONENT: names.SERVER, names.LABEL_REVISION: digest}
    return {"metadata": {"name": "p", "labels": labels}, "status": {"conditions": [ready]}}


OVERDUE: list[tuple[str, list[Any], dict[str, Any], int, bool]] = [
    ("it goes on", [server(None)], {}, 9, False),
    ("nothing happened for ten minutes", [server(None)], {}, 10, True),
    ("not even a pod", [], {}, 10, True),
    ("one of two answered since", [server(5), server(None)], {}, 10, False),
    ("and then no other", [server(5), server(None)], {}, 15, True),
    ("that servers come and go is no progress", [server(None), server(None)], {}, 30, True),
    ("an old one that answers is none of these", [server(9, "old"), server(None)], {}, 10, True),
    ("all answer", [server(1), server(2)], {}, 30, False),
    ("it was complete: servers that fail are started again", [server(None)], {"currentRevision": "new"}, 30, False),
    ("another one was complete", [server(None)], {"currentRevision": "old"}, 30, True),
]


@pytest.mark.parametrize(("reason", "pods", "shown", "minute", "wanted"), OVERDUE, ids=[row[0] for row in OVERDUE])
@pytest.mark.parametrize("base", [QUICKSTART, GROUPS], ids=["Deployment", "LeaderWorkerSet"])
def test_when_a_rollout_is_overdue(
    base: str, reason: str, pods: list[Any], shown: dict[str, Any], minute: int, wanted: bool
) -> None:
    service = parse(base, rollout={"progressDeadlineSeconds": 600}, replicas=2)
    service = service.model_copy(update={"status": ServiceStatus.model_validate(shown)})
    workload = applied(children.workload(service, revision(service, "new")))
    others = {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status", "time": at(59)}
    workload["metadata"]["managedFields"].insert(0, others)
    observed = observed_of(workload, *pods)
    assert overdue(service, "new", observed, at(minute)) is wanted, reason
    assert not overdue(service, "newer", observed, at(minute)), "the workload is still of another revision"
    workload["metadata"]["managedFields"] = [others]
    unknown = observed_of(workload, server(None))
    assert not overdue(service, "new", unknown, at(minute)), "it has no time"


class Told:
    """A service in a world, and the status that it was told last."""

    def __init__(self, settings: Settings) -> None:
        self.world = World(settings)
        self.status: dict[str, Any] = {}

    def ask(self, **changes: Any) -> SpeculativeInferenceService:
        self.service = parse(QUICKSTART, **changes)
        return self.read()

    def read(self) -> SpeculativeInferenceService:
        return self.service.model_copy(update={"status": ServiceStatus.model_validate(self.status)})

    def step(self) -> list[str]:
        self.decision: Decision
        self.decision, done = self.world.step(self.read())
        return done

    def tell(self, now: str) -> dict[str, str]:
        """Write the status; its conditions as Status/Reason."""
        self.status = status(Situation(self.read(), self.decision, self.world.observed(), now))
        return {c["type"]: f"{c['status']}/{c['reason']}" for c in self.status["conditions"]}

    def roll_out(self) -> None:
        """The models of what is asked for are checked, and the workload is changed."""
        self.step()
        self.world.pods = [pod for pod in self.world.pods if pod["metadata"]["name"].startswith("server-")]
        self.world.finish_preflight(GOOD)
        self.step()
        self.changed(APPLIED)

    def changed(self, when: str) -> None:
        """The workload was changed at that time."""
        (deployment,) = [each for (kind, _), each in self.world.objects.items() if kind == "Deployment"]
        deployment["metadata"]["managedFields"][0]["time"] = when

    @property
    def runs(self) -> str:
        """Revision of the workload."""
        (deployment,) = [each for (kind, _), each in self.world.objects.items() if kind == "Deployment"]
        return str(deployment["spec"]["template"]["metadata"]["labels"][names.LABEL_REVISION])


@pytest.fixture
def told(settings: Settings) -> Told:
    """A service that serves its first revision and was edited to another, whose server does not answer."""
    made = Told(settings)
    made.ask(rollout={**REPLACE, "revisionHistoryLimit": 0})
    made.roll_out()
    made.world.run_servers(1)
    made.step()
    assert made.tell(APPLIED)["Ready"] == "True/ServersAnswer"
    made.ask(rollout={**REPLACE, "revisionHistoryLimit": 0}, speculation__maxDraftLen=6)
    made.roll_out()
    made.world.run_servers(1, ready=False)
    return made


def test_replace_goes_back_by_itself(told: Told) -> None:
    first, second = told.status["currentRevision"], told.runs
    assert told.step() == [], "also without a history to keep, what may come back is kept"
    assert told.tell(at(9))["Reconciling"] == "True/RollingOut"
    assert rolls_out(told.status), "time alone decides"

    told.step()
    found = told.tell(at(10))
    assert (found["Stalled"], found["Ready"]) == ("True/RolledBack", "False/RolledBack")
    assert told.status["failedRevision"] == second
    assert not rolls_out(told.status)
    assert told.step() == ["~Deployment"], "only what the status tells is done"
    assert told.runs == first
    told.world.run_servers(1)
    assert told.step() == []
    found = told.tell(at(30))
    assert (found["Stalled"], found["Available"]) == ("True/RolledBack", "True/ServersAnswer")
    assert (told.status["currentRevision"], told.status["failedRevision"]) == (first, second)
    assert told.status["updateRevision"] == second
    assert told.step() == [], "it is not tried again"


def test_an_operator_that_dies_at_the_deadline_comes_to_the_same_end(told: Told) -> None:
    told.step()
    before = dict(told.status)
    told.tell(at(10))
    told.status = before  # not written
    assert told.step() == [], "the new revision is left alone until the status tells that it failed"
    assert told.tell(at(11))["Stalled"] == "True/RolledBack"
    assert told.step() == ["~Deployment"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rollout": REPLACE, "speculation__maxDraftLen": 7}, "another revision is tried"),
        ({"rollout": {}, "speculation__maxDraftLen": 6}, "with Surge it may wait for GPUs beside the old one"),
    ],
    ids=["another revision", "another strategy"],
)
def test_what_ends_going_back(told: Told, change: dict[str, Any], reason: str) -> None:
    told.step()
    told.tell(at(10))
    told.step()
    first = told.runs
    told.world.run_servers(1)
    told.ask(**change)
    told.step()
    if told.world.jobs():
        told.world.finish_preflight(GOOD)
        told.step()
    assert told.runs != first, reason
    told.changed(at(11))
    told.tell(at(12))
    assert "failedRevision" not in told.status


def test_the_first_rollout_has_nothing_to_go_back_to(settings: Settings) -> None:
    told = Told(settings)
    told.ask(rollout=REPLACE)
    told.roll_out()
    told.world.run_servers(1, ready=False)
    told.step()
    assert told.tell(at(10))["Stalled"] == "True/ProgressDeadlineExceeded"
    assert "currentRevision" not in told.status
    assert told.step() == []


def test_surge_stalls_and_waits(settings: Settings) -> None:
    told = Told(settings)
    told.ask(rollout={"progressDeadlineSeconds": 600})
    told.roll_out()
    told.world.run_servers(1)
    told.step()
    told.tell(APPLIED)
    told.ask(rollout={"progressDeadlineSeconds": 600}, speculation__maxDraftLen=6)
    told.roll_out()
    told.world.pods.append(server(None, told.runs))
    told.step()
    found = told.tell(at(10))
    assert (found["Stalled"], found["Available"]) == ("True/ProgressDeadlineExceeded", "True/ServersAnswer")
    assert told.step() == []
    told.world.run_servers(1)
    told.step()
    found = told.tell(at(11))
    assert (found["Ready"], "Stalled" in found) == ("True/ServersAnswer", False), "a GPU became free at last"


BACK: list[tuple[str, dict[str, str], str | None]] = [
    ("it is being rolled out", {"currentRevision": "old"}, "old"),
    ("it serves", {"currentRevision": "new", "fallbackRevision": "older"}, "older"),
    ("it is the first", {}, None),
    ("it serves, and kept the minimum since", {"currentRevision": "new"}, None),
    ("it would go back to itself", {"currentRevision": "new", "fallbackRevision": "new"}, None),
    ("what was before cannot be rendered", {"currentRevision": "newer operator's"}, None),
]


@pytest.mark.parametrize(("reason", "shown", "wanted"), BACK, ids=[row[0] for row in BACK])
def test_what_there_is_to_go_back_to(reason: str, shown: dict[str, str], wanted: str | None) -> None:
    service = parse(QUICKSTART).model_copy(update={"status": ServiceStatus.model_validate(shown)})
    assert previous(service, "new", {"new": 0, "old": 0, "older": 0}) == wanted, reason
