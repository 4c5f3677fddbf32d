"""Finding a service and forwarding a port, with a fake kubectl that answers from files."""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tandem.api import GROUP, PLURAL
from tandem.client.generate import cluster
from tandem.client.generate.cluster import Found, find_available, port_forward, read_service
from tandem.client.kubectl import ClusterError, KubectlOutput, connected, explain
from tandem.metrics_server.trust import OWN_API_SERVICE


def resource(
    ready: str | None = "True",
    reason: str = "ServersAnswer",
    message: str = "1 of 1 pods",
    observed: int = 2,
    available: str | None = None,
) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready, "reason": reason, "message": message}] if ready else []
    if ready:
        conditions.append(
            {"type": "Available", "status": available or ready, "reason": "", "message": "none answers"}
        )
    return {
        "metadata": {"name": "quick", "namespace": "demo", "generation": 2},
        "status": {"observedGeneration": observed, "conditions": conditions},
    }


UNSEEN = "the operator has not acted on it yet: check that it runs"
PROBLEMS = [
    # name, resource, why no server answers, why they may be of another revision
    ("ready", resource(), "", ""),
    ("a replica is pending", resource("False", "ReplicasNotReady", "1 of 2", available="True"), "", ""),
    ("all are", resource("False", "ReplicasNotReady", "0 of 2"), "none answers", ""),
    ("it rolls out", resource("False", "RollingOut", "1 of 2", available="True"), "", "RollingOut: 1 of 2"),
    ("a refusal, and what was serves on", resource("False", "No", "no", available="True"), "", "No: no"),
    (
        "not ready",
        resource("False", "UnknownProfile", "no profile 'x': write reference"),
        "UnknownProfile: no profile 'x': write reference",
        "",
    ),
    (
        "nothing serves",
        resource("True", "ScaledToZero", "spec.replicas is 0", available="False"),
        "ScaledToZero: spec.replicas is 0",
        "",
    ),
    (
        "no operator looked at it",
        resource(None, observed=-1),
        UNSEEN,
        "",
    ),
    ("unknown is not ready", resource("Unknown", "Starting", "0 of 1"), "Starting: 0 of 1", ""),
    ("ready for an older spec", resource(observed=1), "", UNSEEN),
    ("no condition", resource(None), UNSEEN, ""),
    (
        "no status at all",
        {"metadata": {"name": "quick", "namespace": "demo", "generation": 1}},
        UNSEEN,
        "",
    ),
]


@pytest.mark.parametrize(("obj", "problem", "rollout"), [p[1:] for p in PROBLEMS], ids=[p[0] for p in PROBLEMS])
def test_read_service(obj: dict[str, Any], problem: str, rollout: str) -> None:
    assert read_service(obj) == Found("quick", "demo", problem, rollout=rollout)


def test_a_service_s_openai_endpoint_is_read_too() -> None:
    served = resource()
    served["status"]["openAIURL"] = "http://quick-triton.demo.svc:9000/v1"
    assert read_service(served).openai_url == "http://quick-triton.demo.svc:9000/v1"


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ('error: the server doesn\'t have a resource type "x"', "Tandem is not installed in this cluster"),
        (f'Error from server (NotFound): {PLURAL}.{GROUP} "quick" not found', "lists those that exist"),
        ('Error from server (NotFound): services "quick" not found', "not found"),
        ("The connection to the server was refused", "kubectl config current-context"),
        ("Error from server (NotFound): the server could not find the requested resource", "metricsServer.register"),
        (
            "Error from server (ServiceUnavailable): the server is currently unable to handle the request",
            f"kubectl get apiservice {OWN_API_SERVICE}",
        ),
        ("Error from server (NotFound): a/b is not known now: its pods do not report it", "do not report it"),
        ("The connection to the server localhost:8080 was refused", "check $KUBECONFIG, or give --kubeconfig FILE"),
        ("invalid character '<' looking for beginning of value", "perhaps a proxy in front of it"),
    ],
    ids=[
        "no CRD",
        "no such service",
        "no such object",
        "no cluster",
        "no metrics API",
        "no metrics server",
        "no such metric",
        "no kubeconfig",
        "a login page",
    ],
)
def test_explain_says_what_to_do(message: str, hint: str) -> None:
    assert hint in explain(message)
    assert message in explain(message)
    assert ("lists those that exist" in explain(message)) is (PLURAL in message)


def test_explain_leaves_out_options_that_only_kubectl_has() -> None:
    advice = "; if you choose to ignore these errors, turn validation off with --validate=false"
    assert "--validate" not in explain(f"error validating data: connection refused{advice}")


@pytest.mark.parametrize("option", ["--context=nope", "--kubeconfig=/no/file"])
def test_what_was_named_is_to_be_checked(option: str) -> None:
    with connected([option, "--as=ann"]):
        assert explain("stat /no/file: no such file or directory").endswith(f"directory; check {option}")


def test_kubectl_s_own_mark_of_an_error_is_not_repeated() -> None:
    assert KubectlOutput(1, "", "warning: x\nerror: stat /no/file").error == "stat /no/file"


class FakeKubectl:
    """A `kubectl` in PATH: `get` prints the answers in turn (the last one for ever), `port-forward` a script."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def answers(self, *resources: dict[str, Any]) -> None:
        for i, obj in enumerate(resources, 1):
            (self.folder / f"answer{i}").write_text(json.dumps(obj), encoding="utf-8")
        self.script(
            f"""n=$(cat count 2>/dev/null || echo 0); n=$((n + 1)); echo "$@" >> calls
            [ $n -gt {len(resources)} ] && n={len(resources)}
            echo $n > count; cat answer$n"""
        )

    def script(self, text: str) -> None:
        path = self.folder / "kubectl"
        path.write_text(f"#!/bin/bash\ncd {self.folder}\n{text}\n", encoding="utf-8")
        path.chmod(0o755)

    def read(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8").strip()

    def wrote(self, name: str) -> bool:
        """Whether the file comes to be, in four minutes."""
        deadline = time.monotonic() + 240
        while not (self.folder / name).exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return (self.folder / name).exists()

    def running(self) -> bool:
        return Path("/proc", self.read("pid")).exists()


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeKubectl:
    fake = FakeKubectl(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(fake.folder), prepend=":")
    monkeypatch.setattr(cluster, "POLL_SECONDS", 0.01)
    return fake


def ignore(_: str) -> None:
    pass


async def test_a_service_is_read_in_its_namespace(kubectl: FakeKubectl) -> None:
    kubectl.answers(resource())
    assert await find_available("quick", "demo", 0, ignore) == Found("quick", "demo", "")
    assert kubectl.read("calls").startswith("get speculativeinferenceservices.serving.tandem.dev quick")
    assert "--namespace demo" in kubectl.read("calls")


async def test_waiting_says_for_what_and_ends_when_ready(kubectl: FakeKubectl) -> None:
    kubectl.answers(resource("False", "Starting", "0 of 1"), resource("False", "Starting", "0 of 1"), resource())
    said: list[str] = []
    found = await find_available("quick", None, 10, said.append)
    assert not found.problem
    assert set(said) == {"waiting for demo/quick: Starting: 0 of 1"}
    assert "--namespace" not in kubectl.read("calls"), "kubectl knows the context's namespace"


async def test_a_rollout_is_waited_for_and_holds_up_nobody_longer(kubectl: FakeKubectl) -> None:
    rolling = resource("False", "RollingOut", "1 of 2", available="True")
    kubectl.answers(rolling, resource())
    said: list[str] = []
    assert not (await find_available("quick", None, 10, said.append)).rollout
    assert said == ["waiting for demo/quick: RollingOut: 1 of 2"]
    kubectl.answers(rolling)
    assert (await find_available("quick", None, 0.03, ignore)).rollout == "RollingOut: 1 of 2"


@pytest.mark.parametrize(("wait", "hint"), [(0, r" \(--wait SECONDS waits for it\)"), (0.03, "")])
async def test_not_ready_in_time(kubectl: FakeKubectl, wait: float, hint: str) -> None:
    kubectl.answers(resource("False", "Starting", "0 of 1"))
    with pytest.raises(ClusterError, match=f"^no server of demo/quick answers: Starting: 0 of 1{hint}$"):
        await find_available("quick", None, wait, ignore)


async def test_kubectl_s_own_error_is_passed_on(kubectl: FakeKubectl) -> None:
    kubectl.script("echo 'noise' >&2; echo 'Error from server (NotFound): no such thing' >&2; exit 1")
    with pytest.raises(ClusterError, match=r"^Error from server \(NotFound\): no such thing"):
        await find_available("quick", None, 0, ignore)


async def test_without_kubectl_there_is_another_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match=r"kubectl is not in PATH: install it, or give --url"):
        await find_available("quick", None, 0, ignore)


FORWARD = """echo "$@" > calls; echo $$ > pid
echo 'Forwarding from 127.0.0.1:40123 -> 8001'; echo 'Forwarding from [::1]:40123 -> 8001'
for i in $(seq 5000); do echo "Handling connection for 40123, at some length, so that it fills a pipe"; done
touch drained
exec sleep 600"""


async def test_port_forward_ends_with_the_block(kubectl: FakeKubectl) -> None:
    kubectl.script(FORWARD)
    async with port_forward(Found("quick", "demo", "")) as address:
        assert address == "127.0.0.1:40123"
        assert kubectl.read("calls") == "port-forward --namespace demo service/quick-triton :8001"
        pid = int(kubectl.read("pid"))
        assert os.getsid(pid) == pid, "Ctrl-C in a terminal does not reach it before the streams are cancelled"
        assert await asyncio.to_thread(kubectl.wrote, "drained"), "kubectl is stuck on a full pipe"
    assert not kubectl.running()


async def test_a_forward_that_ignores_the_signal_is_killed(
    kubectl: FakeKubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tandem.client.kubectl.STOP_SECONDS", 0.1)
    kubectl.script("trap '' TERM; echo $$ > pid; echo 'Forwarding from 127.0.0.1:1 -> 8001'; exec sleep 600")
    async with port_forward(Found("quick", "demo", "")):
        pass
    assert not kubectl.running()


async def test_a_forward_that_fails_says_why(kubectl: FakeKubectl) -> None:
    kubectl.script("echo 'error: unable to forward port because pod is not running' >&2; exit 1")
    with pytest.raises(ClusterError, match="unable to forward port because pod is not running"):
        async with port_forward(Found("quick", "demo", "")):
            pass
