"""Names and labels of a service's children.

Names are deterministic, so that doing a thing twice does it once. User labels never enter a selector.
"""

from typing import Any

from tandem.api import GROUP
from tandem.digest import digest

FIELD_MANAGER = "tandem"
CONTAINER = "triton"
"""Name of the main container, in server and preflight alike."""

LABEL_SERVICE = f"{GROUP}/service"
LABEL_COMPONENT = f"{GROUP}/component"
LABEL_REVISION = f"{GROUP}/revision"
LABEL_POD = f"{GROUP}/pod"
"""On a Job: digest of its pod's specification. The API server fills in and rewrites what it is given."""
LABEL_CLAIM = f"{GROUP}/claim"
"""On a task's Job and result: UID of the cache volume's claim that it worked in."""
LABEL_REFILL = f"{GROUP}/refill"
"""On a task's Job and result, "true": pods reported that what an earlier one put into the volume is gone."""
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"

SERVER = "server"
WORKER = "worker"
REVISION = "revision"
FETCH = "fetch"
BUILD = "build"
PREFLIGHT = "preflight"
BENCHMARK = "benchmark"
"""Values of `LABEL_COMPONENT`; FETCH, BUILD and PREFLIGHT are kinds of tasks. A group's leader is its server."""
TASKS = (FETCH, BUILD, PREFLIGHT)
PRUNE = "prune"
CONTAINERS = (CONTAINER, FETCH, PRUNE)
"""Names of the containers that do a pod's work, one a pod; a download's is named as its component."""

CACHE_CLAIM = "tandem-cache"
"""PersistentVolumeClaim that is made where a service names none."""


def result(component: str) -> str:
    """Value of `LABEL_COMPONENT` of a task's result."""
    return f"{component}-result"


def server(service: str) -> str:
    """Deployment and ServiceAccount of the Triton pods (a LeaderWorkerSet makes a Service of this name)."""
    return f"{service}-server"


def endpoint(service: str) -> str:
    """Service in front of the Triton pods."""
    return f"{service}-triton"


def openai(service: str) -> str:
    """HTTPRoute and InferencePool of the OpenAI endpoint."""
    return f"{service}-openai"


def revision(service: str, digest: str) -> str:
    """ConfigMap of a rendered revision."""
    return f"{service}-{digest}"


def task(service: str, component: str, digest: str) -> str:
    """Job that does a task, and ConfigMap of its result."""
    return f"{service}-{component}-{digest}"


def benchmark(service: str) -> str:
    """ConfigMap of what `tandem bench --record` measured."""
    return f"{service}-benchmark"


def selector(service: str, component: str = SERVER) -> dict[str, str]:
    """Labels that select the server pods of a service, leaders where replicas are groups; immutable in a
    Deployment."""
    return {LABEL_SERVICE: service, LABEL_COMPONENT: component}


def labels(service: str, component: str) -> dict[str, str]:
    """Labels of a child."""
    return {
        "app.kubernetes.io/name": "tandem",
        "app.kubernetes.io/instance": service,
        "app.kubernetes.io/component": component,
        LABEL_MANAGED_BY: FIELD_MANAGER,
        LABEL_SERVICE: service,
        LABEL_COMPONENT: component,
    }


def replica_selector(service: str) -> dict[str, Any]:
    """LabelSelector of all pods that serve: leaders and workers, or plain servers."""
    components = {"key": LABEL_COMPONENT, "operator": "In", "values": [SERVER, WORKER]}
    return {"matchLabels": {LABEL_SERVICE: service}, "matchExpressions": [components]}


def ssh(service: str, uid: str) -> str:
    """Secret with the key pair of the groups of the service of that UID; empty: of a manifest that was never applied.

    Secrets are made and never read, so that the operator cannot look whose one is. By the UID it is no other's, nor
    that of an earlier service of the same name.
    """
    return f"{service}-ssh-{digest(uid)}" if uid else f"{service}-ssh"


def watch_selector() -> str:
    """Label selector of everything that Tandem makes."""
    return f"{LABEL_MANAGED_BY}={FIELD_MANAGER},{LABEL_SERVICE}"
