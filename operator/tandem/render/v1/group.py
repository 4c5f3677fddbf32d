"""Groups of pods: the LLM API's ranks over several nodes, started by the leader's mpirun.

As TensorRT-LLM's examples/llm-api/llm_mgmn_*.sh do with srun: one `trtllm-llmapi-launch` a rank, of which the first
starts the server. https://docs.open-mpi.org/en/v4.1.x for mpirun; Open MPI 4 is in the images up to 26.07.
"""

from collections.abc import Iterable, Sequence

from tandem.render.v1.gpus import gpu_plan
from tandem.render.v1.inputs import Inputs

HOSTFILE = "/tmp/tandem-group/hostfile"
"""Written by the leader's entry point (`tandem_serving.boot.mpi`), which knows its workers."""


def group(inputs: Inputs) -> dict[str, int]:
    """Part `group` of the launch plan; empty where a replica is one pod."""
    plan = gpu_plan(inputs.spec, inputs.profile)
    return {"hosts": plan.nodes, "slots": plan.gpus_per_pod} if plan.nodes > 1 else {}


def over_the_group(inputs: Inputs, server: Sequence[str], variables: Iterable[str]) -> list[str]:
    """The command that starts all ranks; `server` starts the first rank's.

    `variables`: names in the plan's environment, which the ranks of other pods do not have by themselves.
    """
    plan = gpu_plan(inputs.spec, inputs.profile)
    exports = [word for name in sorted(variables) for word in ("-x", name)]
    return [
        *("mpirun", "--hostfile", HOSTFILE, "-n", str(plan.world_size), "--map-by", f"ppr:{plan.gpus_per_pod}:node"),
        # The servers have many threads, and Python models beside them.
        *("--bind-to", "none", *exports),
        # A pod of a group has a name with its domain alone, which Open MPI would cut off.
        *("--mca", "orte_keep_fqdn_hostnames", "1"),
        "trtllm-llmapi-launch",
        *server,
    ]
