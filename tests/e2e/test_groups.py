"""Ranks over two pods on the real kubelet: ssh, MPI, and a stop that lets requests finish.

The pods are those of Tandem's LeaderWorkerSet, with the image of tests/e2e/mpi. What LeaderWorkerSet's controller
does, `as_the_controller_would` does here: names, addresses and variables as https://lws.sigs.k8s.io/docs documents.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from builder import build as builder
from builder import cache, engines
from builder.build import Built, Plan
from builder.inputs import Image
from tandem import children as build
from tandem import names
from tandem.api.folders import folders
from tandem.api.profile import Profile
from tandem.api.types import SpeculativeInferenceService
from tandem.cluster.keys import new_key_pair
from tandem.engines.tensorrt_llm.group import over_the_group
from tandem.render import LATEST, Record, Revision
from tandem.render.rendered import JobPod
from tandem.render.v1.inputs import Inputs
from tandem.render.v1.pod import server_pod, template_metadata, worker_pod

from .conftest import REPOSITORY, Site, wait_for

CONTAINERFILE = REPOSITORY / "tests/e2e/mpi/Containerfile"
SMALL = {"requests": {"cpu": "100m", "memory": "128Mi"}}
SERVICE = """
apiVersion: serving.tandem.dev/v1alpha1
kind: SpeculativeInferenceService
metadata: {name: ranks, namespace: default}
spec:
  runtime: {mode: LLMAPI, profile: mpi}
  serving: {openAI: {enabled: false}}
  target: {model: {uri: file:///none}, tensorParallelSize: 2}
  speculation: {decodingType: None}
  placement: {gpu: {perNode: 1}}
  podTemplate: {spec: {containers: [{name: triton, env: [{name: OF_THE_CONTAINER, value: "yes"}]}]}}
"""


@pytest.fixture(scope="module")
def image(site: Site, images: list[Built], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The reference image with Open MPI, openssh and the MPI program, loaded into the node."""
    root, made = tmp_path_factory.mktemp("mpi"), Image("e2e-mpi")
    (reference,) = (built.ref for built in images if built.name == "reference")
    (root / made.containerfile).parent.mkdir(parents=True)
    text = CONTAINERFILE.read_text(encoding="utf-8").replace("${REFERENCE}", reference)
    (root / made.containerfile).write_text(text, encoding="utf-8")
    for name in ("tritonserver", "trtllm-llmapi-launch"):
        (root / name).write_text((CONTAINERFILE.parent / name).read_text(encoding="utf-8"))
    engine = engines.choose(cache.default().root)
    (built,) = builder.build(Plan(root, cache.default(), own_base=False), engine, [made])
    site.cluster.import_image(built.archive)
    yield built.ref
    engine.remove(built.ref)
    built.archive.unlink()


@pytest.fixture
def pods(site: Site, image: str, images: list[Built]) -> Iterator[list[str]]:
    """Leader and worker of one group; their names."""
    (serving,) = (built.ref for built in images if built.name == "serving")
    (node,) = site.items("nodes")
    gpus = {"status": {field: {"nvidia.com/gpu": "2"} for field in ("capacity", "allocatable")}}
    patch = ("--subresource=status", "--type=merge", "-p", json.dumps(gpus))
    site.run("patch", "node", node["metadata"]["name"], *patch)
    manifests = as_the_controller_would(group_of(image, serving))
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
    site.run("apply", "-f", "-", stdin=listed)
    yield [m["metadata"]["name"] for m in manifests if m["kind"] == "Pod"]
    site.run("delete", "-f", "-", "--ignore-not-found", "--grace-period=1", stdin=listed)


def group_of(image: str, serving: str) -> list[dict[str, Any]]:
    """Tandem's children of the service: LeaderWorkerSet, Secret, ServiceAccount, ConfigMap."""
    service = SpeculativeInferenceService.model_validate(yaml.safe_load(SERVICE))
    profile = Profile.model_validate(
        {"name": "mpi", "image": image, "engine": {"kind": "TensorRT-LLM", "version": "1.2"}, "resources": SMALL}
    )
    inputs = Inputs(service.spec, profile, serving, folders(service.spec, {}))
    command = over_the_group(inputs.plan, ["tritonserver"], [])
    plan = {
        "models": {"none": {"config": "none"}},
        "server": {"command": command},
        "group": {"hosts": inputs.plan.nodes, "slots": inputs.plan.gpus_per_pod},
    }
    revision = Revision(
        digest="0123456789",
        record=Record(renderer=LATEST, serving_image=serving, profile=profile, spec=service.spec),
        files={"launch.json": json.dumps(plan), "none": ""},
        pod=server_pod(inputs),
        worker=worker_pod(inputs),
        nodes=2,
        metadata=template_metadata(inputs),
        preflight=JobPod({}, ""),
        builds={},
    )
    return [
        build.workload(service, revision),
        {**build.ssh_secret(service), "data": new_key_pair()},
        build.service_account(service),
        build.revision_configmap(service, revision),
    ]


def as_the_controller_would(children: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first group's pods and headless Service in the place of the LeaderWorkerSet, and the other children."""
    workload, *others = children
    name, template = workload["metadata"]["name"], workload["spec"]["leaderWorkerTemplate"]
    label = {"leaderworkerset.sigs.k8s.io/name": name}
    headless = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"clusterIP": "None", "selector": label, "publishNotReadyAddresses": True},
    }
    found = [*others, headless]
    for index, pod in enumerate((template["leaderTemplate"], template["workerTemplate"])):
        variables = {
            "LWS_LEADER_ADDRESS": f"{name}-0.{name}.default",
            "LWS_GROUP_SIZE": str(template["size"]),
            "LWS_WORKER_INDEX": str(index),
        }
        container, *others = pod["spec"]["containers"]
        env = [*container["env"], *({"name": key, "value": value} for key, value in variables.items())]
        hostname = f"{name}-0" if index == 0 else f"{name}-0-{index}"
        spec = {"hostname": hostname, "subdomain": name, "restartPolicy": "Never"}
        spec = {**pod["spec"], **spec, "containers": [{**container, "env": env}, *others]}
        labels = {**pod["metadata"]["labels"], **label}
        metadata = {"name": hostname, "namespace": "default", "labels": labels}
        found.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return found


def test_ranks_of_two_pods_work_together_until_the_leader_has_finished(
    site: Site, pods: list[str], tmp_path: Path
) -> None:
    """Both pods are deleted at once, as a group is: the ranks go on until the leader's program has ended."""
    log = tmp_path / "leader.log"

    def said(when: str) -> list[list[str]] | None:
        whole = log.read_text().rpartition("\n")[0]  # the last line may be on its way
        lines = [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
        return next((line["ranks"] for line in lines if line["when"] == when), None)

    everybody = [[pod, "yes"] for pod in pods]
    wait_for(
        "the leader to run", lambda: site.run("get", "pod", pods[0], "-o", "jsonpath={.status.phase}") == "Running"
    )
    with log.open("w") as output, following(site, pods[0], output):
        try:
            assert wait_for("both ranks", lambda: said("started")) == everybody
        except AssertionError as error:
            others = [site.run("logs", pod, "--tail=20") for pod in pods]
            raise AssertionError(f"{error}\n{log.read_text()}\n{others}") from error
        site.run("delete", "pod", *pods, "--wait=false")
        assert wait_for("both ranks after SIGTERM", lambda: said("told to stop")) == everybody
    assert "run /models/.tritonserver" in log.read_text(), "what is started is logged"
    assert "restricted-api" not in log.read_text(), "and the key of Triton's control APIs is not"
    wait_for("the pods to go, long before they are killed", lambda: not site.items("pods", in_group()))


def in_group() -> str:
    return f"{names.LABEL_SERVICE}=ranks"


def following(site: Site, pod: str, output: Any) -> Any:
    """`kubectl logs --follow` as a process; ends with the container."""
    kubectl = site.cluster.kubectl
    command = [str(kubectl.binary), f"--kubeconfig={kubectl.kubeconfig}", "logs", "--follow", pod]
    return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
