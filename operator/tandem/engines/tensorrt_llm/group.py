"""Groups of pods: the LLM API's ranks over several nodes, started by the leader's mpirun.

As TensorRT-LLM's examples/llm-api/llm_mgmn_*.sh do with srun: one `trtllm-llmapi-launch` a rank, of which the first
starts the server. https://docs.open-mpi.org/en/v4.1.x for mpirun; Open MPI 4 is in the images up to 26.07.
"""

from collections.abc import Iterable, Sequence

from tandem.engines.gpus import GpuPlan

HOSTFILE = "/tmp/tandem-group/hostfile"
"""Written by the leader's entry point (`tandem_serving.boot.mpi`), which knows its workers."""


def over_the_group(plan: GpuPlan, server: Sequence[str], variables: Iterable[str]) -> list[str]:
    """The command that starts all ranks; `server` starts the first rank's.

    `variables`: names in the plan's environment, which the ranks of other pods do not have by themselves.
    """
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
