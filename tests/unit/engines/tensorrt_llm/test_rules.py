"""Mode LLMAPI's rules: the change of a good resource, where it is caught, and the exact message."""

from typing import Any

import pytest

from support.services import QUICKSTART, parse
from tandem.accept import Accepted, Refusal, accept, refusals
from tandem.settings import Settings

BASE = """
apiVersion: serving.tandem.dev/v1alpha1
kind: SpeculativeInferenceService
metadata: {name: llama, namespace: default}
spec:
  runtime: {mode: LLMAPI, profile: trtllm-26.07}
  target: {model: {uri: file:///models/t}}
  draft: {model: {uri: file:///models/d}}
  speculation: {decodingType: DraftTarget, maxDraftLen: 4}
"""
CANDIDATE = {"runtime__profile": "trtllm-1.4rc", "runtime__image": "registry.example/tritonserver:own"}
NEWER = {"runtime__profile": "trtllm-1.3", "runtime__image": "registry.example/tritonserver:own"}


def speculating(kind: str, **details: Any) -> dict[str, Any]:
    return {"speculation": {"decodingType": kind, "maxDraftLen": 4, **details}}


def extra(**args: Any) -> dict[str, Any]:
    return {"runtime__extraLlmArgs": args}


def custom(kind: str, **args: Any) -> dict[str, Any]:
    return speculating("Custom", custom={"type": kind, "args": args}) | {"draft": None}


def steps(*sizes_and_lengths: tuple[int, int]) -> list[dict[str, int]]:
    return [{"maxBatchSize": size, "draftLen": length} for size, length in sizes_and_lengths]


REFUSED = [
    (
        {"runtime__profile": "trtllm-1.3"},
        "NoImage",
        "profile 'trtllm-1.3' names no image (TensorRT-LLM 1.3, LLM API only. Triton 26.07 is the last release known"
        " to come with TensorRT-LLM, and it has 1.2.1; bring an image with Triton's Python backend and TensorRT-LLM"
        " 1.3): write runtime.image, or set the profile's image in the Helm value `profiles`, as"
        " - {name: trtllm-1.3, image: ...}",
    ),
    (
        {"target__dtype": "fp8"},
        "DtypeNotInMode",
        "mode LLMAPI does not quantize: write target.dtype: auto and a checkpoint in FP8 (its hf_quant_config.json"
        " says so)",
    ),
    (
        {"draft__tensorParallelSize": 2},
        "FieldNotInProfile",
        "draft.tensorParallelSize is 2, and mode LLMAPI of profile 'trtllm-26.07' splits the draft as the target:"
        " remove"
        " it, or write runtime.mode: BLS",
    ),
    (
        custom("Draft_Target"),
        "CustomTypeReserved",
        "speculation.custom.type must not be Draft_Target: write speculation.decodingType: DraftTarget",
    ),
    (
        custom("Medusa"),
        "CustomTypeReserved",
        "speculation.custom.type must not be Medusa: it lives in TensorRT engines: write speculation.decodingType:"
        " Medusa and runtime.mode: BLS",
    ),
    (
        custom("AUTO"),
        "CustomTypeReserved",
        "speculation.custom.type must not be AUTO: it lets the engine choose and ignore this resource:"
        " write the decodingType that you need",
    ),
    (
        custom("SA", max_draft_len=9),
        "CustomArgsConflict",
        "speculation.custom.args.max_draft_len is decided by speculation.maxDraftLen: remove it, and write"
        " speculation.maxDraftLen instead",
    ),
    (
        {"target__pipelineParallelSize": 2},
        "PipelineParallelWithSpeculation",
        "target.pipelineParallelSize is 2, and TensorRT-LLM 1.2.1 does not speculate over pipeline stages: write"
        " pipelineParallelSize: 1 and a larger tensorParallelSize, or speculation.decodingType: None",
    ),
    (
        extra(max_beam_width=4),
        "FeatureWithSpeculation",
        "runtime.extraLlmArgs.max_beam_width is 4, which TensorRT-LLM 1.2.1 cannot combine with speculation: remove"
        " it, or write speculation.decodingType: None",
    ),
    (
        extra(context_parallel_size=2),
        "FeatureWithSpeculation",
        "runtime.extraLlmArgs.context_parallel_size is 2, which TensorRT-LLM 1.2.1 cannot combine with speculation:"
        " remove it, or write speculation.decodingType: None",
    ),
    (
        extra(sampler_type="TRTLLMSampler"),
        "FeatureWithSpeculation",
        "runtime.extraLlmArgs.sampler_type is TRTLLMSampler, which TensorRT-LLM 1.2.1 cannot combine with"
        " speculation: remove it, or write speculation.decodingType: None",
    ),
    (
        extra(guided_decoding_backend="xgrammar", speculative_config={"use_rejection_sampling": True}),
        "GuidedDecodingWithRejectionSampling",
        "use_rejection_sampling cannot be combined with guided decoding: remove it, or"
        " runtime.extraLlmArgs.guided_decoding_backend",
    ),
    (
        speculating("Eagle3", eagle3={"oneModel": False}) | NEWER,
        "TwoModelsNotInProfile",
        "speculation.eagle3.oneModel false needs TensorRT-LLM 1.2, and profile 'trtllm-1.3' has a newer one: remove"
        " it, or write another profile",
    ),
    (
        speculating("Eagle3", eagle3={"dynamicTreeMaxTopK": 10}),
        "DynamicTreeNotInProfile",
        "speculation.eagle3.dynamicTreeMaxTopK needs TensorRT-LLM 1.3, and profile 'trtllm-26.07' has 1.2: remove it,"
        " or write another profile",
    ),
    (
        speculating("Eagle3", eagle3={"dynamicTreeMaxTopK": 10, "maxTotalDraftTokens": 41}) | NEWER,
        "DynamicTreeSizeInvalid",
        "speculation.eagle3.maxTotalDraftTokens is 41: write maxDraftLen (4) to maxDraftLen x dynamicTreeMaxTopK"
        " (40), or remove it",
    ),
    (
        speculating("DraftTarget", draftLenSchedule=steps((8, 4), (4, 2))),
        "ScheduleNotAscending",
        "speculation.draftLenSchedule has maxBatchSize 8, 4: write ascending ones",
    ),
    (
        speculating("DraftTarget", draftLenSchedule=steps((8, 3))),
        "ScheduleStartMismatch",
        "the first step of speculation.draftLenSchedule drafts 3 and maxDraftLen is 4: TensorRT-LLM 1.2.1"
        " requires equal numbers: write the same in both",
    ),
    (
        speculating("MTP", draftLenSchedule=steps((8, 4))) | {"draft": None},
        "ScheduleNotInProfile",
        "profile 'trtllm-26.07' has TensorRT-LLM 1.2, whose MTP has a fixed draft length: remove"
        " speculation.draftLenSchedule, or write another profile",
    ),
    (
        speculating("DFlash", dFlash={"contextRecomputeTail": 8}) | NEWER,
        "FieldNotInProfile",
        "speculation.dFlash.contextRecomputeTail: TensorRT-LLM 1.3 of profile 'trtllm-1.3' does not have it, or not"
        " that value: remove it, or write another profile",
    ),
    (
        speculating("DSpark", dSpark={"attentionBackend": "CUTEDSL"}) | NEWER,
        "FieldNotInProfile",
        "speculation.dSpark.attentionBackend: TensorRT-LLM 1.3 of profile 'trtllm-1.3' does not have it, or not that"
        " value: remove it, or write another profile",
    ),
    (
        speculating("Eagle3", suffixAutomaton={}),
        "FieldNotInProfile",
        "speculation.suffixAutomaton: TensorRT-LLM 1.2 of profile 'trtllm-26.07' does not have it, or not that value:"
        " remove it, or write another profile",
    ),
    (
        custom("PARD", sa_config={"threshold": 4}) | {"speculation__suffixAutomaton": {}} | NEWER,
        "CustomArgsConflict",
        "speculation.custom.args.sa_config is decided by speculation.suffixAutomaton: remove it, and write"
        " speculation.suffixAutomaton instead",
    ),
    (
        custom("DFlash") | NEWER,
        "CustomTypeReserved",
        "speculation.custom.type must not be DFlash: write speculation.decodingType: DFlash",
    ),
    (
        extra(kv_cache_config={"max_tokens": 9}),
        "ExtraLlmArgsConflict",
        "runtime.extraLlmArgs.kv_cache_config.max_tokens is decided by target.kvCache.maxTokens: remove it, and write"
        " target.kvCache.maxTokens instead",
    ),
]


@pytest.mark.parametrize(("change", "reason", "message"), REFUSED, ids=[f"{row[1]} {row[0]}" for row in REFUSED])
def test_refused(change: dict[str, Any], reason: str, message: str, settings: Settings) -> None:
    refusal = accept(parse(BASE, **change).spec, settings)
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.message) == (reason, message)


def test_all_that_is_refused_at_once(settings: Settings) -> None:
    """Rules that count on those that are broken are left out: the LLM API has no argument for such a dtype."""
    change = extra(max_beam_width=4) | {"target__dtype": "fp8", "target__pipelineParallelSize": 2}
    spec = parse(BASE, **change).spec
    assert [str(each.reason) for each in refusals(spec, settings)] == [
        "DtypeNotInMode",
        "PipelineParallelWithSpeculation",
        "FeatureWithSpeculation",
    ]
    assert refusals(spec, settings)[0] == accept(spec, settings)


def test_a_rule_lists_all_that_breaks_it(settings: Settings) -> None:
    template = {"spec": {"containers": [{"name": "triton", "env": [{"name": "HOME", "value": "/"}, {"name": ""}]}]}}
    (template_refused,) = refusals(parse(BASE, podTemplate=template).spec, settings)
    assert template_refused.message == (
        "podTemplate.spec.containers[0].env[0]: HOME is set by Tandem: remove it;"
        " podTemplate.spec.containers[0].env[1] has no name: write one"
    )
    flags = {"max_batch_size": "4", "output_dir": "/x"}
    bls = {"runtime__mode": "BLS", "speculation": {"decodingType": "DraftTarget"}}
    (flags_refused,) = refusals(parse(BASE, **bls, target__engine={"build": {"extraArgs": flags}}).spec, settings)
    assert flags_refused.message == (
        "target.engine.build.extraArgs has max_batch_size, which the resource decides: write"
        " engine.build.maxBatchSize instead; target.engine.build.extraArgs has output_dir, which the resource"
        " decides: remove it"
    )


TENSORRT_BLS: dict[str, Any] = {"runtime__mode": "BLS", "placement__gpu__product": ["NVIDIA-H100-80GB-HBM3"]}
WARNED = [
    ({}, ()),
    (
        speculating("Eagle3", draftLenSchedule=steps((8, 4), (16, 1))),
        (
            "speculation.draftLenSchedule: TensorRT-LLM 1.2 follows it for DraftTarget and NGram; with Eagle3 it may"
            " draft another length, such as maxDraftLen at every load",
        ),
    ),
    (speculating("Eagle3", draftLenSchedule=steps((8, 4), (16, 1))) | NEWER, ()),
    (
        speculating("NGram", draftLenSchedule=steps((8, 4), (16, 1))) | {"draft": None} | NEWER,
        (
            "speculation.draftLenSchedule: TensorRT-LLM 1.3 follows it for DraftTarget, Eagle3, Eagle, MTP, DFlash"
            " and Custom; with NGram it may draft another length, such as maxDraftLen at every load",
        ),
    ),
    (speculating("NGram", draftLenSchedule=steps((8, 4), (16, 1))) | {"draft": None}, ()),
    (
        speculating("NGram", draftLenSchedule=steps((8, 4), (16, 1)))
        | {"draft": None, "runtime__profile": "reference"},
        (),
    ),
    (
        speculating("Eagle3", eagle3={"dynamicTreeMaxTopK": 4}) | NEWER,
        (
            "speculation.eagle3.dynamicTreeMaxTopK: not for targets with sliding-window attention or MLA, such as"
            " gpt-oss and DeepSeek",
        ),
    ),
    (
        speculating("MTP", mtp={"relaxedAcceptance": {"topk": 10}}) | {"draft": None},
        (
            "speculation.mtp.relaxedAcceptance is lossy: while the model thinks, its text is not the target's own",
            "requests that sample get 400, those of OpenAI's API without temperature 0 among them: TensorRT-LLM 1.2.1"
            " (mode LLMAPI, with decodingType MTP) compares drafts with the likeliest tokens, and draws none; send"
            " temperature 0, or remove speculation.mtp.relaxedAcceptance",
        ),
    ),
    (
        speculating("DraftTarget", acceptance={"method": "Logits", "threshold": 0.3})
        | {"runtime__mode": "BLS", "placement__gpu__product": ["NVIDIA-H100-80GB-HBM3"]},
        ("speculation.acceptance.threshold 0.3 is lossy: the output is not distributed as the target's",),
    ),
    (
        TENSORRT_BLS | {"speculation": {"decodingType": "DraftTarget"}},
        (
            "speculation.acceptance.method TokenMatch is lossy on TensorRT engines for requests that sample: draft"
            " tokens come out more often than the target's own; greedy requests are exact, and so is"
            " num_draft_tokens 0",
        ),
    ),
    (TENSORRT_BLS | {"speculation": {"decodingType": "DraftTarget", "acceptance": {"method": "Logits"}}}, ()),
    (TENSORRT_BLS | {"speculation": {"decodingType": "None"}, "draft": None}, ()),
    (speculating("DFlash", dFlash={"contextRecomputeTail": 8}) | CANDIDATE, ()),
    (speculating("DSpark", dSpark={"attentionBackend": "CUTEDSL"}) | {"draft": None} | CANDIDATE, ()),
    (speculating("DSpark") | NEWER, ()),
    (speculating("Eagle3", suffixAutomaton={"threshold": 8}) | NEWER, ()),
    (custom("PARD", sa_config={"threshold": 4}) | NEWER, ()),
    (speculating("DraftTarget"), ()),
]


@pytest.mark.parametrize(("change", "warnings"), WARNED, ids=[str(row[0]) for row in WARNED])
def test_warned(change: dict[str, Any], warnings: tuple[str, ...], settings: Settings) -> None:
    accepted = accept(parse(BASE, **change).spec, settings)
    assert isinstance(accepted, Accepted)
    assert tuple(w for w in accepted.warnings if not w.startswith(OF_THE_IMAGE)) == warnings


OF_THE_IMAGE = ("profile ", "runtime.image ")
OLD, NEW, UNKNOWN = "has Triton 26.02: releases", None, "does not name its release of Triton: releases"
IMAGES: list[tuple[str, str, str | None, str, str, str | None]] = [
    # reason, the profile's tritonVersion, its image (None: as shipped), runtime.image, where, warned of
    ("as shipped", "26.07", None, "", "profile 'trtllm-26.07'", NEW),
    ("the profile is old", "26.02", "registry.example/own:1", "", "profile 'trtllm-26.07'", OLD),
    ("the profile says nothing", "", "registry.example/own:1", "", "profile 'trtllm-26.07'", UNKNOWN),
    ("its image was replaced", "26.07", "nvcr.io/nvidia/tritonserver:26.02-py3", "", "profile 'trtllm-26.07'", OLD),
    ("an old image", "26.07", None, "nvcr.io/nvidia/tritonserver:26.02-trtllm-python-py3", "runtime.image ", OLD),
    (
        "a copy of it",
        "26.07",
        None,
        "registry.example:5000/nv/tritonserver:26.02-py3@sha256:ab",
        "runtime.image ",
        OLD,
    ),
    ("a new image", "26.02", None, "nvcr.io/nvidia/tritonserver:26.09-py3", "runtime.image ", NEW),
    ("somebody's own", "26.07", None, "registry.example/llm:26.09", "runtime.image ", UNKNOWN),
    ("no release in its tag", "26.07", None, "nvcr.io/nvidia/tritonserver:26.09.1.2-own", "runtime.image ", UNKNOWN),
    ("by digest alone", "26.07", None, "nvcr.io/nvidia/tritonserver@sha256:26.09", "runtime.image ", UNKNOWN),
]


@pytest.mark.parametrize(
    ("version", "image", "instead", "where", "warned"), [i[1:] for i in IMAGES], ids=[i[0] for i in IMAGES]
)
def test_an_old_triton_is_warned_about(
    version: str, image: str | None, instead: str, where: str, warned: str | None, settings: Settings
) -> None:
    update = {"triton_version": version, **({"image": image} if image else {})}
    profiles = [p.model_copy(update=update) for p in settings.profiles]
    spec = parse(BASE, **({"runtime__image": instead} if instead else {})).spec
    accepted = accept(spec, settings.model_copy(update={"profiles": profiles}))
    assert isinstance(accepted, Accepted)
    found = [warning for warning in accepted.warnings if "known vulnerabilities" in warning]
    assert len(found) == (warned is not None)
    if warned:
        assert found[0] == (
            f"{where}{instead} {warned} before 26.07 have known vulnerabilities; write a newer profile or image, or"
            " allow only trusted clients to connect (serving.access.from)"
        )


@pytest.mark.parametrize(
    ("profile", "more", "warned"),
    [
        ("torch", {}, True),
        ("torch", {"serving": {"access": {"from": [{"podSelector": {}}]}}}, False),  # only trusted clients connect
        ("reference", {}, False),  # for trials
    ],
)
def test_whose_old_triton_is_no_danger(profile: str, more: dict[str, Any], warned: bool, settings: Settings) -> None:
    accepted = accept(parse(QUICKSTART, runtime__profile=profile, **more).spec, settings)
    assert isinstance(accepted, Accepted)
    assert any("known vulnerabilities" in warning for warning in accepted.warnings) is warned


def test_an_image_of_the_services_own_is_looked_at(settings: Settings) -> None:
    """For what an old Triton loses, too."""
    change = COLLECTING | {"runtime__image": "nvcr.io/nvidia/tritonserver:25.03-trtllm-python-py3"}
    found = accept(parse(BASE, **change).spec, settings)
    assert isinstance(found, Refusal)
    assert found.reason == "EngineCallsNotInTriton"


@pytest.mark.parametrize(
    ("verified", "instead", "wanted"),
    [
        (True, "", True),
        (False, "", False),
        (True, "nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3", True),
        (True, "registry.example/own:1", False),
    ],
)
def test_what_never_ran_is_not_verified(verified: bool, instead: str, wanted: bool, settings: Settings) -> None:
    profiles = [p.model_copy(update={"verified": verified}) for p in settings.profiles]
    spec = parse(BASE, **({"runtime__image": instead} if instead else {})).spec
    accepted = accept(spec, settings.model_copy(update={"profiles": profiles}))
    assert isinstance(accepted, Accepted)
    assert accepted.verified is wanted


def test_the_reference_profile_names_its_old_triton(settings: Settings) -> None:
    """It is for trying, and says so; nothing is stopped."""
    reference = settings.profile("reference")
    assert reference is not None
    assert (reference.triton_version, reference.verified) == ("24.10", True)


COLLECTING = TENSORRT_BLS | {"speculation": {"decodingType": "DraftTarget"}}
OWN_COLLECTING = COLLECTING | {"runtime": {"mode": "BLS", "profile": "reference"}}
COLLECTED = [
    # reason, Triton's release, the profile's engine.calls, service, refused for
    ("loses answers beside an error", "25.03", "Collected", COLLECTING, "EngineCallsNotInTriton"),
    ("mended", "25.04", "Collected", COLLECTING, None),
    ("not told", "", "Collected", COLLECTING, None),
    ("a call for each sequence", "25.03", "Single", COLLECTING, None),
    (
        "nothing is collected",
        "25.03",
        "Collected",
        COLLECTING | {"speculation": {"decodingType": "None"}, "draft": None},
        None,
    ),
    ("no such calls", "25.03", "Collected", {}, None),
    ("Tandem's engine, too", "25.03", "Collected", OWN_COLLECTING, "EngineCallsNotInTriton"),
    ("as it does best", "25.03", "", OWN_COLLECTING, None),
]


@pytest.mark.parametrize(
    ("release", "calls", "change", "reason"), [row[1:] for row in COLLECTED], ids=[row[0] for row in COLLECTED]
)
def test_collected_calls_need_a_triton_that_can(
    release: str, calls: str, change: dict[str, Any], reason: str | None, settings: Settings
) -> None:
    update = {"triton_version": release, "image": "registry.example/own:1"}
    profiles = [
        p.model_copy(update={**update, "engine": p.engine.model_copy(update={"calls": calls})})
        for p in settings.profiles
    ]
    decided = accept(parse(BASE, **change).spec, settings.model_copy(update={"profiles": profiles}))
    found = decided if isinstance(decided, Refusal) else None
    assert (found and found.reason) == reason
    assert found is None or f"has engine.calls Collected, and the image has Triton {release}" in found.message
