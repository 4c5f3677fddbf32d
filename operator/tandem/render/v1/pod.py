"""The pods of a revision: the server and the preflight. They depend on the spec alone."""

from typing import Any

from tandem import names
from tandem.render.inputs import Inputs
from tandem.render.v1.launch import GRPC_PORT, HTTP_PORT, METRICS_PORT, MODELS
from tandem.render.v1.stack import TANDEM
from tandem.security import CONTAINER_SECURITY, POD_SECURITY

REVISION_DIR = "/etc/tandem/revision"
ENTRYPOINT = ["python3", f"{TANDEM}/entrypoint.py"]

# A model of any size may load for an hour; downloads are not in this time.
STARTUP_PERIOD_SECONDS, STARTUP_FAILURES = 5, 720


def server_pod(inputs: Inputs) -> dict[str, Any]:
    """PodSpec of a Triton server."""
    return {
        **_pod(inputs),
        "terminationGracePeriodSeconds": inputs.spec.serving.request_timeout_seconds + 15,
        "containers": [
            {
                **_container(inputs, "serve", "--models", MODELS),
                "ports": [
                    {"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"},
                    {"name": "grpc", "containerPort": GRPC_PORT, "protocol": "TCP"},
                    {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
                ],
                **_probes(),
                # Endpoints are told before the server stops taking requests.
                "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
                "terminationMessagePolicy": "FallbackToLogsOnError",
            }
        ],
    }


def preflight_pod(inputs: Inputs) -> dict[str, Any]:
    """PodSpec of the preflight: the same images and files, no accelerator; ends by itself."""
    return {
        **_pod(inputs),
        "restartPolicy": "Never",
        "containers": [_container(inputs, "preflight")],
    }


def _pod(inputs: Inputs) -> dict[str, Any]:
    placement = inputs.spec.placement
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": POD_SECURITY,
        "initContainers": [
            {
                "name": "tandem",
                "image": inputs.serving_image,
                "command": ["cp", "-R", f"{TANDEM}/.", "/target/"],
                "securityContext": CONTAINER_SECURITY,
                "resources": {
                    "requests": {"cpu": "10m", "memory": "32Mi"},
                    "limits": {"memory": "128Mi"},
                },
                "volumeMounts": [{"name": "tandem", "mountPath": "/target"}],
            }
        ],
        "volumes": [
            {"name": "tandem", "emptyDir": {"sizeLimit": "64Mi"}},
            {"name": "models", "emptyDir": {"sizeLimit": "64Mi"}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        ],
    }
    if placement.node_selector:
        pod["nodeSelector"] = dict(placement.node_selector)
    if placement.tolerations:
        pod["tolerations"] = [
            toleration.model_dump(by_alias=True, exclude_none=True) for toleration in placement.tolerations
        ]
    return pod


def _container(inputs: Inputs, verb: str, *args: str) -> dict[str, Any]:
    return {
        "name": names.CONTAINER,
        "image": inputs.image,
        "command": [*ENTRYPOINT, verb, "--revision", REVISION_DIR, *args],
        "securityContext": CONTAINER_SECURITY,
        **({"resources": inputs.profile.resources} if inputs.profile.resources else {}),
        "volumeMounts": [
            {"name": "tandem", "mountPath": TANDEM, "readOnly": True},
            {"name": "revision", "mountPath": REVISION_DIR, "readOnly": True},
            {"name": "models", "mountPath": MODELS},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }


def _probes() -> dict[str, Any]:
    """Started: one generation went through all models. Ready: Triton says so. Alive: patient, since a busy
    server is no dead one."""
    return {
        "startupProbe": {
            "exec": {"command": [*ENTRYPOINT, "probe"]},
            "periodSeconds": STARTUP_PERIOD_SECONDS,
            "failureThreshold": STARTUP_FAILURES,
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
