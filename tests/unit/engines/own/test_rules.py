"""Profile `torch`: what its engine cannot do is refused, with what to write instead."""

from typing import Any

import pytest

from support.services import QUICKSTART, parse
from tandem.accept import Accepted, Refusal, accept
from tandem.settings import Settings

TORCH = {
    "runtime__profile": "torch",
    "target__model__uri": "hf://Qwen/Qwen2.5-7B-Instruct",
    "draft__model__uri": "hf://Qwen/Qwen2.5-0.5B-Instruct",
}
LLMAPI = {"runtime__mode": "LLMAPI"}
ALONE = {"draft": None, "draft__model__uri": None}
NOT_FOR = "is not for the engine of profile 'torch'"
ROOM = "it has room for serving.maxBatchSize sequences of {} tokens: remove it, and write these"
BLS_LENGTH, LLMAPI_LENGTH = "target.engine.build.maxSeqLen", "runtime.extraLlmArgs.max_seq_len"
NOT_BUILT = "and profile 'torch' runs a model on at most 1 (splitting one never ran on GPUs)"

REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"target__tensorParallelSize": 2}, "TensorParallelNotInProfile", NOT_BUILT),
    ({"draft__tensorParallelSize": 2}, "TensorParallelNotInProfile", f"draft.tensorParallelSize is 2, {NOT_BUILT}"),
    (
        {"target__pipelineParallelSize": 2},
        "TensorParallelNotInProfile",
        "target.pipelineParallelSize is 2, and profile 'torch' has no pipeline stages: write 1, or another profile",
    ),
    ({"target__dtype": "float16"}, "FieldNotInProfile", f"target.dtype float16 {NOT_FOR}: a checkpoint runs in its"),
    ({"draft__dtype": "bfloat16"}, "FieldNotInProfile", f"draft.dtype bfloat16 {NOT_FOR}"),
    ({**LLMAPI, "target__dtype": "float32"}, "FieldNotInProfile", f"target.dtype float32 {NOT_FOR}"),
    (
        {"target__kvCache": {"maxTokens": 100}},
        "FieldNotInProfile",
        f"target.kvCache.maxTokens {NOT_FOR}: {ROOM.format(BLS_LENGTH)}",
    ),
    (
        {**LLMAPI, "target__kvCache": {"maxTokens": 100}},
        "FieldNotInProfile",
        f"target.kvCache.maxTokens {NOT_FOR}: {ROOM.format(LLMAPI_LENGTH)}",
    ),
    (
        {"draft__kvCache": {"freeGpuMemoryFraction": 0.2}},
        "FieldNotInProfile",
        f"draft.kvCache.freeGpuMemoryFraction {NOT_FOR}",
    ),
    ({"target__kvCache": {"enableBlockReuse": False}}, "FieldNotInProfile", "enableBlockReuse false"),
    (
        {"target__engine": {"prebuilt": {"uri": "file:///engine"}}},
        "FieldNotInProfile",
        f"target.engine.prebuilt {NOT_FOR}: it runs checkpoints: remove it",
    ),
    (
        {"target__engine": {"build": {"maxSeqLen": 4096, "maxInputLen": 100}}},
        "FieldNotInProfile",
        f"target.engine.build.maxInputLen {NOT_FOR}: remove it",
    ),
    (
        {"draft__engine": {"build": {"maxSeqLen": 4096}}},
        "FieldNotInProfile",
        f"draft.engine.build.maxSeqLen {NOT_FOR}: remove it; {BLS_LENGTH} is for both models",
    ),
    (
        {**LLMAPI, "speculation": {"decodingType": "Eagle3", "maxDraftLen": 3}},
        "DecodingTypeNotInProfile",
        "profile 'torch' cannot run decodingType Eagle3 in mode LLMAPI: write speculation.decodingType:"
        " DraftTarget or NGram or None",
    ),
    (
        {**ALONE, "speculation": {"decodingType": "Lookahead"}},
        "DecodingTypeNotInProfile",
        "profile 'torch' cannot run decodingType Lookahead in mode BLS: write speculation.decodingType:"
        " DraftTarget or None, or another profile",
    ),
    (
        {"speculation__acceptance": {"method": "Logits", "fastLogits": True}},
        "FastLogitsNotInProfile",
        "acceptance.fastLogits is for TensorRT engines",
    ),
    (
        {"placement__gpu__product": ["Tesla-T4"]},
        "GpuTooOld",
        "has compute capability 7.5, and the engine of profile torch needs 8.0",
    ),
]


@pytest.mark.parametrize(
    ("changes", "reason", "message"), REFUSED, ids=[f"{row[1]} {i}" for i, row in enumerate(REFUSED)]
)
def test_refused(changes: dict[str, Any], reason: str, message: str, settings: Settings) -> None:
    refusal = accept(parse(QUICKSTART, **{**TORCH, **changes}).spec, settings)
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, message in refusal.message) == (reason, True), refusal.message


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"target__engine": {"build": {"maxSeqLen": 4096, "extraArgs": {}}}},
        {"placement__strategy": "Separate"},
        {"target__kvCache": {"enableBlockReuse": True}},
        {**ALONE, "speculation": {"decodingType": "None"}},
        LLMAPI,
        {**LLMAPI, "runtime__extraLlmArgs": {"max_seq_len": 4096}},
        {**LLMAPI, **ALONE, "speculation": {"decodingType": "NGram", "maxDraftLen": 4}},
        {**LLMAPI, **ALONE, "speculation": {"decodingType": "None"}},
    ],
    ids=str,
)
def test_accepted(changes: dict[str, Any], settings: Settings) -> None:
    found = accept(parse(QUICKSTART, **{**TORCH, **changes}).spec, settings)
    assert isinstance(found, Accepted), found


def test_the_engine_on_cpus_takes_what_it_took(settings: Settings) -> None:
    for changes in ({"target__dtype": "float32"}, {"target__kvCache": {"maxTokens": 100}}):
        assert isinstance(accept(parse(QUICKSTART, **changes).spec, settings), Accepted)
