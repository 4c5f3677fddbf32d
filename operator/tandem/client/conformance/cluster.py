"""The cluster as conformance reads it: by kubectl on a user's machine, in a pod by its service account."""

import asyncio
import contextlib
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from typing import Protocol

from tandem import names
from tandem.api import GROUP, PLURAL, ports
from tandem.api.wire import Object
from tandem.client import kubectl
from tandem.client.kubectl import ClusterError
from tandem.cluster.client import Api
from tandem.cluster.kinds import POD, SERVICES_KIND, Kind

NODE = Kind("v1", "Node", "nodes")
PAGE_SECONDS = 10
ENGINE_VERSION = (
    "from importlib.metadata import distributions;"
    "print(next((each.version for each in distributions(name='tensorrt_llm')), ''))"
)
IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


class Cluster(Protocol):
    """Reads one service and what is around it. What the user may not read raises TandemError."""

    async def service(self) -> Object:
        """The SpeculativeInferenceService."""

    async def pods(self, service: Object) -> list[Object]:
        """Its server pods."""

    async def node(self, name: str) -> Object:
        """A node."""

    async def page(self, pod: Object) -> str:
        """A pod's metrics."""

    async def engine_version(self, pod: Object) -> str:
        """Version of TensorRT-LLM in a pod's image; empty where it has none."""


def selector(service: Object) -> str:
    """Of its server pods."""
    return ",".join(f"{key}={value}" for key, value in names.selector(service["metadata"]["name"]).items())


class ByKubectl:
    """With the user's kubeconfig."""

    def __init__(self, name: str, namespace: str | None) -> None:
        self._name = name
        self._place = ["--namespace", namespace] if namespace else []

    async def service(self) -> Object:
        """See `Cluster`."""
        return await kubectl.get(f"{PLURAL}.{GROUP}", self._name, *self._place)

    async def pods(self, service: Object) -> list[Object]:
        """See `Cluster`."""
        place = ("--namespace", service["metadata"]["namespace"])
        return list((await kubectl.get("pods", *place, "--selector", selector(service)))["items"])

    async def node(self, name: str) -> Object:
        """See `Cluster`."""
        return await kubectl.get("node", name)

    async def page(self, pod: Object) -> str:
        """See `Cluster`; through the API server."""
        meta = pod["metadata"]
        path = f"{POD.path(meta['namespace'], meta['name'])}:{ports.METRICS}/proxy/metrics"
        return await kubectl.kubectl("get", "--raw", path, f"--request-timeout={PAGE_SECONDS}s")

    async def engine_version(self, pod: Object) -> str:
        """See `Cluster`; by a process in the pod."""
        meta = pod["metadata"]
        place = ("--namespace", meta["namespace"], meta["name"], "--container", names.CONTAINER)
        return (await kubectl.kubectl("exec", *place, "--", "python3", "-c", ENGINE_VERSION)).strip()


class InCluster:
    """With the pod's service account."""

    def __init__(self, api: Api, name: str, namespace: str) -> None:
        self._api, self._name, self._namespace = api, name, namespace

    async def service(self) -> Object:
        """See `Cluster`."""
        return await self._found(SERVICES_KIND, self._namespace, self._name)

    async def pods(self, service: Object) -> list[Object]:
        """See `Cluster`."""
        return await self._api.list_objects(POD, self._namespace, selector(service))

    async def node(self, name: str) -> Object:
        """See `Cluster`."""
        return await self._found(NODE, None, name)

    async def page(self, pod: Object) -> str:
        """See `Cluster`; from the pod itself."""
        address = pod.get("status", {}).get("podIP", "")
        host = f"[{address}]" if ":" in address else address
        return await asyncio.to_thread(_page, f"http://{host}:{ports.METRICS}/metrics")

    async def engine_version(self, pod: Object) -> str:
        """See `Cluster`; it takes the right to run processes in pods, which a Job is not given."""
        raise ClusterError("not read from within the cluster")

    async def _found(self, kind: Kind, namespace: str | None, name: str) -> Object:
        found = await self._api.get(kind, namespace, name)
        if found is None:
            raise ClusterError(f"there is no {kind.kind} {name} in namespace {namespace}: check the name")
        return found


def _page(url: str) -> str:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=PAGE_SECONDS) as answer:
            return str(answer.read().decode("utf-8", "replace"))
    except (urllib.error.URLError, OSError) as error:
        raise ClusterError(f"{url}: {error}") from error


def within() -> bool:
    """Whether this runs in a pod of the cluster, whose service account it is to use."""
    return IN_CLUSTER in os.environ and shutil.which("kubectl") is None and not kubectl.options()


@contextlib.asynccontextmanager
async def reach(name: str, namespace: str | None) -> AsyncIterator[Cluster]:
    """What reads the service `name`."""
    if not within():
        yield ByKubectl(name, namespace)
        return
    async with await Api.connect() as api:
        yield InCluster(api, name, namespace or own_namespace())


def own_namespace() -> str:
    """Namespace of the pod that this runs in. Raises ClusterError."""
    try:
        with open(NAMESPACE_FILE, encoding="utf-8") as file:  # noqa: PTH123
            return file.read().strip()
    except OSError as error:
        raise ClusterError(f"the pod has no service account ({error}): give --namespace") from error
