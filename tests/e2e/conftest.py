"""A one-node Kubernetes of the tests' own, with Tandem installed as users install it and a service Ready."""

import importlib.util
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tritonclient.grpc as triton

from cluster.core import Cluster

REPOSITORY = Path(__file__).parents[2]


def load_demo() -> ModuleType:
    """examples/demo.py: its steps are the tests' setup, so that what is shown is what is tested."""
    spec = importlib.util.spec_from_file_location("demo", REPOSITORY / "examples/demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wait_for(what: str, check: Callable[[], Any], seconds: float = 60) -> Any:
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

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl.run(*arguments, stdin=stdin)

    def items(self, *arguments: str) -> list[dict[str, Any]]:
        return list(json.loads(self.run("get", *arguments, "-o", "json"))["items"])

    def conditions(self, name: str) -> dict[str, dict[str, Any]]:
        """Conditions of the current generation by type; empty when there are none yet."""
        service = json.loads(self.run("get", "sis", name, "-o", "json"))
        status = service.get("status", {})
        if status.get("observedGeneration") != service["metadata"]["generation"]:
            return {}
        return {c["type"]: c for c in status["conditions"]}

    def wait_condition(self, name: str, kind: str, status: str, seconds: float = 120) -> dict[str, Any]:
        def check() -> dict[str, Any] | None:
            found = self.conditions(name).get(kind)
            return found if found and found["status"] == status else None

        found: dict[str, Any] = wait_for(f"{name}: {kind}={status}", check, seconds)
        return found

    def server_pods(self, name: str) -> dict[str, int]:
        """UID to restarts of the server pods."""
        selector = f"serving.tandem.dev/service={name},serving.tandem.dev/component=server"
        return {
            pod["metadata"]["uid"]: sum(c["restartCount"] for c in pod["status"].get("containerStatuses", []))
            for pod in self.items("pods", "-l", selector)
        }

    def address(self, name: str) -> str:
        """host:port of the service's gRPC endpoint, as a pod of the cluster would use it."""
        service = json.loads(self.run("get", "service", f"{name}-triton", "-o", "json"))
        return f"{service['spec']['clusterIP']}:8001"


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    demo = load_demo()
    cluster = Cluster("tandem-e2e", say=print)
    cluster.down()
    images = demo.built_images()
    cluster.up(["real"])
    for image in images:
        cluster.import_image(image.archive)
    demo.install(cluster, images)
    made = Site(cluster)
    # The real admission plugin holds the serving pods to the strictest standard.
    made.run("label", "namespace", "default", "pod-security.kubernetes.io/enforce=restricted")
    made.run("apply", "-f", str(REPOSITORY / "examples/quickstart.yaml"))
    made.wait_condition("quickstart", "Ready", "True", 240)
    yield made
    cluster.down()


@pytest.fixture
def client(site: Site) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(site.address("quickstart")) as made:
        yield made
