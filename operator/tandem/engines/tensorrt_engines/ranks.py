"""The processes of a BLS pod: one server, or mpirun and a server for each rank.

The argument lists are those that TensorRT-LLM's triton_backend/scripts/launch_triton_server.py makes, with
three differences: ranks are not bound to a core (the servers have many threads, and Python models beside them),
more ranks than the container's CPUs are no error, and no rank runs as root.
"""

from collections.abc import Sequence

from tandem.engines.gpus import GpuPlan, Launch

VARIABLES = ("TRTLLM_ORCHESTRATOR", "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES")
"""They turn TensorRT-LLM's backend into an orchestrator."""
MPIRUN = ("mpirun", "--bind-to", "none", "--oversubscribe")


def processes(plan: GpuPlan, server: Sequence[str], engines: Sequence[str]) -> list[str]:
    """The command that starts all processes of a pod; `server` starts one that loads every model.

    `engines` are the models that further ranks load. In leader mode a rank holds its part of the model there; with
    the orchestrator and fast logits its part of the model that it participates in. Either way it stays in loading
    until the service ends, so that the ports of all ranks are never opened by a second.
    """
    if plan.launch is Launch.SINGLE:
        return list(server)
    first = [*server, *(_without_pools(plan) if _spawns(plan) else ())]
    worker = [word for word in server if not word.startswith("--model-control-mode=")]
    worker += ["--model-control-mode=explicit", *(f"--load-model={name}" for name in engines)]
    further = [":", "-n", str(plan.world_size - 1), *worker] if plan.world_size > 1 else []
    return [*MPIRUN, "-n", "1", *first, *further]


def environment(plan: GpuPlan) -> dict[str, str]:
    """Variables that turn TensorRT-LLM's backend into an orchestrator."""
    if plan.launch is not Launch.ORCHESTRATOR:
        return {}
    return dict(zip(VARIABLES, ("1", "1" if _spawns(plan) else "0"), strict=True))


def _spawns(plan: GpuPlan) -> bool:
    """Whether the orchestrator starts the ranks of the models by itself."""
    return plan.launch is Launch.ORCHESTRATOR and not plan.participants


def _without_pools(plan: GpuPlan) -> list[str]:
    """The orchestrator computes nothing: Triton's own memory on the GPUs would be taken from the workers."""
    pools = [f"--cuda-memory-pool-byte-size={device}:0" for device in range(plan.gpus)]
    return ["--pinned-memory-pool-byte-size=0", "--enable-peer-access=false", *pools]
