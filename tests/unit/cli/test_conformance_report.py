"""What `tandem conformance` reads of a cluster, and what of it gets into the report: nothing of the user's own."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from support.conforming import Faults, Server
from tandem.client.conformance import app, facts, watch
from tandem.client.conformance.app import ConformancePlan, conformance
from tandem.client.conformance.results import CaseOutcome
from tandem.client.conformance.watch import Moment, health, moment, sums
from tandem.client.generate.app import Endpoint
from tandem.client.generate.errors import UnreachableError
from tandem.client.kubectl import ClusterError

T = TypeVar("T")
OWN = ("secret-name", "team-x", "pod-7", "node-9", "registry.corp", "bucket", "alice", "10.1.2.3", "hf-token")
"""What is the user's own in the objects below."""
SERVICE: dict[str, Any] = {
    "metadata": {"name": "secret-name", "namespace": "team-x", "uid": "u", "labels": {"owner": "alice"}},
    "spec": {
        "runtime": {"mode": "BLS", "profile": "trtllm-26.07", "image": "registry.corp/own/triton:26.07"},
        "target": {
            "model": {"uri": "hf://meta-llama/Llama-3.1-8B", "revision": "abc", "secretName": "hf-token"},
            "tensorParallelSize": 2,
        },
        "draft": {"model": {"uri": "s3://bucket/draft"}},
        "speculation": {"decodingType": "DraftTarget", "maxDraftLen": 4, "adaptive": {"enabled": True}},
    },
    "status": {"currentRevision": "1a2b"},
}


def pod(restarts: int = 0, uid: str = "p1", ended: dict[str, Any] | None = None) -> dict[str, Any]:
    server = {
        "name": "triton",
        "image": "registry.corp/own/triton:26.07",
        "imageID": "registry.corp/own/triton@sha256:77",
        "restartCount": restarts,
        "lastState": {"terminated": ended} if ended else {},
    }
    init = {"name": "tandem", "image": "registry.corp/tandem/serving:0.1.0", "imageID": "sha256:88"}
    return {
        "metadata": {"name": "pod-7", "namespace": "team-x", "uid": uid},
        "spec": {"nodeName": "node-9"},
        "status": {"podIP": "10.1.2.3", "containerStatuses": [server], "initContainerStatuses": [init]},
    }


NODE = {
    "metadata": {
        "name": "node-9",
        "labels": {
            "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
            "nvidia.com/gpu.count": "8",
            "nvidia.com/cuda.driver.major": "570",
            "nvidia.com/cuda.driver.minor": "86",
            "nvidia.com/cuda.driver.rev": "15",
            "owner": "alice",
        },
    },
    "status": {"nodeInfo": {"kubeletVersion": "v1.36.3", "kernelVersion": "6.1", "architecture": "amd64"}},
}
PAGE = """# TYPE tandem_requests_running gauge
tandem_requests_running{model="speculative_bls"} 3
tandem_requests_waiting{model="speculative_bls"} 1
# TYPE tandem_faults_total counter
tandem_faults_total{ended="all"} 1
tandem_faults_total{ended="request"} 2
# TYPE nv_cpu_memory_used_bytes gauge
nv_cpu_memory_used_bytes 1000
# TYPE nv_inference_count counter
nv_inference_count{model="other"} 9
"""


class FakeCluster:
    """Shows what it is given; `forbidden`: what the user may not read."""

    def __init__(self, *forbidden: str) -> None:
        self.forbidden = forbidden
        self.pod, self.metrics = pod(), PAGE

    async def service(self) -> dict[str, Any]:
        return SERVICE

    async def pods(self, service: dict[str, Any]) -> list[dict[str, Any]]:
        return [self.pod]

    async def node(self, name: str) -> dict[str, Any]:
        return self._shown("node", NODE)

    async def page(self, pod: dict[str, Any]) -> str:
        return self._shown("page", self.metrics)

    async def engine_version(self, pod: dict[str, Any]) -> str:
        return self._shown("engine_version", "1.2.1")

    def _shown(self, what: str, value: T) -> T:
        if what in self.forbidden:
            raise ClusterError(f'Forbidden: User "alice" cannot get {what} pod-7 in namespace team-x')
        return value


def test_facts_of_a_service() -> None:
    found = facts.of_service(SERVICE)
    assert found["target"] == "hf://meta-llama/Llama-3.1-8B@abc"
    assert found["draft"] == "s3:..."
    assert (found["mode"], found["decodingType"], found["maxDraftLen"], found["adaptive"]) == (
        *("BLS", "DraftTarget", 4),
        True,
    )
    assert found["engine"] == "TensorRT-LLM 1.2.1"


IMAGES = [
    # a container's image and image id, as the report has it
    ("nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3", "nvcr.io/nvidia/tritonserver@sha256:1",
     "tritonserver:26.07-trtllm-python-py3@sha256:1"),
    ("registry.corp:5000/triton@sha256:2", "registry.corp:5000/triton@sha256:2", "triton@sha256:2"),
    ("localhost/tandem/reference:1", "sha256:3", "reference:1@sha256:3"),
    ("", "", ""),
]  # fmt: skip


@pytest.mark.parametrize(("image", "digest", "shown"), IMAGES)
def test_images(image: str, digest: str, shown: str) -> None:
    assert facts.image({"image": image, "imageID": digest}) == shown


NODES = [
    # labels, what is known of the driver, why
    ({"nvidia.com/cuda.driver-version.full": "570.86.15"}, "570.86.15", "as GPU feature discovery writes it now"),
    ({"nvidia.com/cuda.driver.major": "550", "nvidia.com/cuda.driver.minor": "54"}, "550.54", "as it did before"),
    ({}, None, "without GPU feature discovery"),
]


@pytest.mark.parametrize(("labels", "driver", "why"), NODES, ids=[row[2] for row in NODES])
def test_drivers(labels: dict[str, str], driver: str | None, why: str) -> None:
    assert facts.of_node({"metadata": {"labels": labels}}).get("driver") == driver, why


def test_a_page_is_summed_up_over_labels() -> None:
    assert sums(PAGE) == {
        "tandem_requests_running": 3,
        "tandem_requests_waiting": 1,
        "tandem_faults_total": 3,
        "nv_cpu_memory_used_bytes": 1000,
    }
    assert sums("<html>no page</html>") == {}


QUIET = {"tandem_faults_total": 1.0, "tandem_engine_call_failures_total": 0.0, "nv_cpu_memory_used_bytes": 10.0}
ENDED = {"exitCode": 137, "reason": "OOMKilled"}
HEALTH = [
    # last moment, outcome, what its detail holds
    (Moment({"a": 1}, QUIET), CaseOutcome.VERIFIED, "of restarts and counters of faults"),
    (
        Moment({"a": 2}, QUIET, ["exit code 137 (OOMKilled)"]),
        CaseOutcome.BROKE,
        "started again: exit code 137 (OOMKilled)",
    ),
    (Moment({"b": 0}, QUIET), CaseOutcome.BROKE, "server pods are gone"),
    (Moment({"a": 1, "b": 0}, QUIET), CaseOutcome.VERIFIED, "of restarts and counters of faults"),
    (Moment({"a": 1}, {**QUIET, "tandem_faults_total": 3.0}), CaseOutcome.BROKE, "tandem_faults_total grew by 2"),
    (
        *(Moment({"a": 1}, {**QUIET, "tandem_engine_call_failures_total": 1.0}), CaseOutcome.BROKE),
        "tandem_engine_call_failures_total grew by 1",
    ),
    (Moment({"a": 1}, None), CaseOutcome.VERIFIED, "of restarts alone: metrics were not read"),
    (Moment({"a": 2}, None), CaseOutcome.BROKE, "metrics were not read"),
]


@pytest.mark.parametrize(("last", "outcome", "says"), HEALTH, ids=str)
def test_health(last: Moment, outcome: CaseOutcome, says: str) -> None:
    found = health([Moment({"a": 1}, QUIET), last])
    assert (found.outcome, says in found.detail) == (outcome, True), found.detail


def test_memory_is_reported_as_it_came() -> None:
    moments = [Moment({}, {"nv_cpu_memory_used_bytes": value}) for value in (10.0, 30.0, 20.0)]
    assert health(moments).figures == {
        "nodeMemoryFirst": 10,
        "nodeMemoryMost": 30,
        "nodeMemoryLast": 20,
        "draftFailures": 0,
    }


async def test_a_moment() -> None:
    cluster = FakeCluster()
    cluster.pod = pod(restarts=2, ended=ENDED)
    found = await moment(cluster, SERVICE)
    assert (found.restarts, list(found.ended)) == ({"p1": 2}, ["exit code 137 (OOMKilled)"])
    assert await watch.Watch(cluster, SERVICE).running() == 4
    cluster.forbidden = ("page",)
    assert (await moment(cluster, SERVICE)).values is None
    assert await watch.Watch(cluster, SERVICE).running() is None


class Checked(Server):
    """A server that `TritonClient.check` would take; it goes away after so many requests."""

    def __init__(self, faults: Faults | None = None, goes_after: int = 10**6) -> None:
        super().__init__(faults)
        self._goes_after = goes_after

    async def check(self) -> None:
        if self.asked >= self._goes_after:
            raise UnreachableError("no")

    async def version(self) -> str:
        return "2.70.0"

    async def drafts_fixed(self) -> str:
        return ""

    async def refused_parameters(self) -> dict[str, str]:
        return {}

    def _refuse(self, request: Any, prompt_tokens: int) -> None:
        if self.asked >= self._goes_after:
            raise UnreachableError("10.1.2.3 of pod-7 in team-x went away")
        super()._refuse(request, prompt_tokens)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs the command on a server and a cluster; its exit code, and the report."""

    def run(server: Checked, cluster: FakeCluster, minutes: float = 0) -> tuple[int, dict[str, Any]]:
        @contextlib.asynccontextmanager
        async def reach(*_: object) -> AsyncIterator[FakeCluster]:
            cluster.metrics = PAGE.replace('model="speculative_bls"} 3', 'model="speculative_bls"} 0')
            yield cluster

        @contextlib.asynccontextmanager
        async def connect(*_: object) -> AsyncIterator[Checked]:
            yield server

        monkeypatch.setattr(app, "reach", reach)
        monkeypatch.setattr(app, "connect", connect)
        file = tmp_path / "report.json"
        code = conformance(Endpoint("secret-name", "team-x"), ConformancePlan(16, minutes, file), no_color=True)
        return code, json.loads(file.read_text())

    return run


def test_all_is_verified(served: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = served(Checked(), FakeCluster(), minutes=0.005)
    assert code == 0
    assert report["outcomes"] == {"verified": 17, "broke": 0, "not applicable": 1}
    assert [case["case"] for case in report["cases"]][-2:] == ["soak", "health"]
    assert report["versions"] == {"tensorrtLlm": "1.2.1", "triton": "2.70.0"}
    assert report["node"]["product"] == "NVIDIA-H100-80GB-HBM3"
    assert report["node"]["driver"] == "570.86.15"
    assert report["pods"]["images"] == ["triton:26.07@sha256:77"]
    assert report["notRead"] == []
    shown = capsys.readouterr()
    assert "17 verified, 0 broke, 1 not applicable" in shown.out
    assert "exact-16                      verified" in shown.out
    assert "1 of 18: exact-1" in shown.err


BROKEN = [
    # server, what the user may not read, exit code, outcomes: verified, broke, not applicable
    ("another token", lambda: Checked(Faults(wrong_at=3)), (), 1, (9, 7, 1)),
    ("what may not be read", Checked, ("node", "page", "engine_version"), 0, (16, 0, 1)),
    ("it goes away", lambda: Checked(goes_after=20), (), 1, (3, 1, 13)),
]


@pytest.mark.parametrize(
    ("server", "forbidden", "code", "outcomes"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN]
)
def test_what_breaks_is_reported_without_names(
    server: Any, forbidden: tuple[str, ...], code: int, outcomes: tuple[int, ...], served: Any
) -> None:
    ended, report = served(server(), FakeCluster(*forbidden))
    assert (ended, tuple(report["outcomes"].values())) == (code, outcomes), report["cases"]
    text = json.dumps(report)
    assert [own for own in OWN if own in text] == []
    assert len(report["notRead"]) == len([each for each in forbidden if each != "page"])


def test_what_was_not_tried_says_why(served: Any) -> None:
    _, report = served(Checked(goes_after=20), FakeCluster())
    assert report["cases"][-2]["detail"] == "not tried: the server does not answer any more"
    assert report["cases"][-1]["case"] == "health"
    assert report["cases"][-1]["outcome"] == "verified"


def test_the_report_on_standard_output(served: Any, capsys: pytest.CaptureFixture[str]) -> None:
    served(Checked(), FakeCluster())
    capsys.readouterr()
    conformance(
        Endpoint("secret-name", "team-x"), ConformancePlan(16, 0, app.STDOUT, cases=("exact-1",)), no_color=True
    )
    assert [case["case"] for case in json.loads(capsys.readouterr().out)["cases"]] == ["exact-1", "health"]
