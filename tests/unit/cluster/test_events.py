"""Events: what a user must know when it changes, and nothing else."""

from typing import Any

import pytest

from support.services import QUICKSTART, parse
from tandem.api import API_VERSION, KIND
from tandem.cluster.events import MOST_MESSAGE, record_transitions
from tandem.errors import NotLeader, Refused

NOW = "2026-01-01T00:00:00Z"


class FakeApi:
    """Keeps what is created."""

    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []

    def now(self) -> str:
        return NOW

    async def create(self, _: object, manifest: dict[str, Any]) -> None:
        self.created.append(manifest)


class Leader:
    """May always write."""

    def check(self) -> None:
        pass


def condition(kind: str, state: str, reason: str) -> dict[str, Any]:
    return {"type": kind, "status": state, "reason": reason, "message": "m", "lastTransitionTime": NOW}


ROWS: list[tuple[str, list[tuple[str, str, str]], tuple[str, str, str], list[str]]] = [
    # reason, before, after, events as `Type/Reason`
    ("ready", [], ("Ready", "True", "ServersAnswer"), ["Normal/ServersAnswer"]),
    ("not yet", [], ("Ready", "False", "RollingOut"), []),
    ("no more", [("Ready", "True", "ServersAnswer")], ("Ready", "False", "RollingOut"), ["Warning/NotReady"]),
    ("a stage begins", [], ("Reconciling", "True", "FetchRunning"), ["Normal/FetchRunning"]),
    ("it goes on", [("Reconciling", "True", "FetchRunning")], ("Reconciling", "True", "FetchRunning"), []),
    (
        "the next stage",
        [("Reconciling", "True", "FetchRunning")],
        ("Reconciling", "True", "PreflightRunning"),
        ["Normal/PreflightRunning"],
    ),
    ("no stage", [], ("Reconciling", "True", "ServersNotReady"), []),
    ("a pod cannot run", [], ("PodsHealthy", "False", "ClaimPending"), ["Warning/ClaimPending"]),
    ("it still cannot", [("PodsHealthy", "False", "PodFailed")], ("PodsHealthy", "False", "PodFailed"), []),
    ("stalled", [], ("Stalled", "True", "NoImage"), ["Warning/NoImage"]),
    ("speculation harms", [], ("SpeculationBeneficial", "False", "Slower"), ["Warning/Slower"]),
    ("still", [("SpeculationBeneficial", "False", "Slower")], ("SpeculationBeneficial", "False", "Slower"), []),
    ("it helps", [], ("SpeculationBeneficial", "True", "Faster"), []),
    (
        "the engine switched it off",
        [("SpeculationActive", "True", "DraftTokensSeen")],
        ("SpeculationActive", "False", "SwitchedOff"),
        ["Warning/SwitchedOff"],
    ),
    (
        "a schedule, or the adaptive length, drafts nothing",
        [("SpeculationActive", "True", "DraftTokensSeen")],
        ("SpeculationActive", "False", "AboveSchedule"),
        [],
    ),
    ("a pause", [], ("SpeculationActive", "Unknown", "NoTraffic"), []),
    (
        "an objective out of reach",
        [],
        ("ObjectivesReachable", "False", "BelowMinimumLatency"),
        ["Warning/BelowMinimumLatency"],
    ),
    ("the autoscaler tells its own", [], ("ScalingActive", "False", "FailedGetObjectMetric"), []),
]


async def test_an_event_as_it_is_written() -> None:
    service, api = parse(QUICKSTART), FakeApi()
    status = {"conditions": [condition("Ready", "False", "RollingOut"), condition("Stalled", "True", "NoImage")]}
    await record_transitions(api, Leader(), service, status)  # type: ignore[arg-type]
    (event,) = api.created
    assert event["metadata"].pop("name").startswith("quickstart.")
    assert event.pop("firstTimestamp") == event.pop("lastTimestamp")
    about = {"name": "quickstart", "namespace": service.namespace, "uid": service.uid}
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": service.namespace},
        "type": "Warning",
        "reason": "NoImage",
        "message": "m",
        "involvedObject": {"apiVersion": API_VERSION, "kind": KIND, **about},
        "source": {"component": "tandem"},
        "count": 1,
    }


@pytest.mark.parametrize(("reason", "before", "after", "wanted"), ROWS, ids=[row[0] for row in ROWS])
async def test_events(
    reason: str, before: list[tuple[str, str, str]], after: tuple[str, str, str], wanted: list[str]
) -> None:
    service = parse(QUICKSTART)
    known = type(service.status).model_validate({"conditions": [condition(*one) for one in before]})
    service = service.model_copy(update={"status": known})
    api = FakeApi()
    await record_transitions(api, Leader(), service, {"conditions": [condition(*after)]})  # type: ignore[arg-type]
    assert [f"{event['type']}/{event['reason']}" for event in api.created] == wanted, reason


KILLED = ("PodsHealthy", "False", "ContainerFails")
UP, DOWN = ("Ready", "True", "ServersAnswer"), ("Ready", "False", "ReplicasNotReady")
LOOP: list[tuple[str, list[tuple[str, str, str]], list[str]]] = [
    ("it serves", [UP], ["Normal/ServersAnswer"]),
    ("its container is killed", [DOWN, KILLED], ["Warning/ContainerFails"]),
    ("it starts again", [DOWN, KILLED], []),
    ("it answers", [UP, KILLED], []),
    ("and is killed again", [DOWN, KILLED], []),
    ("it answers once more", [UP, KILLED], []),
    ("the specification is refused meanwhile", [("Ready", "False", "UnknownProfile"), KILLED], ["Warning/NotReady"]),
    ("and taken back", [UP, KILLED], []),
    ("it has run for long enough", [UP], ["Normal/ServersAnswer"]),
    ("and goes on", [UP], []),
]


async def test_a_failure_that_comes_again_and_again_has_one_event() -> None:
    service = parse(QUICKSTART)
    for reason, after, wanted in LOOP:
        api, status = FakeApi(), {"conditions": [condition(*one) for one in after]}
        await record_transitions(api, Leader(), service, status)  # type: ignore[arg-type]
        assert [f"{event['type']}/{event['reason']}" for event in api.created] == wanted, reason
        service = service.model_copy(update={"status": type(service.status).model_validate(status)})


MANY = [
    condition("SpecAccepted", "True", "Valid"),
    condition("Reconciling", "True", "FetchRunning"),
    condition("Ready", "False", "RollingOut"),
    condition("Stalled", "True", "NoImage"),
]


async def test_each_of_several_changes_has_its_event() -> None:
    """Those between them that have none, or whose Event is refused, keep none back."""

    class Refuses(FakeApi):
        async def create(self, _: object, manifest: dict[str, Any]) -> None:
            await super().create(_, manifest)
            raise Refused(422, "an admission webhook denied the request")

    for api in (FakeApi(), Refuses()):
        await record_transitions(api, Leader(), parse(QUICKSTART), {"conditions": MANY})  # type: ignore[arg-type]
        assert [event["reason"] for event in api.created] == ["FetchRunning", "NoImage"]
        assert len({event["metadata"]["name"] for event in api.created}) == 2


async def test_who_does_not_lead_writes_none() -> None:
    class Follower:
        def check(self) -> None:
            raise NotLeader("another")

    api = FakeApi()
    await record_transitions(api, Follower(), parse(QUICKSTART), {"conditions": MANY})  # type: ignore[arg-type]
    assert api.created == []


async def test_a_message_is_cut_where_the_api_server_would_refuse_it() -> None:
    api, long = FakeApi(), {**condition("Stalled", "True", "NoImage"), "message": "m" * 2000}
    await record_transitions(api, Leader(), parse(QUICKSTART), {"conditions": [long]})  # type: ignore[arg-type]
    assert api.created[0]["message"] == "m" * MOST_MESSAGE
