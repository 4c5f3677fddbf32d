"""What every pod of ours is allowed: Pod Security `restricted`, whatever the namespace enforces.

https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
"""

from typing import Any

from tandem.api.types import UserIds

USER = 1000

CONTAINER_SECURITY: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def pod_security(user_ids: UserIds) -> dict[str, Any]:
    """securityContext of a pod. Platform names no users: OpenShift's restricted-v2 refuses those that are not of the
    namespace's range, and fills them in."""
    ids = {"runAsUser": USER, "runAsGroup": USER, "fsGroup": USER} if user_ids == "Fixed" else {}
    return {
        "runAsNonRoot": True,
        **ids,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
