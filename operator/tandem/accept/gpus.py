"""Do the models fit the GPUs that the placement gives? Every refusal says the numbers."""

from tandem.api.conditions import SpecReason
from tandem.api.roles import Role
from tandem.api.types import ServiceSpec
from tandem.engines import KINDS, Engine, loop_of, modes
from tandem.engines.gpu_products import SHARED, product
from tandem.engines.gpus import is_mig, model_ranks
from tandem.engines.rule import Refusal, Rule

SLICE = "-MIG-"
"""Part of the product label of nodes whose GPUs are all cut alike (the device plugin's MIG strategy `single`): their
slices have the resource name of whole GPUs. https://github.com/NVIDIA/k8s-device-plugin, gpu-feature-discovery."""


def _nodes(spec: ServiceSpec, engine: Engine) -> Refusal | None:
    plan, per_node = engine.gpu_plan(spec), spec.placement.gpu.per_node
    if engine.one_node and plan.gpus > per_node:
        return Refusal(
            SpecReason.GPUS_EXCEED_NODE,
            f"{engine.title} in mode {spec.runtime.mode} runs on one node: {_needs(spec)} needs {plan.gpus} GPUs, and"
            f" placement.gpu.perNode is {per_node}: lower tensorParallelSize, or raise perNode{_over_nodes(engine)}",
        )
    if plan.gpus % plan.nodes:
        return Refusal(
            SpecReason.GPUS_NOT_DIVISIBLE,
            f"{_needs(spec)} needs {plan.gpus} GPUs, which {plan.nodes} nodes of at most {per_node} cannot share"
            " equally: choose tensorParallelSize x pipelineParallelSize to be a multiple of the nodes",
        )
    return None


def _over_nodes(engine: Engine) -> str:
    """Another mode of the profile whose engine runs over several nodes, as advice; empty: none does."""
    kinds, profile = KINDS[engine.kind], engine.profile
    return next((f", or write runtime.mode: {mode}" for mode in modes(profile) if not kinds[mode].one_node), "")


def _shared_draft(spec: ServiceSpec, engine: Engine) -> Refusal | None:
    ranks = model_ranks(spec)
    draft, target = ranks.get(Role.DRAFT, 0), ranks[Role.TARGET]
    if not engine.profile.gpus or spec.placement.strategy == "Separate" or draft <= target:
        return None
    return Refusal(
        SpecReason.DRAFT_EXCEEDS_TARGET,
        f"with placement.strategy Shared the draft lives on the target's {target} GPUs, and"
        f" draft.tensorParallelSize is {draft}: lower it, or write placement.strategy: Separate",
    )


def _mig(spec: ServiceSpec, engine: Engine) -> Refusal | None:
    gpu = spec.placement.gpu
    sliced = next((name for name in gpu.product if SLICE in name), "")
    name = gpu.resource_name if is_mig(gpu.resource_name) else sliced
    if not engine.profile.gpus or spec.placement.resource_claims or not name:
        return None
    if sliced and name != sliced:
        return Refusal(
            SpecReason.MIG_PRODUCT_MISMATCH,
            f"placement.gpu.product {sliced} is on no node that offers {name}: where slices have resource names of"
            f" their own, nodes are labelled with the whole GPU: write {sliced.partition(SLICE)[0]}",
        )
    if max(model_ranks(spec).values()) > 1:
        return Refusal(
            SpecReason.MIG_NOT_PARALLEL,
            f"{_needs(spec)} is split over several devices, and {name} is a MIG slice, between which there is no"
            " peer-to-peer: write tensorParallelSize: 1 and pipelineParallelSize: 1, or take whole GPUs",
        )
    if spec.placement.strategy == "Separate":
        return Refusal(
            SpecReason.MIG_NOT_SEPARATE,
            f"placement.strategy Separate needs 2 devices, and a process can use one MIG slice alone ({name}):"
            " write placement.strategy: Shared, or take whole GPUs",
        )
    return None


def _shared(spec: ServiceSpec, engine: Engine) -> Refusal | None:
    """A pod that asks for two shared GPUs may get one GPU twice, or none, by the device plugin's configuration."""
    gpu, plan = spec.placement.gpu, engine.gpu_plan(spec)
    labels = [label for label in gpu.product if label.endswith(SHARED)]
    name = gpu.resource_name if gpu.resource_name.endswith(".shared") else next(iter(labels), "")
    if not name or plan.gpus < 2 or spec.placement.resource_claims:
        return None
    return Refusal(
        SpecReason.GPU_SHARED_NOT_PARALLEL,
        f"{_needs(spec)} needs {plan.gpus} GPUs, and {name} is a GPU that pods share (time-slicing, MPS), so that"
        " two may be one: write tensorParallelSize: 1, pipelineParallelSize: 1 and placement.strategy: Shared,"
        " or take whole GPUs",
    )


def _fast_logits(spec: ServiceSpec, engine: Engine) -> Refusal | None:
    if not spec.speculation.acceptance.fast_logits or engine.passes_logits or not loop_of(spec).drafts_apart:
        return None
    return Refusal(
        SpecReason.FAST_LOGITS_NOT_IN_PROFILE,
        f"acceptance.fastLogits is for TensorRT engines, which profile {engine.profile.name!r} does not run: remove"
        " fastLogits, or write another profile",
    )


def _kv_fractions(spec: ServiceSpec, engine: Engine) -> Refusal | None:
    if not engine.gpu_plan(spec).shares_gpu or spec.draft is None:
        return None
    caches = {"target": spec.target.kv_cache, "draft": spec.draft.kv_cache}
    for role, cache in caches.items():
        if cache and cache.free_gpu_memory_fraction is not None:
            return Refusal(
                SpecReason.KV_CACHE_FRACTION_ON_SHARED_GPU,
                f"{role}.kvCache.freeGpuMemoryFraction is {cache.free_gpu_memory_fraction:g} of what is free once the"
                " engine is loaded, and two engines share the GPU in no fixed order of loading:"
                f" write {role}.kvCache.maxTokens, or neither to have both computed",
            )
    return None


def _product(spec: ServiceSpec, engine: Engine) -> Refusal | None:
    for name in spec.placement.gpu.product if engine.profile.gpus else ():
        known = product(name)
        if known and known.compute_capability < engine.least_compute_capability:
            has, needs = (".".join(map(str, c)) for c in (known.compute_capability, engine.least_compute_capability))
            return Refusal(
                SpecReason.GPU_TOO_OLD,
                f"placement.gpu.product {name} has compute capability {has}, and {engine.title}"
                f" needs {needs} or newer: name a newer product",
            )
    return None


def _needs(spec: ServiceSpec) -> str:
    """The models with their sizes, e.g. `target (tensorParallelSize 4 x pipelineParallelSize 1) + draft (1)`."""
    target = spec.target
    text = (
        f"target (tensorParallelSize {target.tensor_parallel_size} x pipelineParallelSize"
        f" {target.pipeline_parallel_size})"
    )
    draft = model_ranks(spec).get(Role.DRAFT)
    if draft is None:
        return text
    return f"{text} and draft (tensorParallelSize {draft}, {spec.placement.strategy})"


RULES: tuple[Rule, ...] = (_nodes, _shared_draft, _mig, _shared, _fast_logits, _kv_fractions, _product)
