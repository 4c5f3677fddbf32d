"""When a server counts as started, ready and alive, and how it stops."""

from typing import Any

from tandem.api.types import Rollout
from tandem.render.v1.inputs import Inputs

# A model of any size may load for an hour; downloads are not in this time.
STARTUP_PERIOD_SECONDS, STARTUP_FAILURES = 5, 720
DEADLINE_MARGIN_SECONDS = Rollout().progress_deadline_seconds - STARTUP_PERIOD_SECONDS * STARTUP_FAILURES
"""By which a server's start ends before the rollout's deadline, so that why it ended is known by then."""

ENDPOINTS_SECONDS = 5
"""Time in which the cluster's endpoints and proxies learn that a pod is going."""
STOP_SECONDS = 10
"""Time in which a server without requests ends."""


def probes(inputs: Inputs, probe: list[str]) -> dict[str, Any]:
    """Started: one generation went through all models (`probe`), within an hour or a longer deadline of the rollout.
    Ready: Triton says so. Alive: patient, since a busy server is no dead one."""
    seconds = inputs.spec.rollout.progress_deadline_seconds - DEADLINE_MARGIN_SECONDS
    return {
        "startupProbe": {
            "exec": {"command": probe},
            "periodSeconds": STARTUP_PERIOD_SECONDS,
            "failureThreshold": max(STARTUP_FAILURES, seconds // STARTUP_PERIOD_SECONDS),
            "timeoutSeconds": 60,
        },
        "readinessProbe": {
            "httpGet": {"path": "/v2/health/ready", "port": "http"},
            "periodSeconds": 5,
            "timeoutSeconds": 5,
            "failureThreshold": 3,
        },
        "livenessProbe": {
            "httpGet": {"path": "/v2/health/live", "port": "http"},
            "periodSeconds": 15,
            "timeoutSeconds": 15,
            "failureThreshold": 8,
        },
    }


def lifecycle() -> dict[str, Any]:
    """A pod that is deleted leaves the endpoints at once; the server hears of it when they have all been told."""
    return {"lifecycle": {"preStop": {"sleep": {"seconds": ENDPOINTS_SECONDS}}}}


def grace_seconds(inputs: Inputs) -> int:
    """Time between a pod's deletion and SIGKILL: the longest stream can finish."""
    return ENDPOINTS_SECONDS + inputs.spec.serving.request_timeout_seconds + STOP_SECONDS
