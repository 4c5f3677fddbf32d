"""The launch plan: what the entry point assembles, checks, builds and starts, as one JSON file."""

import json
from collections.abc import Mapping
from dataclasses import asdict

from tandem.api import ports
from tandem.api.bounds import BLS_SEQUENCES
from tandem.render.v1.inputs import Inputs
from tandem.render.v1.openai import tokenizer_plan
from tandem.render.v1.stack import Stack, preflight_checks
from tandem.render.v1.volumes import MODELS

CONNECTION_AGE_SECONDS = 300
"""Age at which a gRPC connection is asked to be given up for a new one, which a Service may lead to another pod: else
the clients of today would never reach the replicas of tomorrow. Calls and streams that run on it end undisturbed,
which is why no grace is set.
https://grpc.io/docs/guides/keepalive/#keepalive-configuration-specification"""


def launch_plan(inputs: Inputs, stack: Stack) -> str:
    """The plan (launch.json) as explicit argument lists: nothing in it is ever read by a shell."""
    plan = {
        "models": {name: _model(stack, name) for name in stack.configs},
        "server": {"command": _command(inputs, stack)},
        "env": {**stack.env, **inputs.engine.environment(inputs.plan)},
        "drain": {"port": ports.METRICS, "seconds": inputs.spec.serving.request_timeout_seconds},
        "preflight": preflight_checks(inputs, stack),
    }
    optional = {"kv_cache": dict(stack.kv_cache), "builds": _builds(inputs), "group": _group(inputs)}
    optional["tokenizer"] = tokenizer_plan(inputs)
    return json.dumps({**plan, **{name: part for name, part in optional.items() if part}}, indent=1) + "\n"


def config_file(model: str) -> str:
    """Name of the revision's file with the configuration of `model`."""
    return f"{model}.config.pbtxt"


def _model(stack: Stack, name: str) -> dict[str, str]:
    source = stack.sources.get(name)
    return {"config": config_file(name), **({"source": source} if source else {})}


def _builds(inputs: Inputs) -> Mapping[str, object]:
    """Engines to build by role; see `tandem_serving.prepare.engine_build`."""
    wanted = inputs.engine.builds(inputs.spec, inputs.image, inputs.folders)
    return {role.value: asdict(build) for role, build in wanted.items()}


def _command(inputs: Inputs, stack: Stack) -> list[str]:
    """All processes: those of one pod, or of the pods of a group."""
    return inputs.engine.command(inputs.plan, _server_command(inputs), stack.engines, stack.env)


def _group(inputs: Inputs) -> dict[str, int]:
    """The pods of a replica, and the GPUs of each, where the leader starts the ranks by ssh; else empty."""
    plan = inputs.plan
    by_ssh = plan.nodes > 1 and inputs.engine.worker.by_ssh
    return {"hosts": plan.nodes, "slots": plan.gpus_per_pod} if by_ssh else {}


def _server_command(inputs: Inputs) -> list[str]:
    # The Python backend's pool holds a thread for each engine call until its first response, and for each
    # response sent: below twice the sequences, streaming stalls.
    threads = 2 * max(BLS_SEQUENCES, inputs.spec.serving.max_batch_size) + 32
    return [
        "tritonserver",
        f"--model-repository={MODELS}",
        "--model-control-mode=none",
        "--disable-auto-complete-config",
        # Engines load one after the other: while one is loading, what is free on its GPU cannot be known.
        *(["--model-load-thread-count=1"] if inputs.engine.loads_in_turn(inputs.spec) else []),
        f"--backend-config=python,thread-pool-size={threads}",
        *([f"--log-verbose={verbose}"] if (verbose := inputs.spec.serving.log_verbose) else []),
        f"--http-port={ports.HTTP}",
        f"--grpc-port={ports.GRPC}",
        f"--grpc-max-connection-age={CONNECTION_AGE_SECONDS * 1000}",
        f"--metrics-port={ports.METRICS}",
        f"--exit-timeout-secs={inputs.spec.serving.request_timeout_seconds}",
    ]
