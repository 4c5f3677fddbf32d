"""The launch plan: what the entry point assembles, checks and starts, as one JSON file."""

import json
from dataclasses import dataclass
from typing import Any

from tandem.render.inputs import Inputs
from tandem.render.v1.models import CODELESS, ENGINES, model_names
from tandem.sources import Role

MODELS = "/models"
TANDEM = "/opt/tandem"
HTTP_PORT, GRPC_PORT, METRICS_PORT = 8000, 8001, 8002
BLS_SEQUENCES = 64  # what one instance of speculative_bls runs at once


@dataclass(frozen=True)
class LaunchPlan:
    """`text` is launch.json; `preflight` the part of it that the preflight checks."""

    text: str
    preflight: dict[str, Any]


def launch_plan(inputs: Inputs) -> LaunchPlan:
    """The plan as explicit argument lists: nothing in it is ever read by a shell."""
    preflight = _preflight(inputs)
    plan = {
        "models": {name: _model(inputs, name) for name in model_names(inputs)},
        "server": {"command": _server_command(inputs)},
        "env": {**inputs.profile.engine_env},
        "preflight": preflight,
    }
    return LaunchPlan(text=json.dumps(plan, indent=1) + "\n", preflight=preflight)


def _model(inputs: Inputs, name: str) -> dict[str, str]:
    if name in CODELESS:
        return {"config": f"{name}.config.pbtxt"}
    source = inputs.profile.engine_source if name in ENGINES else f"{TANDEM}/models/{name}"
    return {"config": f"{name}.config.pbtxt", "source": source}


def _server_command(inputs: Inputs) -> list[str]:
    # The Python backend's pool holds a thread for each engine call until its first response, and for each
    # response sent: below twice the sequences, streaming stalls.
    threads = 2 * max(BLS_SEQUENCES, inputs.spec.serving.max_batch_size) + 32
    return [
        "tritonserver",
        f"--model-repository={MODELS}",
        "--model-control-mode=none",
        "--disable-auto-complete-config",
        f"--backend-config=python,thread-pool-size={threads}",
        f"--http-port={HTTP_PORT}",
        f"--grpc-port={GRPC_PORT}",
        f"--metrics-port={METRICS_PORT}",
        f"--exit-timeout-secs={inputs.spec.serving.request_timeout_seconds}",
    ]


def _preflight(inputs: Inputs) -> dict[str, Any]:
    spec = inputs.spec
    checks: dict[str, Any] = {"target": {"path": inputs.folders[Role.TARGET]}}
    if spec.draft:
        checks["draft"] = {"path": inputs.folders[Role.DRAFT]}
        checks["max_draft_len"] = spec.speculation.max_draft_len
    return checks
