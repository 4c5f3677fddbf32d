"""A one-node Kubernetes, with Tandem installed as users install it and a service Ready.

Each process that runs tests has its own: tests on one disturb those on another in nothing but speed.
"""

import importlib.util
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tritonclient.grpc as triton
import yaml

from builder import cache, engines, inputs
from builder.build import Built, Plan
from cluster.addresses import shown
from cluster.core import Cluster
from support.order import first
from tandem.settings import shipped_profiles

REPOSITORY = Path(__file__).parents[2]
QUICKSTART = REPOSITORY / "examples/quickstart.yaml"
FAST = {
    "lease": {"durationSeconds": 6, "renewSeconds": 1},
    "metricsServer": {"intervalSeconds": 1, "windowSeconds": 5},
}
"""Values of the chart with which tests wait less."""
NUMBERS = itertools.count()
DECOUPLED = "decoupled"
OF_METRICS = {"MetricsAvailable", "SpeculationActive", "SpeculationBeneficial", "ScalingActive"}


LONG = ("test_autoscaling", "test_downloads", "test_operator_killed", "test_engine_health", "test_bad_models")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """See `first`. The tutorials come last: they end with Tandem's removal from the cluster that the files share."""
    first(items, LONG)
    items.sort(key=lambda item: item.path.stem == "test_tutorials")


def load_demo() -> ModuleType:
    """examples/demo.py: its steps are the tests' setup, so that what is shown is what is tested."""
    spec = importlib.util.spec_from_file_location("demo", REPOSITORY / "examples/demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PATIENCE = 480.0
"""Seconds: beyond what the busiest machine took for anything that the tests wait for."""


def wait_for(what: str, check: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Poll `check` until it returns something true, which is returned."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := check():
            return found
        time.sleep(0.2)
    raise AssertionError(f"not within {seconds} s: {what}")


class Site:
    """The installed cluster, through kubectl in namespace `default`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.undisturbed: dict[str, Any] = {}
        """State of a service that came up without a fault; see `state`."""

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl.run(*arguments, stdin=stdin)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        found = self.cluster.reader.get(kind, name)
        assert found, f"there is no {kind} {name}"
        return found

    def items(self, kinds: str, selector: str = "", namespace: str = "default") -> list[dict[str, Any]]:
        return self.cluster.reader.items(kinds, namespace, selector)

    def apply(self, name: str = "quickstart", **spec: Any) -> None:
        """Apply the quickstart under a name, with other fields of its spec; None takes one away."""
        raw = yaml.safe_load(QUICKSTART.read_text())
        raw["metadata"]["name"] = name
        raw["spec"] = {key: value for key, value in (raw["spec"] | spec).items() if value is not None}
        self.run("apply", "-f", "-", stdin=json.dumps(raw))

    def conditions(self, name: str) -> dict[str, dict[str, Any]]:
        """Conditions of the current generation by type; empty when there are none yet."""
        service = self.get("sis", name)
        status = service.get("status", {})
        if status.get("observedGeneration") != service["metadata"]["generation"]:
            return {}
        return {c["type"]: c for c in status["conditions"]}

    def wait_condition(self, name: str, kind: str, status: str, seconds: float = PATIENCE) -> dict[str, Any]:
        def check() -> dict[str, Any] | None:
            found = self.conditions(name).get(kind)
            return found if found and found["status"] == status else None

        try:
            found: dict[str, Any] = wait_for(f"{name}: {kind}={status}", check, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; it has {self.conditions(name)}") from None
        return found

    def wait_reconciled(self, name: str) -> None:
        """Make the operator reconcile once more: it repairs a child that is deleted, one that no request needs."""
        self.run("delete", "serviceaccount", f"{name}-server")
        wait_for(f"{name}-server to be repaired", lambda: self.items("serviceaccounts", self.label(name)))

    def state(self, name: str) -> dict[str, Any]:
        """The service's status and children, without what differs between equal services: compare two."""
        status = self.get("sis", name)["status"]
        # What the metrics server says depends on when it was asked last, and on who was served.
        status = {key: value for key, value in status.items() if key not in ("speculation", "autoscaling")}
        status["conditions"] = [c for c in status["conditions"] if c["type"] not in OF_METRICS]
        for condition in status["conditions"]:
            del condition["lastTransitionTime"]
        kinds = "deployments,jobs,services,serviceaccounts,configmaps"
        children = [essence(child) for child in self.items(kinds, self.label(name))]
        seen = {"status": status, "children": {f"{c['kind']}/{c['metadata']['name']}": c for c in children}}
        renamed: dict[str, Any] = json.loads(json.dumps(seen).replace(name, "NAME"))
        return renamed

    def assert_state(self, name: str, wanted: dict[str, Any]) -> None:
        """That a service and its children are, or are again in a moment, as they were: what is repaired shows in the
        status meanwhile, and whatever was changed in a child's generation for good."""
        with suppress(AssertionError):
            wait_for("the state", lambda: self.state(name) == wanted)
        assert self.state(name) == wanted

    def label(self, name: str, component: str = "") -> str:
        """Selector of what belongs to a service, or of one component of it."""
        of_component = f",serving.tandem.dev/component={component}" if component else ""
        return f"serving.tandem.dev/service={name}{of_component}"

    def server_pods(self, name: str) -> dict[str, int]:
        """UID to restarts of the server pods."""
        return {
            pod["metadata"]["uid"]: sum(c["restartCount"] for c in pod["status"].get("containerStatuses", []))
            for pod in self.items("pods", self.label(name, "server"))
        }

    def address(self, name: str) -> str:
        """host:port of the service's gRPC endpoint, as a pod of the cluster would use it."""
        service = self.get("service", f"{name}-triton")
        return f"{shown(service['spec']['clusterIP'])}:8001"

    def pods_made(self) -> Callable[[str], int]:
        """Begin to count: tells how many pods a controller has made in `default` since now."""
        log = self.cluster.audit_log
        start = log.stat().st_size

        def count(controller: str) -> int:
            time.sleep(1)  # an entry comes after the answer to its request
            with log.open("rb") as file:
                file.seek(max(0, start - 1))
                if start:
                    file.readline()  # the rest of an entry that was being written then
                entries = [json.loads(line) for line in file if line.endswith(b"\n")]
            return sum(made_pod(entry, controller) for entry in entries)

        return count


def essence(child: dict[str, Any]) -> dict[str, Any]:
    """A child as it was asked for, its generation included: more than 1 means that it was changed."""
    metadata, spec = child["metadata"], child.get("spec", {})
    unlike = {"uid", "resourceVersion", "creationTimestamp", "managedFields"}
    owners = [{key: value for key, value in owner.items() if key != "uid"} for owner in metadata["ownerReferences"]]
    kept = {key: value for key, value in metadata.items() if key not in unlike} | {"ownerReferences": owners}
    asked = {key: value for key, value in spec.items() if key not in ("clusterIP", "clusterIPs")}
    return {**child, "metadata": kept, "spec": asked, "status": None}


def made_pod(entry: dict[str, Any], controller: str) -> bool:
    """Whether an entry of the audit log is a pod that `controller` made in `default`."""
    pods = {"resource": "pods", "namespace": "default"}
    return (
        entry["verb"] == "create"
        and pods.items() <= entry.get("objectRef", {}).items()
        and "subresource" not in entry["objectRef"]
        and entry["user"]["username"] == f"system:serviceaccount:kube-system:{controller}"
        and entry.get("responseStatus", {}).get("code") == 201
    )


@pytest.fixture(scope="session")
def images() -> list[Built]:
    """The images as `make images` builds them."""
    made: list[Built] = load_demo().built_images()
    return made


def vllm_image() -> Built:
    """Where the image with vLLM is, or will be: only its test builds and loads it."""
    engine = engines.choose(cache.default().root)
    (image,) = inputs.select(["vllm-cpu"])
    return Plan(REPOSITORY, cache.default(), engine.local_base).image(image)


def profiles(images: list[Built]) -> list[dict[str, Any]]:
    """The reference profile with the image that was built, and one whose engines are decoupled as TensorRT-LLM's;
    and vLLM's."""
    reference = next(profile for profile in shipped_profiles() if profile["name"] == "reference")
    reference["image"] = next(image.ref for image in images if image.name == "reference")
    # A server that is deleted holds its share of the node until it has ended: the next one need not wait for that.
    reference["resources"]["requests"]["cpu"] = "100m"
    # Its Triton is older than collected calls need (25.04), where a sequence fails: none does in these tests.
    return [
        reference,
        reference | {"name": DECOUPLED, "tritonVersion": "", "engine": {"kind": "Tandem", "calls": "Collected"}},
        {"name": "vllm-cpu", "image": vllm_image().ref},
    ]


@contextmanager
def installed(name: str, images: list[Built], *, ipv6: bool = False) -> Iterator[Site]:
    """A cluster with Tandem, whose quickstart is Ready; one with addresses of IPv6 alone."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "alone")
    cluster = Cluster(f"{name}-{worker}", say=print, ipv6=ipv6)
    cluster.down()
    cluster.up(["real"])
    for image in images:
        cluster.import_image(image.archive)
    load_demo().install(cluster, images, profiles=profiles(images), **FAST)
    made = Site(cluster)
    # The real admission plugin holds the serving pods to the strictest standard.
    made.run("label", "namespace", "default", "pod-security.kubernetes.io/enforce=restricted")
    made.run("apply", "-f", str(QUICKSTART))
    made.wait_condition("quickstart", "Ready", "True")
    yield made
    cluster.down()


@pytest.fixture(scope="session")
def site(images: list[Built]) -> Iterator[Site]:
    with installed("tandem-e2e", images) as made:
        made.undisturbed = made.state("quickstart")
        yield made


@pytest.fixture
def client(site: Site) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(site.address("quickstart")) as made:
        yield made


@pytest.fixture
def another(site: Site) -> Iterator[str]:
    """The name, new to the cluster, of a service that the test may make; it is deleted afterwards."""
    name = f"another-{next(NUMBERS)}"
    yield name
    site.run("delete", "sis", name, "--ignore-not-found")
