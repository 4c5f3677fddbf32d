"""What every pod of ours has: servers, and Jobs that fill, check and clear the cache. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from tandem.api.types import UserIds
from tandem.render.v1.security import pod_security


def every_pod(
    user_ids: UserIds, scheduling: Mapping[str, Any], pull_secrets: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Fields of the PodSpec. `scheduling`: of `placement`, where the pods belong to a service."""
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(user_ids),
        **scheduling,
        **({"imagePullSecrets": list(pull_secrets)} if pull_secrets else {}),
    }
