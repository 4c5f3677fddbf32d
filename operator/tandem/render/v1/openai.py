"""The OpenAI endpoint: a container of the server pods, in the serving image, before Triton's gRPC port."""

from collections.abc import Mapping
from typing import Any

from tandem import names
from tandem.api import ports
from tandem.api.folders import tokenizer_folder
from tandem.api.roles import Role
from tandem.api.types import Thinking
from tandem.render.v1.inputs import Inputs
from tandem.render.v1.probes import lifecycle
from tandem.render.v1.security import CONTAINER_SECURITY
from tandem.render.v1.stack import to_json
from tandem.render.v1.volumes import TANDEM, TOKENIZER

NAME = "openai"
"""Of the container, and of its port."""
KEYS, TLS = "/etc/tandem/api-keys", "/etc/tandem/tls"
RESOURCES: Mapping[str, Any] = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
MIB = 1 << 20


def _env(name: str, field: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": field}}}


POD_IP = _env("TANDEM_POD_IP", "status.podIP")
"""By which the programs of a pod know the family of addresses to listen at; see `tandem_serving.addresses`."""
SERVICE = _env("TANDEM_SERVICE", f"metadata.labels['{names.LABEL_SERVICE}']")


def has_endpoint(inputs: Inputs) -> bool:
    """Whether the servers have it."""
    return inputs.spec.serving.open_ai.enabled


def tokenizer_plan(inputs: Inputs) -> dict[str, str]:
    """Part of the launch plan: from where to where the entry point copies the tokenizer; see
    `tandem_serving.boot.launch`. The models may be in the server's image alone."""
    return {"from": tokenizer_folder(Role.TARGET, inputs.folders), "to": TOKENIZER} if has_endpoint(inputs) else {}


def with_endpoint(inputs: Inputs, pod: dict[str, Any]) -> dict[str, Any]:
    """The server's `pod` with the endpoint next to Triton."""
    if not has_endpoint(inputs):
        return pod
    triton, *others = pod["containers"]
    tokenizer = {"name": "tokenizer", "mountPath": TOKENIZER}
    return {
        **pod,
        "containers": [
            {**triton, "volumeMounts": [*triton["volumeMounts"], tokenizer]},
            *others,
            _container(inputs, [{**tokenizer, "readOnly": True}, *_secret_mounts(inputs)]),
        ],
        "volumes": [*pod["volumes"], {"name": "tokenizer", "emptyDir": {"sizeLimit": "128Mi"}}, *_secrets(inputs)],
    }


def _container(inputs: Inputs, mounts: list[dict[str, Any]]) -> dict[str, Any]:
    openai = inputs.spec.serving.open_ai
    # It answers: whether Triton takes requests is its own container's readiness.
    alive = {"httpGet": {"path": "/live", "port": NAME, **({"scheme": "HTTPS"} if openai.tls_secret else {})}}
    return {
        "name": NAME,
        "image": inputs.serving_image,
        "command": ["/opt/venv/bin/python3", f"{TANDEM}/entrypoint.py", "openai", *_arguments(inputs)],
        "env": [POD_IP, SERVICE],
        "ports": [{"name": NAME, "containerPort": ports.OPENAI, "protocol": "TCP"}],
        "resources": openai.resources or dict(RESOURCES),
        "readinessProbe": {**alive, "periodSeconds": 5, "timeoutSeconds": 5},
        "livenessProbe": {**alive, "periodSeconds": 15, "timeoutSeconds": 15, "failureThreshold": 8},
        **lifecycle(),
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _arguments(inputs: Inputs) -> list[str]:
    openai = inputs.spec.serving.open_ai
    dropped = inputs.engine.refused_parameters(inputs.spec, inputs.folders)
    return [
        f"--mode={inputs.spec.runtime.mode.value}",
        f"--name={openai.served_model_name or '$(TANDEM_SERVICE)'}",
        f"--port={ports.OPENAI}",
        f"--triton-port={ports.GRPC}",
        f"--tokenizer={TOKENIZER}",
        f"--max-body={openai.max_body_mib * MIB}",
        f"--grace={inputs.spec.serving.request_timeout_seconds}",
        *([f"--refused={to_json(dropped)}"] if dropped else []),
        *([f"--tool-calls={openai.tool_calls}"] if openai.tool_calls else []),
        *_thinking(openai.thinking),
        *([f"--keys={KEYS}"] if openai.api_key_secret else []),
        *([f"--tls={TLS}"] if openai.tls_secret else []),
    ]


def _thinking(markers: Thinking | None) -> list[str]:
    return [f"--thinking-begin={markers.begin}", f"--thinking-end={markers.end}"] if markers else []


def _secrets(inputs: Inputs) -> list[dict[str, Any]]:
    openai = inputs.spec.serving.open_ai
    named = {"api-keys": openai.api_key_secret, "tls": openai.tls_secret}
    return [
        {"name": volume, "secret": {"secretName": name, "defaultMode": 0o440}}
        for volume, name in named.items()
        if name
    ]


def _secret_mounts(inputs: Inputs) -> list[dict[str, Any]]:
    paths = {"api-keys": KEYS, "tls": TLS}
    volumes = [volume["name"] for volume in _secrets(inputs)]
    return [{"name": volume, "mountPath": paths[volume], "readOnly": True} for volume in volumes]
