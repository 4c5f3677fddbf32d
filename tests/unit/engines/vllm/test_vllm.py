"""vLLM: the resource in, its arguments out; what is refused, with the exact message; known-bad combinations by
version; parameters of requests."""

import copy
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from support.services import parse
from tandem.accept import Accepted, Refusal, accept
from tandem.api.decoding import DecodingType
from tandem.api.profile import Profile
from tandem.api.roles import Role
from tandem.engines import engine_of
from tandem.engines.vllm import Vllm
from tandem.engines.vllm.arguments import METHODS
from tandem.engines.vllm.known_bad_table import TABLE
from tandem.engines.vllm.names import arguments, speculation
from tandem.engines.vllm.versions import MINORS
from tandem.settings import Settings

BASE = """
apiVersion: serving.tandem.dev/v1alpha1
kind: SpeculativeInferenceService
metadata: {name: llama, namespace: default}
spec:
  runtime: {mode: LLMAPI, profile: own}
  target: {model: {uri: file:///models/t}}
  speculation: {decodingType: None}
"""
FOLDERS = {Role.TARGET: "/models/t", Role.DRAFT: "/models/d", Role.MEDUSA_HEADS: "/models/m"}
DRAFT = {"draft": {"model": {"uri": "file:///models/d"}}}
ONE = "model: /models/t, tensor_parallel_size: 1, pipeline_parallel_size: 1, max_num_seqs: 16"

Change = dict[str, Any]


def profile(version: str = "0.27.1", *, gpus: bool = True, **parameters: Any) -> Profile:
    engine = {"kind": "vLLM", "version": version, "parameters": parameters}
    return Profile.model_validate({"name": "own", "image": "own:1", "verified": True, "gpus": gpus, "engine": engine})


def speculating(kind: str, **details: Any) -> Change:
    drafted = copy.deepcopy(DRAFT) if kind in ("DraftTarget", "Eagle3", "Eagle", "DFlash") else {}
    return {"speculation": {"decodingType": kind, **details}, **drafted}


def step(size: int, length: int) -> Change:
    return {"maxBatchSize": size, "draftLen": length}


def custom(kind: str, **args: Any) -> Change:
    return speculating("Custom", custom={"type": kind, "args": args})


def extra(**args: Any) -> Change:
    return {"runtime__extraLlmArgs": args}


def in_speculation(**args: Any) -> Change:
    return extra(speculative_config=args)


def judged(settings: Settings, change: Change, own: Profile) -> Accepted | Refusal:
    mine = settings.model_copy(update={"profiles": [own]})
    return accept(parse(BASE, **change).spec, mine)


def written(change: Change, own: Profile) -> dict[str, Any]:
    spec = parse(BASE, **change).spec
    roles = {Role.TARGET, *({Role.DRAFT} if spec.draft else ())}
    medusa = spec.speculation.medusa
    folders = {role: FOLDERS[role] for role in (*roles, *([Role.MEDUSA_HEADS] if medusa and medusa.heads else []))}
    return engine_of(spec, own).arguments(spec, folders)


ARGUMENTS: dict[str, tuple[Change, str]] = {
    "the target alone": ({}, ""),
    "a type, a cache": (
        {"target__dtype": "bfloat16", "target__kvCache": {"enableBlockReuse": False}},
        "dtype: bfloat16, enable_prefix_caching: false",
    ),
    "several nodes: each pod adds which one it is, and where the leader is": (
        {"target__tensorParallelSize": 8, "target__pipelineParallelSize": 2},
        "tensor_parallel_size: 8, pipeline_parallel_size: 2, nnodes: 2, master_port: 29501",
    ),
    "a draft model": (
        speculating("DraftTarget", maxDraftLen=3),
        "speculative_config: {method: draft_model, model: /models/d, num_speculative_tokens: 3}",
    ),
    "n-grams: the same defaults as elsewhere, and shorter ones are looked up, too": (
        speculating("NGram"),
        "speculative_config: {method: ngram, num_speculative_tokens: 4, prompt_lookup_max: 2, prompt_lookup_min: 1}",
    ),
    "n-grams, the user's least": (
        speculating("NGram", nGram={"maxMatchingNgramSize": 5, "isKeepAll": False, "isPublicPool": False})
        | in_speculation(prompt_lookup_min=3),
        "speculative_config: {method: ngram, num_speculative_tokens: 4, prompt_lookup_max: 5, prompt_lookup_min: 3}",
    ),
    "EAGLE-3, by a schedule: it ends above its last step": (
        speculating(
            "Eagle3", draftLenSchedule=[{"maxBatchSize": 2, "draftLen": 4}, {"maxBatchSize": 8, "draftLen": 1}]
        ),
        "speculative_config: {method: eagle3, model: /models/d, num_speculative_tokens: 4,"
        " num_speculative_tokens_per_batch_size: [[1, 2, 4], [3, 8, 1], [9, 16, 0]]}",
    ),
    "a schedule up to the largest batch": (
        speculating("MTP", maxDraftLen=2, draftLenSchedule=[step(16, 1)]),
        "speculative_config: {method: mtp, num_speculative_tokens: 2,"
        " num_speculative_tokens_per_batch_size: [[1, 16, 1]]}",
    ),
    "up to so many requests": (
        speculating("Suffix", maxConcurrency=4),
        "speculative_config: {method: suffix, num_speculative_tokens: 4,"
        " num_speculative_tokens_per_batch_size: [[1, 4, 4], [5, 16, 0]]}",
    ),
    "Medusa": (
        speculating("Medusa", medusa={"heads": {"uri": "file:///models/m"}}),
        "speculative_config: {method: medusa, model: /models/m, num_speculative_tokens: 4}",
    ),
    "DFlash, with fields that are passed on": (
        speculating("DFlash") | in_speculation(attention_backend="FLASH_ATTN"),
        "speculative_config: {method: dflash, model: /models/d, num_speculative_tokens: 4,"
        " attention_backend: FLASH_ATTN}",
    ),
    "DSpark in the target's checkpoint": (
        speculating("DSpark"),
        "speculative_config: {method: dspark, num_speculative_tokens: 4}",
    ),
    "any other": (
        custom("custom_class", model="mine.Drafter") | extra(max_model_len=4096, enable_lora=True),
        "speculative_config: {method: custom_class, num_speculative_tokens: 4, model: mine.Drafter},"
        " max_model_len: 4096, enable_lora: true",
    ),
    "LoRA adapters, by their folders": (
        extra(lora_dirs=["/adapters"], max_lora_rank=8),
        "lora_dirs: [/adapters], max_lora_rank: 8, enable_lora: true",
    ),
    "LoRA, as the user has it": (
        extra(lora_dirs=["/adapters"], enable_lora=False),
        "lora_dirs: [/adapters], enable_lora: false",
    ),
    "any other, with a draft": (
        speculating("Custom", custom={"type": "eagle", "needsDraft": True}) | DRAFT,
        "speculative_config: {method: eagle, model: /models/d, num_speculative_tokens: 4}",
    ),
}


@pytest.mark.parametrize(("change", "expected"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments(change: Change, expected: str, settings: Settings) -> None:
    assert isinstance(judged(settings, change, profile()), Accepted)
    assert written(change, profile()) == yaml.safe_load(f"{{{ONE}, {expected}}}")
    assert next(iter(written(change, profile()))) == "model"


def test_every_field_that_is_written_is_a_name_of_every_version() -> None:
    for change, _ in ARGUMENTS.values():
        found = written({**change, "runtime__extraLlmArgs": {}}, profile())
        for minor in MINORS:
            assert found.keys() <= arguments(minor)
            assert found.get("speculative_config", {}).keys() <= speculation(minor)


def test_each_type_has_a_row() -> None:
    kinds = {parse(BASE, **change).spec.speculation.decoding_type for change, _ in ARGUMENTS.values()}
    assert kinds == {*METHODS, DecodingType.CUSTOM, DecodingType.NONE}


@pytest.mark.parametrize("kind", ["Eagle3", "DraftTarget"])
def test_a_draft_is_split_as_the_target(kind: str, settings: Settings) -> None:
    change = speculating(kind) | {"target__tensorParallelSize": 2, "draft__tensorParallelSize": 2}
    assert isinstance(judged(settings, change, profile()), Accepted)
    assert written(change, profile())["speculative_config"]["draft_tensor_parallel_size"] == 2


def test_parameters_of_the_profile_come_last() -> None:
    own = profile(enable_chunked_prefill=False, gpu_memory_utilization=0.5, max_model_len=10)
    found = written(extra(max_model_len=20), own)
    assert list(found.items())[-3:] == [
        ("max_model_len", 20),
        ("enable_chunked_prefill", False),
        ("gpu_memory_utilization", 0.5),
    ]


NGRAM = "it drafts from the oldest place in the request's own text"
REFUSED: list[tuple[Change, str, str]] = [
    (
        speculating("Eagle"),
        "DecodingTypeNotInProfile",
        "profile 'own' cannot run decodingType Eagle in mode LLMAPI: it is EAGLE-3 here, and EAGLE-1 and EAGLE-2 in"
        " vLLM: write decodingType: Eagle3, or for heads of EAGLE-1 and EAGLE-2 decodingType: Custom with custom:"
        " {type: eagle, needsDraft: true}",
    ),
    (
        speculating("UserProvided", userProvided={"entryPoint": "a:b"}),
        "DecodingTypeNotInProfile",
        "profile 'own' cannot run decodingType UserProvided in mode LLMAPI: write decodingType: Custom with custom:"
        " {type: custom_class, args: {model: MODULE.CLASS}}",
    ),
    (
        {"runtime__mode": "BLS", **speculating("DraftTarget")},
        "ModeNotInProfile",
        "profile 'own' cannot run mode BLS: write runtime.mode: LLMAPI, or another profile",
    ),
    (
        {"target__dtype": "fp8"},
        "FieldNotInProfile",
        "vLLM 0.27.1 has no equivalent of target.dtype fp8: write dtype: auto, and runtime.extraLlmArgs.quantization:"
        " fp8",
    ),
    (
        {"target__kvCache": {"maxTokens": 9}},
        "FieldNotInProfile",
        "vLLM 0.27.1 has no equivalent of target.kvCache.maxTokens: write"
        " runtime.extraLlmArgs.kv_cache_memory_bytes (of"
        " each GPU)",
    ),
    (
        {"target__kvCache": {"freeGpuMemoryFraction": 0.5}},
        "FieldNotInProfile",
        "vLLM 0.27.1 has no equivalent of target.kvCache.freeGpuMemoryFraction: write"
        " runtime.extraLlmArgs.gpu_memory_utilization (of all of a GPU's memory, with the weights)",
    ),
    (
        speculating("MTP", mtp={"relaxedAcceptance": {}}),
        "FieldNotInProfile",
        "vLLM 0.27.1 has no equivalent of speculation.mtp.relaxedAcceptance: remove it",
    ),
    (
        speculating("NGram", nGram={"isUseOldest": False}),
        "FieldNotInProfile",
        f"vLLM 0.27.1 has no equivalent of speculation.nGram.isKeepAll true: {NGRAM}: write false;"
        f" speculation.nGram.isPublicPool true: {NGRAM}: write false; speculation.nGram.isUseOldest false: {NGRAM}:"
        " write true",
    ),
    (
        speculating("Eagle3", eagle3={"dynamicTreeMaxTopK": 4}, suffixAutomaton={}),
        "FieldNotInProfile",
        "vLLM 0.27.1 has no equivalent of speculation.suffixAutomaton: remove it, or write decodingType: Suffix;"
        " speculation.eagle3.dynamicTreeMaxTopK: remove it; the draft's config.json says what vLLM reads",
    ),
    (
        speculating("DFlash", dFlash={"maskTokenId": 4}),
        "FieldNotInProfile",
        "vLLM 0.27.1 has no equivalent of speculation.dFlash.maskTokenId: remove it; the draft's config.json says"
        " what"
        " vLLM reads",
    ),
    (
        speculating("Medusa", medusa={"choices": [[0]]}),
        "FieldNotInProfile",
        "vLLM 0.27.1 has no equivalent of speculation.medusa.choices: remove it; it drafts maxDraftLen tokens in a"
        " row;"
        " Medusa heads in the target's own folder: write speculation.medusa.heads",
    ),
    (
        speculating("DraftTarget") | {"target__tensorParallelSize": 2},
        "FieldNotInProfile",
        "draft.tensorParallelSize is 1, and vLLM 0.27.1 splits a draft model as the target: write 2",
    ),
    (
        speculating("Eagle3") | {"target__tensorParallelSize": 4, "draft__tensorParallelSize": 2},
        "FieldNotInProfile",
        "draft.tensorParallelSize is 2, and vLLM 0.27.1 splits heads as the target, or not at all: write 1 or 4",
    ),
    (
        custom("mtp"),
        "CustomTypeReserved",
        "speculation.custom.type must not be mtp: write speculation.decodingType: MTP",
    ),
    (
        custom("mlp_speculator", model="org/name", num_speculative_tokens=3),
        "CustomArgsConflict",
        "speculation.custom.args.num_speculative_tokens is decided by speculation.maxDraftLen: remove it, and write"
        " speculation.maxDraftLen instead; speculation.custom.args.model is decided by draft.model.uri: remove it,"
        " and"
        " write draft.model.uri instead",
    ),
    (
        speculating("MTP", draftLenSchedule=[step(8, 4), step(2, 1)]),
        "ScheduleNotAscending",
        "speculation.draftLenSchedule has maxBatchSize 8, 2: write ascending ones",
    ),
    (
        extra(max_num_seqs=9, data_parallel_size=2, nnodes=2, hf_token="secret"),
        "ExtraLlmArgsConflict",
        "runtime.extraLlmArgs has what fields decide: remove it, and write the fields instead: max_num_seqs"
        " (serving.maxBatchSize), data_parallel_size (replicas), nnodes (placement.gpu.perNode), hf_token"
        " (target.model.secretName)",
    ),
    (
        extra(lora_dirs="/adapters"),
        "ExtraLlmArgsUnknown",
        "runtime.extraLlmArgs.lora_dirs must be a list of folders, such as [/adapters]: mount them with podTemplate",
    ),
    (
        custom("mlp_speculator", lora_dirs=["/adapters"]),
        "ExtraLlmArgsUnknown",
        "speculation.custom.args.lora_dirs is no argument of vLLM 0.27: remove it",
    ),
    (
        in_speculation(method="ngram"),
        "ExtraLlmArgsConflict",
        "runtime.extraLlmArgs.speculative_config is decided by speculation.decodingType: remove it, and write"
        " speculation.decodingType instead",
    ),
    (
        speculating("NGram") | in_speculation(prompt_lookup_max=4),
        "ExtraLlmArgsConflict",
        "runtime.extraLlmArgs.speculative_config.prompt_lookup_max is decided by"
        " speculation.nGram.maxMatchingNgramSize: remove it, and write speculation.nGram.maxMatchingNgramSize"
        " instead",
    ),
    (
        extra(**{"max-model-len": 4096, "max_num_tokens": 9, "unheard": 1}),
        "ExtraLlmArgsUnknown",
        "runtime.extraLlmArgs.max-model-len is no argument of vLLM 0.27: write max_model_len;"
        " runtime.extraLlmArgs.max_num_tokens is no argument of vLLM 0.27: write max_num_batched_tokens;"
        " runtime.extraLlmArgs.unheard is no argument of vLLM 0.27: remove it",
    ),
    (
        extra(calculate_kv_scales=True, log_level="info") | {"runtime__profile": "own"},
        "ExtraLlmArgsUnknown",
        "runtime.extraLlmArgs.log_level is no argument of vLLM 0.27: it is in 0.31 to 0.33: remove it, or write"
        " another"
        " profile",
    ),
    (
        custom("mlp_speculator", draft_sample_metod="greedy"),
        "ExtraLlmArgsUnknown",
        "speculation.custom.args.draft_sample_metod is no argument of vLLM 0.27: write draft_sample_method",
    ),
    (
        {"target__tensorParallelSize": 9},
        "GpusNotDivisible",
        "target (tensorParallelSize 9 x pipelineParallelSize 1) needs 9 GPUs, which 2 nodes of at most 8 cannot share"
        " equally: choose tensorParallelSize x pipelineParallelSize to be a multiple of the nodes",
    ),
    (
        {"placement__gpu": {"product": ["Tesla-V100-SXM2-16GB"]}},
        "GpuTooOld",
        "placement.gpu.product Tesla-V100-SXM2-16GB has compute capability 7.0, and vLLM 0.27.1 needs 7.5 or newer:"
        " name"
        " a newer product",
    ),
    (
        {"podTemplate": {"spec": {"containers": [{"name": "triton", "env": [{"name": "VLLM_NO_USAGE_STATS"}]}]}}},
        "PodTemplateRefused",
        "podTemplate.spec.containers[0].env[0]: VLLM_NO_USAGE_STATS is set by Tandem: remove it",
    ),
]


@pytest.mark.parametrize(("change", "reason", "message"), REFUSED, ids=[f"{row[1]} {row[0]}" for row in REFUSED])
def test_refused(change: Change, reason: str, message: str, settings: Settings) -> None:
    refused = judged(settings, change, profile())
    assert isinstance(refused, Refusal), refused
    assert (refused.reason, refused.message) == (reason, message)


def test_names_of_versions_that_came_later_are_the_images_to_judge(settings: Settings) -> None:
    assert isinstance(judged(settings, extra(unheard=1), profile("0.40.0")), Accepted)


@pytest.mark.parametrize(("version", "runs"), [("0.24.0", False), ("0.25.1", True), ("0.33.0", True)])
def test_dspark_came_later(version: str, runs: bool) -> None:
    assert (DecodingType.DSPARK in Vllm(profile(version)).decoding_types) is runs


STAGES = {"target__pipelineParallelSize": 2}
OWN_IMAGE = {"runtime__image": "mine:1"}
CPU = "cpu "
# Version, row (the start of its combination), changes that have it, changes that do not.
KNOWN_BAD: list[tuple[str, str, list[Change], list[Change]]] = [
    ("0.29.0", "target.pipelineParallelSize above 1 with MTP", [speculating("MTP") | STAGES], [STAGES]),
    ("0.30.0", "target.pipelineParallelSize above 1 with MTP", [speculating("MTP") | STAGES], [speculating("MTP")]),
    (
        "0.27.1",
        "target.pipelineParallelSize above 1 with EAGLE heads",
        [speculating("Eagle3") | STAGES, speculating("DSpark") | STAGES, custom("eagle") | STAGES],
        [speculating("Eagle3")],
    ),
    (
        "0.30.0",
        "target.pipelineParallelSize above 1 with a draft model",
        [speculating("DraftTarget") | STAGES],
        [STAGES],
    ),
    ("0.31.0", "target.pipelineParallelSize above 1 with n-grams", [speculating("NGram") | STAGES], [STAGES]),
    (
        "0.33.0",
        "target.pipelineParallelSize above 1 with Suffix",
        [speculating("Suffix") | STAGES, custom("custom_class", model="a.b") | STAGES],
        [speculating("NGram") | STAGES, speculating("DraftTarget") | STAGES, speculating("Eagle3") | STAGES],
    ),
    ("0.27.1", "decodingType DraftTarget", [speculating("DraftTarget")], [speculating("Eagle3")]),
    (f"{CPU}0.32.0", "speculation on CPUs", [speculating("NGram") | OWN_IMAGE], [speculating("NGram"), OWN_IMAGE]),
    (
        f"{CPU}0.32.0",
        "target.pipelineParallelSize above 1 on CPUs",
        [STAGES | extra(enforce_eager=True)],
        [STAGES, extra(enforce_eager=True)],
    ),
    (
        f"{CPU}0.24.0",
        "speculation.draftLenSchedule or maxConcurrency",
        [speculating("NGram", maxConcurrency=2)],
        [speculating("NGram")],
    ),
    (f"{CPU}0.32.0", "enable_chunked_prefill on CPUs", [{}], [extra(enable_chunked_prefill=False)]),
]


def profile_of(version: str) -> Profile:
    return profile(version.removeprefix(CPU), gpus=not version.startswith(CPU))


@pytest.mark.parametrize(("version", "name", "bad", "fine"), KNOWN_BAD, ids=[f"{v} {n}" for v, n, _, _ in KNOWN_BAD])
def test_known_bad(version: str, name: str, bad: list[Change], fine: list[Change], settings: Settings) -> None:
    own = profile_of(version)
    minor = Vllm(own).minor
    (row,) = [row for row in TABLE if row.combination.startswith(name) and minor in row.versions]
    for change in bad:
        found = judged(settings, change, own)
        assert isinstance(found, Refusal) is row.refused
        assert row.message(f"vLLM {minor}") in said(found)
    for change in fine:
        assert row.combination not in said(judged(settings, change, own))


def said(found: Accepted | Refusal) -> str:
    return found.message if isinstance(found, Refusal) else "; ".join(found.warnings)


def test_each_known_bad_row_has_its_cases() -> None:
    assert {name for _, name, _, _ in KNOWN_BAD} == {
        next(name for _, name, _, _ in KNOWN_BAD if row.combination.startswith(name)) for row in TABLE
    }


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({}, {}),
        (
            speculating("MTP"),
            {
                "min_p": "vLLM 0.27.1 (mode LLMAPI, with decodingType MTP) refuses it with speculation; leave it"
                " out, or"
                " send temperature 0"
            },
        ),
    ],
)
def test_parameters_of_requests(change: Change, refused: Mapping[str, str]) -> None:
    spec = parse(BASE, **change).spec
    assert engine_of(spec, profile()).refused_parameters(spec, FOLDERS) == refused


def test_gpus_of_a_replica(settings: Settings) -> None:
    spec = parse(BASE, target__tensorParallelSize=2, target__pipelineParallelSize=2).spec
    plan = engine_of(spec, profile()).gpu_plan(spec)
    assert (plan.gpus, plan.nodes, plan.launch, plan.resource) == (4, 1, "Single", "nvidia.com/gpu")
    assert engine_of(spec, on_cpus(profile())).gpu_plan(spec).gpus == 0


def on_cpus(own: Profile) -> Profile:
    return own.model_copy(update={"gpus": False})
