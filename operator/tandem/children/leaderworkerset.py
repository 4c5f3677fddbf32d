"""LeaderWorkerSet: replicas that are groups of pods, each on a node of its own.

https://lws.sigs.k8s.io. It makes a headless Service of its own name, in which the pods of a group find each other,
and gives them LWS_LEADER_ADDRESS, LWS_GROUP_SIZE and LWS_WORKER_INDEX.
"""

from typing import Any

from tandem import names
from tandem.api.types import SpeculativeInferenceService
from tandem.children.metadata import metadata, pod_template
from tandem.render import Revision


def leader_worker_set(service: SpeculativeInferenceService, revision: Revision) -> dict[str, Any] | None:
    """`spec.replicas` groups of `revision`; None where a replica is one pod (a Deployment)."""
    if revision.worker is None:
        return None
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": metadata(service, names.server(service.name), names.SERVER),
        "spec": {
            "replicas": service.spec.replicas,
            # The leader waits for the workers: they must not wait for it.
            "startupPolicy": "LeaderCreated",
            "networkConfig": {"subdomainPolicy": "Shared"},
            "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdateConfiguration": _rolling_update(service)},
            "leaderWorkerTemplate": {
                "size": revision.nodes,
                # Ranks that lost one of them are lost.
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": pod_template(service, revision, revision.pod, names.SERVER),
                "workerTemplate": pod_template(service, revision, revision.worker, names.WORKER),
            },
        },
    }


def _rolling_update(service: SpeculativeInferenceService) -> dict[str, int]:
    """It knows no Recreate: to replace is to do without all groups at once, and 0 of both is refused."""
    if service.spec.rollout.strategy == "Replace":
        return {"maxSurge": 0, "maxUnavailable": max(1, service.spec.replicas)}
    return {"maxSurge": 1, "maxUnavailable": 0}
