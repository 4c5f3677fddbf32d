"""GPU arithmetic: devices, ranks and processes by resource, and placements that cannot be, with their numbers."""

from typing import Any

import pytest

from support.gpu_services import ALONE, CPU, FAST, PAIR, PROFILE, sizes
from support.services import parse
from tandem.accept import gpus as rules
from tandem.api.profile import Profile
from tandem.api.roles import Role
from tandem.api.types import ServiceSpec
from tandem.engines import engine_of
from tandem.engines.gpu_products import least_memory_gib
from tandem.engines.gpus import GpuPlan, Launch
from tandem.engines.rule import Refusal
from tandem.render.v1.inputs import Inputs
from tandem.render.v1.stack import Stack, preflight_checks

T, D = Role.TARGET, Role.DRAFT
SEPARATE: dict[str, Any] = {"placement__strategy": "Separate"}
GPU = "nvidia.com/gpu"


def plan(**wanted: Any) -> GpuPlan:
    return GpuPlan(**{"resource": GPU, **wanted})


PLANS: list[tuple[str, dict[str, Any], GpuPlan]] = [
    (
        "two small models share a GPU and a process",
        {},
        plan(ranks={T: 1, D: 1}, devices={T: (0,), D: (0,)}, gpus=1),
    ),
    (
        "apart, they still share the process",
        SEPARATE,
        plan(ranks={T: 1, D: 1}, devices={T: (0,), D: (1,)}, gpus=2),
    ),
    (
        "the guides' TP 4 + 1 on four GPUs: two models with ranks need the orchestrator, which spawns them",
        sizes(4),
        plan(ranks={T: 4, D: 1}, devices={T: (0, 1, 2, 3), D: (0,)}, launch=Launch.ORCHESTRATOR, gpus=4),
    ),
    (
        "TP 4 + 1 apart with fast logits: rank 0 is the orchestrator's, then draft, then target",
        {**sizes(4), **SEPARATE, **FAST},
        plan(
            ranks={T: 4, D: 1},
            devices={T: (0, 1, 2, 3), D: (4,)},
            participants={D: (1,), T: (2, 3, 4, 5)},
            launch=Launch.ORCHESTRATOR,
            world_size=6,
            gpus=5,
        ),
    ),
    (
        "fast logits of 1 + 1 on one GPU: three processes (the guide's --world_size=3)",
        FAST,
        plan(
            ranks={T: 1, D: 1},
            devices={T: (0,), D: (0,)},
            participants={D: (1,), T: (2,)},
            launch=Launch.ORCHESTRATOR,
            world_size=3,
            gpus=1,
        ),
    ),
    (
        "TP 2 + 2 apart: world size 5 with fast logits",
        {**sizes(2, 2), **SEPARATE, **FAST},
        plan(
            ranks={T: 2, D: 2},
            devices={T: (0, 1), D: (2, 3)},
            participants={D: (1, 2), T: (3, 4)},
            launch=Launch.ORCHESTRATOR,
            world_size=5,
            gpus=4,
        ),
    ),
    ("the target alone on one GPU", ALONE, plan(ranks={T: 1}, devices={T: (0,)}, gpus=1)),
    (
        "one model of TP 2 x PP 2 leads four ranks",
        {**ALONE, "target__tensorParallelSize": 2, "target__pipelineParallelSize": 2},
        plan(ranks={T: 4}, devices={T: (0, 1, 2, 3)}, launch=Launch.LEADER, world_size=4, gpus=4),
    ),
    (
        "a MIG slice is asked for by its name",
        {"placement__gpu": {"resourceName": "nvidia.com/mig-3g.40gb"}},
        plan(ranks={T: 1, D: 1}, devices={T: (0,), D: (0,)}, gpus=1, resource="nvidia.com/mig-3g.40gb"),
    ),
    (
        "resource claims give the GPUs: no extended resource beside them",
        {"placement__resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "one"}]},
        plan(ranks={T: 1, D: 1}, devices={T: (0,), D: (0,)}, gpus=1, resource=None),
    ),
    (
        "the LLM API builds the draft on the target's ranks, and starts them",
        {"runtime__mode": "LLMAPI", "target__tensorParallelSize": 4},
        plan(ranks={T: 4}, gpus=4),
    ),
    (
        "over two nodes MPI starts the LLM API's ranks",
        {"runtime__mode": "LLMAPI", "target__tensorParallelSize": 8, "target__pipelineParallelSize": 2},
        plan(ranks={T: 16}, launch=Launch.LEADER, world_size=16, gpus=16, nodes=2),
    ),
]


def plan_of(spec: ServiceSpec, profile: Profile) -> GpuPlan:
    return engine_of(spec, profile).gpu_plan(spec)


def broken(spec: ServiceSpec, profile: Profile) -> list[Refusal]:
    """The rules that it breaks."""
    engine = engine_of(spec, profile)
    return [refusal for rule in (*engine.rules, *rules.RULES) if (refusal := rule(spec, engine))]


@pytest.mark.parametrize(("changes", "expected"), [row[1:] for row in PLANS], ids=[row[0] for row in PLANS])
def test_plan(changes: dict[str, Any], expected: GpuPlan) -> None:
    assert plan_of(parse(PAIR, **changes).spec, PROFILE) == expected


def test_a_profile_without_gpus_has_none() -> None:
    assert plan_of(parse(PAIR).spec, CPU) == GpuPlan()


def test_gpus_of_each_pod_of_a_group() -> None:
    changes = {"runtime__mode": "LLMAPI", "target__tensorParallelSize": 12}
    assert plan_of(parse(PAIR, **changes).spec, PROFILE).gpus_per_pod == 6


@pytest.mark.parametrize(
    ("changes", "shared", "reason"),
    [
        ({}, True, "both on GPU 0"),
        (sizes(4), True, "the draft is on one of the target's"),
        (SEPARATE, False, "each has its own"),
        (ALONE, False, "one engine has the GPU to itself"),
        ({"runtime__mode": "LLMAPI"}, False, "the LLM API divides the memory itself"),
    ],
)
def test_engines_that_share_a_gpu(changes: dict[str, Any], shared: bool, reason: str) -> None:
    assert plan_of(parse(PAIR, **changes).spec, PROFILE).shares_gpu is shared, reason


MIG = {"placement__gpu": {"resourceName": "nvidia.com/mig-3g.40gb"}}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (
        "GpusExceedNode",
        {**sizes(8), **SEPARATE},
        "TensorRT-LLM 1.2 in mode BLS runs on one node: target (tensorParallelSize 8 x pipelineParallelSize 1) and"
        " draft"
        " (tensorParallelSize 1, Separate) needs 9 GPUs, and placement.gpu.perNode is 8: lower tensorParallelSize,"
        " or raise perNode, or write runtime.mode: LLMAPI",
    ),
    (
        "GpusExceedNode",
        {**ALONE, "target__tensorParallelSize": 2, "placement__gpu": {"perNode": 1}},
        "TensorRT-LLM 1.2 in mode BLS runs on one node: target (tensorParallelSize 2 x pipelineParallelSize 1)"
        " needs 2 GPUs, and"
        " placement.gpu.perNode is 1: lower tensorParallelSize, or raise perNode, or write runtime.mode: LLMAPI",
    ),
    (
        "GpusNotDivisible",
        {"runtime__mode": "LLMAPI", "target__tensorParallelSize": 9},
        "target (tensorParallelSize 9 x pipelineParallelSize 1) needs 9 GPUs, which 2 nodes of at most 8 cannot"
        " share equally: choose tensorParallelSize x pipelineParallelSize to be a multiple of the nodes",
    ),
    (
        "DraftExceedsTarget",
        sizes(2, 4),
        "with placement.strategy Shared the draft lives on the target's 2 GPUs, and draft.tensorParallelSize is 4:"
        " lower it, or write placement.strategy: Separate",
    ),
    (
        "MigNotParallel",
        {**ALONE, **MIG, "target__tensorParallelSize": 2},
        "target (tensorParallelSize 2 x pipelineParallelSize 1) is split over several devices, and"
        " nvidia.com/mig-3g.40gb is a MIG slice, between which there is no peer-to-peer: write tensorParallelSize: 1"
        " and pipelineParallelSize: 1, or take whole GPUs",
    ),
    (
        "MigNotParallel",
        {
            **ALONE,
            "placement__gpu": {"product": ["NVIDIA-H100-80GB-HBM3-MIG-3g.40gb"]},
            "target__tensorParallelSize": 2,
        },
        "target (tensorParallelSize 2 x pipelineParallelSize 1) is split over several devices, and"
        " NVIDIA-H100-80GB-HBM3-MIG-3g.40gb is a MIG slice, between which there is no peer-to-peer: write"
        " tensorParallelSize: 1 and pipelineParallelSize: 1, or take whole GPUs",
    ),
    (
        "MigProductMismatch",
        {"placement__gpu": {**MIG["placement__gpu"], "product": ["NVIDIA-H100-80GB-HBM3-MIG-3g.40gb"]}},
        "placement.gpu.product NVIDIA-H100-80GB-HBM3-MIG-3g.40gb is on no node that offers nvidia.com/mig-3g.40gb:"
        " where slices have resource names of their own, nodes are labelled with the whole GPU: write"
        " NVIDIA-H100-80GB-HBM3",
    ),
    (
        "MigNotSeparate",
        {**MIG, **SEPARATE},
        "placement.strategy Separate needs 2 devices, and a process can use one MIG slice alone"
        " (nvidia.com/mig-3g.40gb): write placement.strategy: Shared, or take whole GPUs",
    ),
    (
        "KvCacheFractionOnSharedGpu",
        {"draft__kvCache": {"freeGpuMemoryFraction": 0.3}},
        "draft.kvCache.freeGpuMemoryFraction is 0.3 of what is free once the engine is loaded, and two engines share"
        " the GPU in no fixed order of loading: write draft.kvCache.maxTokens, or neither to have both computed",
    ),
    (
        "GpuTooOld",
        {"placement__gpu": {"product": ["NVIDIA-L4", "Tesla-T4"]}},
        "placement.gpu.product Tesla-T4 has compute capability 7.5, and TensorRT-LLM 1.2 needs 8.0"
        " or newer: name a newer product",
    ),
    (
        "GpuTooOld",
        {"placement__gpu": {"product": ["Tesla-T4-SHARED"]}},
        "placement.gpu.product Tesla-T4-SHARED has compute capability 7.5, and TensorRT-LLM 1.2"
        " needs 8.0 or newer: name a newer product",
    ),
    (
        "GpuSharedNotParallel",
        {**ALONE, "placement__gpu": {"product": ["NVIDIA-L4-SHARED"]}, "target__tensorParallelSize": 2},
        "target (tensorParallelSize 2 x pipelineParallelSize 1) needs 2 GPUs, and NVIDIA-L4-SHARED is a GPU that pods"
        " share (time-slicing, MPS), so that two may be one: write tensorParallelSize: 1, pipelineParallelSize: 1 and"
        " placement.strategy: Shared, or take whole GPUs",
    ),
    (
        "GpuSharedNotParallel",
        {"placement__gpu": {"resourceName": "nvidia.com/gpu.shared"}, **SEPARATE},
        "target (tensorParallelSize 1 x pipelineParallelSize 1) and draft (tensorParallelSize 1, Separate) needs 2"
        " GPUs, and nvidia.com/gpu.shared is a GPU that pods share (time-slicing, MPS), so that two may be one: write"
        " tensorParallelSize: 1, pipelineParallelSize: 1 and placement.strategy: Shared, or take whole GPUs",
    ),
    (
        "BlockReuseNeeded",
        {"target__kvCache": {"enableBlockReuse": False}},
        "target.kvCache.enableBlockReuse is false, and each step of the BLS is a request with the whole text so far,"
        " whose keys and values must be reused: remove it",
    ),
]


@pytest.mark.parametrize(("reason", "changes", "message"), REFUSED)
def test_refused(reason: str, changes: dict[str, Any], message: str) -> None:
    spec = parse(PAIR, **changes).spec
    refusals = broken(spec, PROFILE)
    assert [(refusal.reason, refusal.message) for refusal in refusals] == [(reason, message)]


def test_fast_logits_without_tensorrt_llm_is_refused() -> None:
    spec = parse(PAIR, **FAST).spec
    refusals = broken(spec, CPU)
    assert [refusal.reason for refusal in refusals] == ["FastLogitsNotInProfile"]


@pytest.mark.parametrize("changes", [row[1] for row in PLANS], ids=[row[0] for row in PLANS])
def test_what_can_be_is_not_refused(changes: dict[str, Any]) -> None:
    spec = parse(PAIR, **changes).spec
    assert [refusal for rule in rules.RULES if (refusal := rule(spec, engine_of(spec, PROFILE)))] == []


@pytest.mark.parametrize(
    ("products", "memory", "reason"),
    [
        (["NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-SXM4-40GB"], 40, "a pod may land on the smaller"),
        (["NVIDIA-L4", "NVIDIA-OF-2030"], None, "one of them is not known"),
        ([], None, "any GPU"),
        (["NVIDIA-L4-SHARED"], 24, "pods share the whole GPU's, so it has no more"),
        (["NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"], 5, "MIG strategy single: the slice's"),
        (["NVIDIA-H100-80GB-HBM3-MIG-1g.10gb.me"], 10, "a slice with media engines"),
        (["NVIDIA-A100-SXM4-80GB-MIG-3g.40gb-SHARED", "NVIDIA-L4"], 24, "both suffixes"),
        (["NVIDIA-OF-2030-MIG-1g.5gb"], None, "not known"),
    ],
)
def test_memory_of_products(products: list[str], memory: float | None, reason: str) -> None:
    assert least_memory_gib(products) == memory, reason


@pytest.mark.parametrize(
    ("gpu", "memory", "reason"),
    [
        ({"resourceName": "nvidia.com/mig-3g.40gb", "product": ["NVIDIA-H100-80GB-HBM3"]}, 40, "the slice's"),
        ({"product": ["NVIDIA-L4-SHARED"]}, 24, "known by its whole GPU"),
        ({"product": ["NVIDIA-L4-SHARED"], "memoryGiB": 12}, 12, "the user knows better"),
    ],
)
def test_the_memory_that_the_preflight_reckons_with(gpu: dict[str, Any], memory: float, reason: str) -> None:
    spec = parse(PAIR, **ALONE, placement__gpu=gpu).spec
    inputs = Inputs(spec, PROFILE, "serving:1", {})
    found = preflight_checks(inputs, Stack({}, {}, {})).get("gpu", {}).get("memory_gib")
    assert found == memory, reason
