"""Where this process runs, and as what."""

import os
import socket
from pathlib import Path

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def identity() -> tuple[str, str]:
    """Namespace of the Lease and name of this process in it.

    A pod's name stays the same when its container restarts, and the old container is gone by then: so it may
    take up its own Lease at once.
    """
    pod = os.environ.get("POD_NAME")
    namespace = os.environ.get("POD_NAMESPACE") or (
        _NAMESPACE_FILE.read_text(encoding="utf-8").strip() if _NAMESPACE_FILE.exists() else "default"
    )
    return namespace, pod or f"{socket.gethostname()}-{os.getpid()}"
