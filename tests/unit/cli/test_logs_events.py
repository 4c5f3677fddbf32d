"""`tandem logs` and `tandem events`: whose they are, and in which order; a fake kubectl answers."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from support.tables import only_row
from tandem import names
from tandem.cli import app, events, logs
from tandem.cli.logs import Wanted

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
RUNNING: dict[str, Any] = {"state": {"running": {}}}
STARTING = {"state": {"waiting": {"reason": "PodInitializing"}}}
FAILED = {"state": {"terminated": {"exitCode": 1, "message": "out of memory"}}}
CRASHES = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": FAILED["state"]}
ENDED = {"state": {"terminated": {"exitCode": 0}}}


def pod(name: str, minute: int, *, ready: bool = False, phase: str = "Running", **containers: Any) -> dict[str, Any]:
    """A pod made at 11:`minute`; `containers`: status by name."""
    statuses = [{"name": container, **state} for container, state in containers.items()]
    conditions = [{"type": "Ready", "status": "True"}] if ready else []
    return {
        "metadata": {"name": name, "namespace": "team-a", "creationTimestamp": f"2026-01-01T11:{minute:02}:00Z"},
        "status": {"phase": phase, "conditions": conditions, "containerStatuses": statuses},
    }


SERVER = pod("svc-server-a", 10, ready=True, triton=RUNNING, proxy=RUNNING)
CRASHED = pod("svc-server-b", 20, proxy=RUNNING, triton=CRASHES)
DONE = pod("svc-fetch-1-x", 5, phase="Succeeded", fetch=ENDED)
BROKEN = pod("svc-preflight-1-y", 1, phase="Failed", triton=FAILED)
NEW = pod("svc-server-c", 30, phase="Pending", triton=STARTING)


def test_failing_pods_and_containers_come_first_then_the_newest() -> None:
    found = logs.logs([DONE, SERVER, NEW, BROKEN, CRASHED])
    assert [log.prefix for log in found] == [
        *("[svc-server-b/triton]", "[svc-server-b/proxy]", "[svc-preflight-1-y/triton]"),
        *("[svc-server-a/triton]", "[svc-server-a/proxy]", "[svc-fetch-1-x/fetch]"),
    ]


def test_the_run_before_the_last_restart_is_of_containers_that_had_one() -> None:
    assert [log.prefix for log in logs.logs([SERVER, CRASHED], previous=True)] == ["[svc-server-b/triton]"]


class Kubectl:
    """A `kubectl` that lists the pods of a file, and whose `logs` writes a line with its words."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        script = f"""#!/bin/bash
cd {folder}; echo "$@" >> calls
case $1 in
logs) echo "of $2"; [[ " $* " == *" --follow "* ]] && exec sleep 600; exit 0;;
*) cat "$2.json";;
esac
"""
        (folder / "kubectl").write_text(script, encoding="utf-8")
        (folder / "kubectl").chmod(0o755)

    def has(self, kind: str, found: Any) -> None:
        (self.folder / f"{kind}.new").write_text(json.dumps(found), encoding="utf-8")
        (self.folder / f"{kind}.new").rename(self.folder / f"{kind}.json")

    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text(encoding="utf-8").splitlines()


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    fake = Kubectl(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(fake.folder), prepend=":")
    monkeypatch.setattr(logs, "POLL_SECONDS", 0.01)
    return fake


def test_logs_are_shown_with_their_containers(kubectl: Kubectl) -> None:
    kubectl.has("pods", {"items": [SERVER, BROKEN]})
    done = CliRunner().invoke(app, ["logs", "svc", "-n", "team-a", "--tail", "5"])
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines() == [
        "[svc-preflight-1-y/triton] of svc-preflight-1-y",
        "[svc-server-a/triton] of svc-server-a",
        "[svc-server-a/proxy] of svc-server-a",
    ]
    assert f"--selector {names.LABEL_SERVICE}=svc" in kubectl.calls()[0]
    assert kubectl.calls()[1] == "logs svc-preflight-1-y --namespace team-a --container triton --tail=5"


def test_where_nothing_runs_yet_it_is_named(kubectl: Kubectl) -> None:
    kubectl.has("pods", {"items": []})
    kubectl.has("speculativeinferenceservices.serving.tandem.dev", {})
    assert CliRunner().invoke(app, ["logs", "svc"]).exit_code == 0
    kubectl.has("pods", {"items": [NEW]})
    done = CliRunner().invoke(app, ["logs", "svc"])
    assert (done.exit_code, done.stdout) == (0, "")
    assert "no containers with logs yet: see `tandem status svc`" in done.stderr


def test_a_service_that_is_not_there_has_no_logs(kubectl: Kubectl) -> None:
    kubectl.has("pods", {"items": []})
    done = CliRunner().invoke(app, ["logs", "svc"])
    assert (done.exit_code, done.stderr.startswith("error: ")) == (1, True)


async def test_logs_of_new_pods_are_followed_too(kubectl: Kubectl) -> None:
    kubectl.has("pods", {"items": [SERVER]})
    seen: set[str] = set()
    enough = asyncio.Event()

    def write(prefix: str, line: str) -> None:
        seen.add(prefix)
        if prefix == "[svc-server-a/triton]":
            kubectl.has("pods", {"items": [SERVER, CRASHED]})
        if "[svc-server-b/triton]" in seen:
            enough.set()

    following = asyncio.ensure_future(logs.follow("svc", None, Wanted(), write))
    await asyncio.wait_for(enough.wait(), 60)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert seen >= {"[svc-server-a/triton]", "[svc-server-b/triton]"}


def event(kind: str, name: str, minute: int, **fields: Any) -> dict[str, Any]:
    about = {"kind": kind, "name": name}
    return {"metadata": {}, "involvedObject": about, "lastTimestamp": f"2026-01-01T11:{minute:02}:00Z", **fields}


KIND = "SpeculativeInferenceService"
WHOSE = [
    # kind, name, whether it is of `svc` where there are `svc`, `svc-server` and `other`
    (KIND, "svc", True),
    (KIND, "svc-server", False),
    ("Deployment", "svc-server", True),
    ("ReplicaSet", "svc-server-5d9f", True),
    ("Pod", "svc-server-5d9f-x2x", True),
    ("Deployment", "svc-server-server", False),
    ("Pod", "svc-server-server-5d9f-x2x", False),
    ("Job", "svc-fetch-e60a73521c", True),
    ("Pod", "svc-preflight-e60a73521c-k9k", True),
    ("HorizontalPodAutoscaler", "keda-hpa-svc-server", True),
    ("Service", "svc-triton", True),
    ("ConfigMap", "svc-0123456789", True),
    ("PersistentVolumeClaim", "tandem-cache", True),
    ("PersistentVolumeClaim", "data", False),
    ("Deployment", "svc-frontend", False),
    ("Pod", "other-server-1-2", False),
]


@pytest.mark.parametrize(("kind", "name", "concerns"), WHOSE, ids=[f"{row[0]} {row[1]}" for row in WHOSE])
def test_whose_an_event_is(kind: str, name: str, concerns: bool) -> None:
    found = events.of_service([event(kind, name, 1)], "svc", ["svc", "svc-server", "other"], "tandem-cache")
    assert bool(found) is concerns


@pytest.mark.parametrize(
    "name",
    [names.server("svc"), names.endpoint("svc"), names.revision("svc", "0123456789"), names.benchmark("svc")]
    + [names.task("svc", task, "e60a73521c") for task in names.TASKS]
    + [names.ssh("svc", "uid"), names.ssh("svc", "")],
)
def test_each_name_of_a_child_is_known(name: str) -> None:
    assert events.of_service([event("Any", name, 1)], "svc", ["svc"], "")


def test_events_are_in_the_order_of_time(kubectl: Kubectl) -> None:
    micro = event("Pod", "svc-server-1-2", 0, lastTimestamp=None, eventTime="2026-01-01T11:30:00.000000Z")
    series = event("Pod", "svc-server-1-3", 0, series={"lastObservedTime": "2026-01-01T11:50:00Z", "count": 7})
    late = event(KIND, "svc", 40, type="Warning", reason="RollingOut", message="0 of 1", count=3)
    found = events.of_service([series, late, micro], "svc", ["svc"], "")
    assert found == [micro, late, series]
    console = Console(width=200)
    with console.capture() as capture:
        console.print(events.table(found, NOW, console.width))
    rows = [" ".join(line.split()) for line in capture.get().splitlines() if line.strip(" ─")]
    assert rows[0] == "AGE TYPE REASON OBJECT COUNT MESSAGE"
    assert rows[2] == f"20 min Warning RollingOut {KIND}/svc 3 0 of 1"
    assert rows[3].startswith("10 min - - Pod/svc-server-1-3 7")


@pytest.mark.parametrize("width", [40, 80])
def test_events_have_their_message_on_a_narrow_terminal(width: int) -> None:
    """Pods' names alone are half of a line."""
    pod = "quickstart-server-5bd65b7c94-46b62"
    found = event("Pod", pod, 1, reason="FailedToRetrieveImagePullSecret", message="the message", count=12)
    row = only_row(events.table([found], NOW, width), width)
    assert (row["OBJECT"], row["MESSAGE"]) == (f"Pod/{pod}", "themessage")


def test_events_are_read_in_the_services_namespace(kubectl: Kubectl) -> None:
    service = {"metadata": {"name": "svc", "namespace": "team-a"}, "spec": {}}
    kubectl.has("speculativeinferenceservices.serving.tandem.dev", {**service, "items": [service]})
    kubectl.has("events", {"items": [event("Pod", "svc-server-1-2", 1, message="\x1b[2J")]})
    done = CliRunner().invoke(app, ["events", "svc"])
    assert done.exit_code == 0, done.stderr
    assert "Pod/svc-server-1-2" in done.stdout
    assert "\x1b[2J" not in done.stdout
    assert all("--namespace team-a" in call for call in kubectl.calls()[1:])
