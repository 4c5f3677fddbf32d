"""GPU arithmetic: which device runs which rank of which model, in how many processes. Pure.

A rank is one GPU's share of a model: a model has tensorParallelSize x pipelineParallelSize of them. The BLS mode
runs two models in one pod, TensorRT-LLM's way of starting them depends on their ranks:

- one rank a model, or an engine in Python, which starts its own ranks: one server process;
- several ranks of one model: leader mode, an MPI world with a server for each rank, whose rank 0 takes the requests;
- two models, one of them with several ranks: orchestrator mode, one server that spawns the ranks as workers;
- fast logits: orchestrator mode without spawning, an MPI world of 1 (the orchestrator) + the ranks of the draft +
  those of the target, each model given its ranks (`participant_ids`).

Source: TensorRT-LLM's triton_backend/scripts/launch_triton_server.py and the guide of the draft-target model.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tandem.api.roles import Role, drafts_by_heads
from tandem.api.types import ServiceSpec
from tandem.engines.gpu_products import least_memory_gib, slice_memory_gib
from tandem.engines.loop import loop_of


class Launch(StrEnum):
    """How the processes of a pod are started."""

    SINGLE = "Single"
    """One server process; the LLM API starts its own ranks."""
    LEADER = "Leader"
    """A process for each rank, in one MPI world: rank 0 leads."""
    ORCHESTRATOR = "Orchestrator"
    """Rank 0 serves and has no model's rank of its own."""


@dataclass(frozen=True)
class GpuPlan:
    """Devices and processes of one replica."""

    ranks: Mapping[Role, int] = field(default_factory=dict)
    """GPUs that each model is split over; a draft that the LLM API builds on the target's ranks has no entry."""
    devices: Mapping[Role, tuple[int, ...]] = field(default_factory=dict)
    """`gpu_device_ids` of each model: index within the pod, by rank. BLS only."""
    participants: Mapping[Role, tuple[int, ...]] = field(default_factory=dict)
    """`participant_ids` of each model: MPI ranks. Only where the orchestrator spawns no processes."""
    launch: Launch = Launch.SINGLE
    world_size: int = 1
    """Processes that MPI starts."""
    gpus: int = 0
    """GPUs of a replica."""
    nodes: int = 1
    """Pods, each on its own node, that a replica consists of."""
    resource: str | None = None
    """Extended resource of the GPUs; None: resource claims give them, or there are none."""

    @property
    def gpus_per_pod(self) -> int:
        """GPUs of each pod of the replica; the rules see to it that nothing remains."""
        return self.gpus // self.nodes

    @property
    def shares_gpu(self) -> bool:
        """Whether two engines share a GPU, so that each needs a budget for its KV cache."""
        used = [device for devices in self.devices.values() for device in devices]
        return len(used) > len(set(used))


def fast_logits(spec: ServiceSpec) -> bool:
    """Whether the draft's logits go from process to process rather than through Triton."""
    return spec.draft is not None and spec.speculation.acceptance.fast_logits


def is_mig(resource_name: str) -> bool:
    """Whether the resource is a slice of a GPU (NVIDIA device plugin's mixed strategy: nvidia.com/mig-3g.40gb)."""
    return resource_name.partition("/")[2].startswith("mig-")


def memory_gib(spec: ServiceSpec) -> float | None:
    """Memory of a GPU, or of its slice; None: not known."""
    gpu = spec.placement.gpu
    if gpu.memory_gib:
        return gpu.memory_gib
    if is_mig(gpu.resource_name):  # the product is the whole GPU's
        return slice_memory_gib(gpu.resource_name)
    return least_memory_gib(gpu.product)


def model_ranks(spec: ServiceSpec) -> dict[Role, int]:
    """GPUs that each model is split over, by role."""
    ranks = {Role.TARGET: spec.target.tensor_parallel_size * spec.target.pipeline_parallel_size}
    if spec.draft and loop_of(spec).drafts_apart and not drafts_by_heads(spec):
        ranks[Role.DRAFT] = spec.draft.tensor_parallel_size
    return ranks


def over_nodes(spec: ServiceSpec) -> GpuPlan:
    """The plan of an engine that runs target and draft on the same ranks, over as many nodes as they need. On one
    node it starts its ranks by itself."""
    ranks, gpu = model_ranks(spec), spec.placement.gpu
    total = sum(ranks.values())
    nodes = -(-total // gpu.per_node)
    launch, world = (Launch.LEADER, total) if nodes > 1 else (Launch.SINGLE, 1)
    return GpuPlan(ranks, launch=launch, world_size=world, gpus=total, nodes=nodes, resource=_resource(spec))


def on_devices(spec: ServiceSpec, *, by_mpi: bool) -> GpuPlan:
    """The plan of engines that have devices each. `by_mpi`: as TensorRT-LLM's backend starts ranks; else an engine
    starts its own."""
    ranks = model_ranks(spec)
    devices = _devices(spec, ranks)
    launch, world = _launch(spec, ranks) if by_mpi else (Launch.SINGLE, 1)
    return GpuPlan(
        ranks=ranks,
        devices=devices,
        participants=_participants(ranks) if fast_logits(spec) else {},
        launch=launch,
        world_size=world,
        gpus=len({device for of_model in devices.values() for device in of_model}),
        resource=_resource(spec),
    )


def _resource(spec: ServiceSpec) -> str | None:
    return None if spec.placement.resource_claims else spec.placement.gpu.resource_name


def _devices(spec: ServiceSpec, ranks: Mapping[Role, int]) -> dict[Role, tuple[int, ...]]:
    """The target from device 0 on; the draft on the first of these, or after them."""
    devices = {Role.TARGET: tuple(range(ranks[Role.TARGET]))}
    if Role.DRAFT in ranks:
        first = ranks[Role.TARGET] if spec.placement.strategy == "Separate" else 0
        devices[Role.DRAFT] = tuple(range(first, first + ranks[Role.DRAFT]))
    return devices


def _launch(spec: ServiceSpec, ranks: Mapping[Role, int]) -> tuple[Launch, int]:
    """Kind of launch, and how many processes MPI starts."""
    if fast_logits(spec):
        return Launch.ORCHESTRATOR, 1 + sum(ranks.values())
    if max(ranks.values()) == 1:
        return Launch.SINGLE, 1
    if len(ranks) == 1:
        return Launch.LEADER, ranks[Role.TARGET]
    return Launch.ORCHESTRATOR, 1  # the workers are spawned


def _participants(ranks: Mapping[Role, int]) -> dict[Role, tuple[int, ...]]:
    """Rank 0 is the orchestrator's, then the draft's, then the target's."""
    draft = ranks[Role.DRAFT]
    return {
        Role.DRAFT: tuple(range(1, 1 + draft)),
        Role.TARGET: tuple(range(1 + draft, 1 + draft + ranks[Role.TARGET])),
    }
