"""The kinds that Tandem reads and writes, and their URLs."""

from dataclasses import dataclass

from tandem.api import API_VERSION, KIND, PLURAL
from tandem.autoscaling import SOURCES


@dataclass(frozen=True)
class Kind:
    """A kind of the API; one of the cluster's has no namespace in its paths."""

    api_version: str
    kind: str
    plural: str

    @property
    def group_version(self) -> tuple[str, str]:
        """API group (empty for core) and version."""
        group, _, version = self.api_version.rpartition("/")
        return group, version

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """URL path of an object, or of the collection; `namespace` None means all."""
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        parts = [root, *(("namespaces", namespace) if namespace else ()), self.plural, name, subresource]
        return "/".join(part for part in parts if part)


SERVICES_KIND = Kind(API_VERSION, KIND, PLURAL)
CONFIGMAP = Kind("v1", "ConfigMap", "configmaps")
POD = Kind("v1", "Pod", "pods")
SERVICE = Kind("v1", "Service", "services")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
JOB = Kind("batch/v1", "Job", "jobs")
CACHE_CLAIM = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
DISRUPTION_BUDGET = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
NETWORK_POLICY = Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
LEADER_WORKER_SET = Kind("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "leaderworkersets")
HTTP_ROUTE = Kind("gateway.networking.k8s.io/v1", "HTTPRoute", "httproutes")
INFERENCE_POOL = Kind("inference.networking.k8s.io/v1", "InferencePool", "inferencepools")
ROUTING = (HTTP_ROUTE, INFERENCE_POOL)
SECRET = Kind("v1", "Secret", "secrets")
API_SERVICE = Kind("apiregistration.k8s.io/v1", "APIService", "apiservices")
TOKEN_REVIEW = Kind("authentication.k8s.io/v1", "TokenReview", "tokenreviews")
SUBJECT_ACCESS_REVIEW = Kind("authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews")
ROLE = Kind("rbac.authorization.k8s.io/v1", "Role", "roles")
CLUSTER_ROLE = Kind("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
EVENT = Kind("v1", "Event", "events")

AUTOSCALERS = {Kind(each.api_version, each.kind, each.plural): each.install for each in SOURCES.values()}
"""Kinds of the objects that decide the replicas, one of them for a service; and what to do where it is missing."""
CHILDREN = (
    CONFIGMAP,
    SERVICE,
    SERVICE_ACCOUNT,
    DEPLOYMENT,
    JOB,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    *(kind for kind, install in AUTOSCALERS.items() if not install),
)
"""Kinds that Tandem applies."""
WATCHED = (SERVICES_KIND, *CHILDREN, POD)
"""Kinds whose events may ask for a reconcile."""
OPTIONAL = (LEADER_WORKER_SET, *ROUTING, *(kind for kind, install in AUTOSCALERS.items() if install))
"""Likewise, where their definition is installed: what asks for one says so when it is missing."""
BY_KIND = {kind.kind: kind for kind in (SERVICES_KIND, *CHILDREN, *OPTIONAL, POD, SECRET, CACHE_CLAIM, LEASE, EVENT)}
