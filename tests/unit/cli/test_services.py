"""What programs read of services (`-o json`, exit codes), and the list of services with their states."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from support.live_services import HPA, PODS, answer, kubectl, raw_list, service
from support.tables import only_row
from tandem.cli import app, services, status
from tandem.cli.status import Seen

__all__ = ["kubectl"]  # a fixture

SUMMARY = {
    **{"namespace": "team-a", "name": "llama", "mode": "BLS", "decodingType": "DraftTarget", "profile": "reference"},
    **{"ready": True, "reconciling": False, "stalled": False, "deleting": False},
    **{"reason": "ServersAnswer", "message": "2 of 2 servers answer"},
    **{"url": "http://llama-triton.team-a.svc:8000", "openAIURL": None},
    **{"currentRevision": "0123456789", "updateRevision": "0123456789", "replicas": 2, "readyReplicas": 2},
}


def test_programs_get_what_people_read() -> None:
    """The names are a promise: docs/reference/cli.md."""
    found = status.as_object(Seen(service(), yaml.safe_load(PODS), yaml.safe_load(HPA)))
    pods, autoscalers = found.pop("pods"), found.pop("autoscalers")
    conditions, speculation, scaling = (found.pop(name) for name in ("conditions", "speculation", "autoscaling"))
    assert found == SUMMARY
    assert pods[0] == {
        **{"name": "llama-server-a", "revision": "0123456789", "node": None, "ip": None, "restarts": 0},
        **{"ready": False, "state": "pod llama-server-a cannot be scheduled: 0/3 nodes are available"},
    }
    assert (pods[1]["ready"], pods[1]["state"]) == (True, "answers")
    assert autoscalers == [
        {
            **{"kind": "HorizontalPodAutoscaler", "name": "llama-server", "replicas": 2, "desiredReplicas": 3},
            **{"minReplicas": 1, "maxReplicas": 8, "averageValue": 1.31},
        }
    ]
    assert [condition["reason"] for condition in conditions] == ["ServersAnswer", "Slower"]
    assert (speculation["acceptanceRate"], scaling["desiredReplicas"]) == (0.753, 3)
    unread = status.as_object(Seen(service(speculation=None), "forbidden", "forbidden"))
    assert (unread["pods"], unread["autoscalers"], unread["speculation"]) == (None, None, None)


def condition(kind: str, value: str, reason: str) -> dict[str, str]:
    return {"type": kind, "status": value, "reason": reason, "message": "why", "lastTransitionTime": TIME}


TIME = "2026-01-01T09:00:00Z"
READY, NOT_READY = condition("Ready", "True", "ServersAnswer"), condition("Ready", "False", "RollingOut")
STALLED, GOING_ON = condition("Stalled", "True", "PodNotMade"), condition("Reconciling", "True", "RollingOut")
STATES: list[tuple[str, list[dict[str, str]], int, tuple[bool, bool, bool, str]]] = [
    # reason, conditions, generation observed, (ready, settled, failed, reason)
    ("all is well", [READY], 4, (True, True, False, "ServersAnswer")),
    ("its status is of the spec before", [READY], 3, (False, False, False, "NotObserved")),
    ("no operator has looked at it", [], -1, (False, False, False, "NotObserved")),
    ("the first pods start", [NOT_READY, GOING_ON], 4, (False, False, False, "RollingOut")),
    ("the old revision serves on", [READY, GOING_ON], 4, (True, False, False, "RollingOut")),
    ("a person must act", [NOT_READY, STALLED], 4, (False, False, True, "PodNotMade")),
    ("and the old revision serves on", [READY, STALLED], 4, (True, False, True, "PodNotMade")),
]


@pytest.mark.parametrize(("reason", "conditions", "observed", "wanted"), STATES, ids=[row[0] for row in STATES])
def test_states(
    reason: str, conditions: list[dict[str, str]], observed: int, wanted: tuple[bool, bool, bool, str]
) -> None:
    assert services.state(service(conditions=conditions, observedGeneration=observed))[:4] == wanted, reason


CODES = [(READY, 0), (NOT_READY, 3)]


@pytest.mark.parametrize("form", ["text", "wide", "json", "yaml"])
@pytest.mark.parametrize(("now", "code"), CODES, ids=["Ready", "not Ready"])
@pytest.mark.parametrize("arguments", [["llama"], [], ["-A"]], ids=["one", "of a namespace", "all"])
def test_the_exit_code_of_status(
    kubectl: Path, arguments: list[str], now: dict[str, str], code: int, form: str
) -> None:
    found = raw_list(service(conditions=[now]))
    answer(kubectl, "speculativeinferenceservices.serving.tandem.dev llama", found["items"][0])
    answer(kubectl, "speculativeinferenceservices.serving.tandem.dev --", found)
    done = CliRunner().invoke(app, ["status", *arguments, "-o", form])
    assert done.exit_code == code, done.output
    if form in ("json", "yaml"):
        read = yaml.safe_load(done.stdout)
        assert (read if arguments == ["llama"] else read["services"][0])["ready"] is (code == 0)
    else:
        assert "llama" in done.stdout
    wrote = (kubectl / "calls").read_text(encoding="utf-8")
    assert ("--all-namespaces" in wrote) is ("-A" in arguments)


def test_the_list_shows_each_services_state(kubectl: Path) -> None:
    other = service(conditions=[NOT_READY, STALLED])
    other = other.model_copy(update={"metadata": {**other.metadata, "namespace": "team-b"}})
    answer(kubectl, "get speculativeinferenceservices", raw_list(other, service()))
    lines = CliRunner().invoke(app, ["status", "-A"]).stdout.splitlines()
    rows = [" ".join(line.split()) for line in lines if line.strip(" ─")]
    assert rows == [
        "NAMESPACE NAME MODE TYPE READY REPLICAS STATE",
        "team-a llama BLS DraftTarget True 2/2 ServersAnswer",
        "team-b llama BLS DraftTarget False 2/2 PodNotMade: why",
    ]


@pytest.mark.parametrize(
    ("width", "columns"), [(80, "NAMESPACE NAME MODE TYPE READY REPLICAS STATE"), (40, "NAMESPACE NAME READY STATE")]
)
def test_a_narrow_terminal_shows_every_state(width: int, columns: str) -> None:
    name = "a-name-that-is-as-long-as-one-may-be-oh"
    failed = service(conditions=[NOT_READY, STALLED])
    long = failed.model_copy(update={"metadata": {**failed.metadata, "name": name}})
    row = only_row(services.table([long], everywhere=True, wide=False, columns=width), width)
    assert list(row) == columns.split()
    assert (row["NAME"], row["STATE"]) == (name, "PodNotMade:why"), "broken over lines, not cut"


def test_a_name_and_all_services_contradict_each_other() -> None:
    assert CliRunner().invoke(app, ["status", "llama", "-A"]).exit_code == 2


def test_top_for_programs(kubectl: Path) -> None:
    answer(kubectl, "get speculativeinferenceservices", raw_list(service()))
    answer(kubectl, "tokens_per_second", {"items": [{"describedObject": {"name": "llama"}, "value": "1234500m"}]})
    done = CliRunner().invoke(app, ["top", "-o", "json"])
    (row,) = json.loads(done.stdout)["services"]
    assert {name: row[name] for name in SUMMARY} == SUMMARY
    assert (row["tokensPerSecond"], row["running"], row["acceptanceRate"]) == (1234.5, None, 0.753)
    assert (row["desiredReplicas"], row["signal"]) == (3, "Demand")
