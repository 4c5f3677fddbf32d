"""What every pod of ours is allowed: Pod Security `restricted`, whatever the namespace enforces.

https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
"""

from typing import Any

USER = 1000

POD_SECURITY: dict[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "runAsGroup": USER,
    "fsGroup": USER,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
