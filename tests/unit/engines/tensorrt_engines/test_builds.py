"""Engines: the commands that build each, as the guides give them; what makes an engine another; what is refused."""

from dataclasses import replace
from typing import Any

import pytest

from support.gpu_services import ALONE, CPU, FAST, PAIR, PROFILE, sizes
from support.services import parse
from tandem.api.folders import folders
from tandem.api.profile import Profile
from tandem.api.roles import Role
from tandem.api.types import Lookahead, ServiceSpec
from tandem.engines import engine_of
from tandem.engines.rule import Refusal
from tandem.engines.tensorrt_engines import rules
from tandem.engines.tensorrt_engines.builds import Build, builds, engine_folders, lookahead_max_draft_len, step_tokens

FETCHED = {Role.TARGET: "/cache/models/t", Role.DRAFT: "/cache/models/d"}
LIMITS: dict[str, Any] = {"build": {"maxInputLen": 3200, "maxSeqLen": 4800, "maxNumTokens": 8192}}
LOGITS: dict[str, Any] = {"speculation__acceptance": {"method": "Logits"}}
MEDUSA: dict[str, Any] = {
    "draft": None,
    "speculation": {"decodingType": "Medusa", "medusa": {"choices": [[0], [0, 0], [1]], "numHeads": 3}},
}
LOOKAHEAD: dict[str, Any] = {"draft": None, "speculation": {"decodingType": "Lookahead"}}


def made(profile: Profile = PROFILE, image: str = "trtllm:1", **changes: Any) -> dict[Role, Build]:
    spec = parse(PAIR, **changes).spec
    return engine_of(spec, profile).builds(spec, image, folders(spec, FETCHED))


def broken(spec: ServiceSpec, profile: Profile) -> list[Refusal]:
    """The rules that it breaks."""
    engine = engine_of(spec, profile)
    return [refusal for rule in engine.rules if (refusal := rule(spec, engine))]


def warned_of(spec: ServiceSpec) -> list[str]:
    """What TensorRT engines do that one might not expect."""
    return [text for warn in rules.WARNINGS if (text := warn(spec, engine_of(spec, PROFILE)))]


def commands(build: Build) -> str:
    """Both commands without the folders: the model is M, what is written K/..., one command a line."""
    lines = [" ".join(["convert", *build.convert]), " ".join(["trtllm-build", *build.build])]
    text = "\n".join(lines).replace(build.folder.removesuffix("/engine"), "K")
    return text.replace(build.model, "M")


# The reason, what the resource says, role, the commands.
COMMANDS: list[tuple[str, dict[str, Any], Role, str]] = [
    (
        "the target verifies tokens from outside",
        {"target__engine": LIMITS, "speculation__maxDraftLen": 10},
        Role.TARGET,
        "convert --model_dir=M --output_dir=K/.partial/checkpoint --tp_size=1 --pp_size=1 --workers=1 --dtype=auto\n"
        "trtllm-build --checkpoint_dir=K/.partial/checkpoint --output_dir=K/.partial/engine --max_batch_size=16"
        " --max_input_len=3200 --max_seq_len=4800 --max_num_tokens=8192 --max_beam_width=1"
        " --use_paged_context_fmha=enable --speculative_decoding_mode=draft_tokens_external --max_draft_len=10"
        " --workers=1 --gemm_plugin=auto",
    ),
    (
        "a long text fits into a batch as a whole",
        {"target__engine": {"build": {"maxSeqLen": 32768}}},
        Role.TARGET,
        "convert --model_dir=M --output_dir=K/.partial/checkpoint --tp_size=1 --pp_size=1 --workers=1 --dtype=auto\n"
        "trtllm-build --checkpoint_dir=K/.partial/checkpoint --output_dir=K/.partial/engine --max_batch_size=16"
        " --max_input_len=32767 --max_seq_len=32768 --max_num_tokens=32768 --max_beam_width=1"
        " --use_paged_context_fmha=enable --speculative_decoding_mode=draft_tokens_external --max_draft_len=4"
        " --workers=1 --gemm_plugin=auto",
    ),
    (
        "the draft is an ordinary engine",
        {"draft__dtype": "float16", "serving": {"maxBatchSize": 4}},
        Role.DRAFT,
        "convert --model_dir=M --output_dir=K/.partial/checkpoint --tp_size=1 --pp_size=1 --workers=1"
        " --dtype=float16\n"
        "trtllm-build --checkpoint_dir=K/.partial/checkpoint --output_dir=K/.partial/engine --max_batch_size=4"
        " --max_beam_width=1 --use_paged_context_fmha=enable --workers=1 --gemm_plugin=auto",
    ),
    (
        "by logits the draft gives its logits out",
        LOGITS,
        Role.DRAFT,
        "convert --model_dir=M --output_dir=K/.partial/checkpoint --tp_size=1 --pp_size=1 --workers=1 --dtype=auto\n"
        "trtllm-build --checkpoint_dir=K/.partial/checkpoint --output_dir=K/.partial/engine --max_batch_size=16"
        " --max_beam_width=1 --use_paged_context_fmha=enable --gather_generation_logits --workers=1"
        " --gemm_plugin=auto",
    ),
    (
        "by logits, fast or not, with TP 4: a file for each rank, built side by side; further flags by the user",
        {
            **FAST,
            **sizes(4),
            "target__engine": {"build": {"extraArgs": {"gemm_plugin": "bfloat16", "weight_sparsity": ""}}},
        },
        Role.TARGET,
        "convert --model_dir=M --output_dir=K/.partial/checkpoint --tp_size=4 --pp_size=1 --workers=4 --dtype=auto\n"
        "trtllm-build --checkpoint_dir=K/.partial/checkpoint --output_dir=K/.partial/engine --max_batch_size=16"
        " --max_beam_width=1 --use_paged_context_fmha=enable --speculative_decoding_mode=draft_tokens_external"
        " --max_draft_len=4 --gather_generation_logits --workers=4 --gemm_plugin=bfloat16 --weight_sparsity",
    ),
    (
        "the target alone needs nothing of speculation; without maxInputLen a prompt may fill all but one token",
        {**ALONE, "target__pipelineParallelSize": 2, "target__engine": {"build": {"maxSeqLen": 2048}}},
        Role.TARGET,
        "convert --model_dir=M --output_dir=K/.partial/checkpoint --tp_size=1 --pp_size=2 --workers=2 --dtype=auto\n"
        "trtllm-build --checkpoint_dir=K/.partial/checkpoint --output_dir=K/.partial/engine --max_batch_size=16"
        " --max_input_len=2047 --max_seq_len=2048 --max_beam_width=1 --use_paged_context_fmha=enable --workers=2"
        " --gemm_plugin=auto",
    ),
    (
        "Medusa's heads are converted with the model; its script knows no dtype auto",
        MEDUSA,
        Role.TARGET,
        "convert --model_dir=M --output_dir=K/.partial/checkpoint --tp_size=1 --pp_size=1 --workers=1"
        " --medusa_model_dir=M --num_medusa_heads=3 --max_medusa_token_len=3\n"
        "trtllm-build --checkpoint_dir=K/.partial/checkpoint --output_dir=K/.partial/engine --max_batch_size=16"
        " --max_beam_width=1 --use_paged_context_fmha=enable --speculative_decoding_mode=medusa --max_draft_len=3"
        " --workers=1 --gemm_plugin=auto",
    ),
    (
        "Lookahead of 7, 7, 7 drafts 83 tokens, as the guide says",
        LOOKAHEAD,
        Role.TARGET,
        "convert --model_dir=M --output_dir=K/.partial/checkpoint --tp_size=1 --pp_size=1 --workers=1 --dtype=auto\n"
        "trtllm-build --checkpoint_dir=K/.partial/checkpoint --output_dir=K/.partial/engine --max_batch_size=16"
        " --max_beam_width=1 --use_paged_context_fmha=enable --speculative_decoding_mode=lookahead_decoding"
        " --max_draft_len=83 --workers=1 --gemm_plugin=auto",
    ),
]


@pytest.mark.parametrize(("changes", "role", "text"), [row[1:] for row in COMMANDS], ids=[row[0] for row in COMMANDS])
def test_commands(changes: dict[str, Any], role: Role, text: str) -> None:
    assert commands(made(**changes)[role]) == text


H100: dict[str, Any] = {"placement__gpu": {"product": ["NVIDIA-H100-80GB-HBM3"]}}
A10: dict[str, Any] = {"placement__gpu": {"product": ["NVIDIA-A10"]}}
SLICE: dict[str, Any] = {"placement__gpu": {**H100["placement__gpu"], "resourceName": "nvidia.com/mig-1g.10gb"}}
# what the resource says, of the target's build too, tokens of a step, why; 16 sequences
STEPS: list[tuple[dict[str, Any], dict[str, Any], int, str]] = [
    (H100, {"maxSeqLen": 1000}, 16_000, "all texts fit, with their draft tokens"),
    (H100, {"maxSeqLen": 400}, 8192, "no less than trtllm-build's own: prompts come too"),
    (H100, {"maxSeqLen": 4096}, 32_768, "a tenth of 80 GiB at 256 KiB a token"),
    (A10, {"maxSeqLen": 4096}, 9830, "of 24 GiB"),
    (A10, {"maxSeqLen": 16_384}, 16_384, "a text fits as a whole in any case"),
    (SLICE, {"maxSeqLen": 1000}, 8192, "the memory of a slice is not known"),
    ({"placement__gpu": {"memoryGiB": 40}}, {"maxSeqLen": 4096}, 16_384, "it is, where it is given"),
    ({}, {"maxSeqLen": 1000}, 8192, "nor that of any GPU"),
    (H100, {}, 8192, "how long texts are is not known"),
    (H100, {"maxSeqLen": 1000, "maxBatchSize": 32}, 32_000, "the engine's own batch"),
    (H100, {"maxSeqLen": 4096, "maxNumTokens": 2048}, 2048, "what the resource says"),
    ({**ALONE, **H100}, {"maxSeqLen": 1000}, 8192, "without a draft a text comes once"),
]


@pytest.mark.parametrize(("changes", "build", "tokens", "why"), STEPS)
def test_tokens_of_a_step(changes: dict[str, Any], build: dict[str, Any], tokens: int, why: str) -> None:
    changes = {**changes, "target__engine": {"build": build}} if build else changes
    assert step_tokens(parse(PAIR, **changes).spec, Role.TARGET) == tokens, why


def test_medusas_heads_from_elsewhere() -> None:
    """A claim's folder is named by its role alone: other heads are another engine by their URI."""
    medusa = MEDUSA["speculation"]["medusa"]
    claims = [{**medusa, "heads": {"uri": uri}} for uri in ("pvc://models/a", "pvc://models/b")]
    builds = [
        made(**MEDUSA)[Role.TARGET],
        *(made(**MEDUSA, speculation__medusa=heads)[Role.TARGET] for heads in claims),
    ]
    options = [[word for word in build.convert if "medusa_model_dir" in word] for build in builds]
    assert options == [[f"--medusa_model_dir={builds[0].model}"], *[["--medusa_model_dir=/sources/medusa-heads"]] * 2]
    assert len({build.folder for build in builds}) == 3


def test_medusa_has_its_own_script_and_the_others_the_architectures() -> None:
    assert made(**MEDUSA)[Role.TARGET].script == "/app/examples/medusa/convert_checkpoint.py"
    assert made(**LOOKAHEAD)[Role.TARGET].script == ""


@pytest.mark.parametrize(
    ("sizes", "length"),
    [((7, 7, 7), 83), ((2, 2, 1), 2), ((1, 1, 1), 0), ((4, 1, 8), 0), ((3, 5, 2), 19)],
    ids=str,
)
def test_draft_tokens_of_lookahead(sizes: tuple[int, int, int], length: int) -> None:
    window, ngram, verification = sizes
    lookahead = Lookahead(window_size=window, ngram_size=ngram, verification_set_size=verification)
    assert lookahead_max_draft_len(lookahead) == length


@pytest.mark.parametrize(
    ("changes", "same", "reason"),
    [
        ({"draft__model__uri": "hf://org/other"}, True, "the draft is another engine"),
        ({"replicas": 3, "speculation__adaptive": {"enabled": False}}, True, "nothing that the engine knows"),
        ({"speculation__maxDraftLen": 5}, False, "built for more draft tokens"),
        ({"placement__gpu": {"product": ["NVIDIA-H200"]}}, False, "another GPU"),
        ({"placement__gpu": {"resourceName": "nvidia.com/mig-3g.40gb"}}, False, "a slice is another GPU"),
        ({"serving": {"maxBatchSize": 32}}, False, "built for more sequences"),
        ({"target__model__uri": "file:///models/t"}, False, "another folder"),
    ],
)
def test_what_makes_another_engine(changes: dict[str, Any], same: bool, reason: str) -> None:
    assert (made(**changes)[Role.TARGET].folder == made()[Role.TARGET].folder) is same, reason


def test_another_image_or_another_content_is_another_engine() -> None:
    base = made()[Role.TARGET].folder
    assert made(image="trtllm:2")[Role.TARGET].folder != base
    spec = parse(PAIR).spec
    other = builds(spec, "trtllm:1", folders(spec, {**FETCHED, Role.TARGET: "/cache/models/u"}))
    assert other[Role.TARGET].folder != base


def test_claims_mounted_at_the_same_place_are_not_the_same_model() -> None:
    first, second = (made(target__model__uri=f"pvc://{claim}/llama")[Role.TARGET] for claim in ("one", "two"))
    assert replace(first, folder="", convert=(), build=()) == replace(second, folder="", convert=(), build=())
    assert first.folder != second.folder


def test_an_engine_that_is_brought_along_is_not_built() -> None:
    changes: dict[str, Any] = {"target__engine": {"prebuilt": {"uri": "pvc://engines/llama"}}}
    spec = parse(PAIR, **changes).spec
    where = engine_folders(spec, "trtllm:1", folders(spec, FETCHED))
    assert list(made(**changes)) == [Role.DRAFT]
    assert where == {Role.TARGET: "/sources/target-engine", Role.DRAFT: made(**changes)[Role.DRAFT].folder}


@pytest.mark.parametrize(("profile", "mode"), [(CPU, "BLS"), (PROFILE, "LLMAPI")])
def test_without_tensorrt_there_is_nothing_to_build(profile: Profile, mode: str) -> None:
    assert made(profile, runtime__mode=mode) == {}


def target(**build: Any) -> dict[str, Any]:
    return {"target__engine": {"build": build}}


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (
        "EngineFlagReserved",
        target(extraArgs={"max_draft_len": "9"}),
        "target.engine.build.extraArgs has max_draft_len, which the resource decides: write speculation.maxDraftLen"
        " instead",
    ),
    (
        "EngineFlagReserved",
        target(extraArgs={"max_seq_len": "9"}),
        "target.engine.build.extraArgs has max_seq_len, which the resource decides: write engine.build.maxSeqLen"
        " instead",
    ),
    (
        "EngineFlagReserved",
        {"draft__engine": {"build": {"extraArgs": {"output_dir": "/etc"}}}},
        "draft.engine.build.extraArgs has output_dir, which the resource decides: remove it",
    ),
    (
        "EngineParameterReserved",
        {"target__engine": {"parameters": {"max_beam_width": "2", "gpu_device_ids": "0", "cuda_graph_mode": "true"}}},
        "target.engine.parameters has what the resource decides: remove it, and write the fields instead:"
        " gpu_device_ids (placement), max_beam_width (no field: it is fixed)",
    ),
    (
        "EngineParameterReserved",
        {"draft__engine": {"build": {}, "parameters": {"max_tokens_in_paged_kv_cache": "9"}}},
        "draft.engine.parameters has what the resource decides: remove it, and write the fields instead:"
        " max_tokens_in_paged_kv_cache (kvCache.maxTokens)",
    ),
    (
        "Fp8NeedsCalibration",
        {"draft__dtype": "fp8"},
        "draft.dtype fp8 needs a calibration with sample texts, which no build Job makes: write dtype: auto,"
        " bring the engine as engine.prebuilt, or write runtime.mode: LLMAPI with a checkpoint in FP8",
    ),
    (
        "MaxInputLenTooLarge",
        target(maxInputLen=4096, maxSeqLen=4096),
        "target.engine.build.maxInputLen is 4096 and maxSeqLen, of prompt and output together, 4096: write a larger"
        " maxSeqLen or a smaller maxInputLen",
    ),
    (
        "EngineBatchTooSmall",
        target(maxBatchSize=8),
        "target.engine.build.maxBatchSize is 8 and serving.maxBatchSize 16: the engine would run fewer sequences than"
        " the server takes; make them equal",
    ),
]


@pytest.mark.parametrize(("reason", "changes", "message"), REFUSED)
def test_refused(reason: str, changes: dict[str, Any], message: str) -> None:
    spec = parse(PAIR, **changes).spec
    refusals = broken(spec, PROFILE)
    assert [(refusal.reason, refusal.message) for refusal in refusals] == [(reason, message)]
    of_cpu = [refusal.reason for refusal in broken(spec, CPU)]
    assert of_cpu == (["FieldNotInProfile"] if "Parameter" in reason else []), "no engine, no rule"


def test_parameters_are_for_tensorrt_engines() -> None:
    spec = parse(PAIR, target__engine={"parameters": {"cuda_graph_mode": "true"}}).spec
    assert broken(spec, PROFILE) == []
    (refusal,) = broken(spec, CPU)
    assert refusal.message == (
        f"target.engine.parameters are for TensorRT engines, which profile {CPU.name!r} does not run: remove them, or"
        " write another profile"
    )


@pytest.mark.parametrize(
    ("value", "drafts", "warned"), [("true", True, True), ("false", True, False), ("true", False, False)]
)
def test_chunked_context_under_drafts_is_warned_of(value: str, drafts: bool, warned: bool) -> None:
    alone: dict[str, Any] = {} if drafts else {"draft": None, "speculation": {"decodingType": "None"}}
    spec = parse(PAIR, target__engine={"parameters": {"enable_chunked_context": value}}, **alone).spec
    texts = warned_of(spec)
    assert any("drops draft tokens" in text for text in texts) is warned


@pytest.mark.parametrize("changes", [row[1] for row in COMMANDS], ids=[row[0] for row in COMMANDS])
def test_what_can_be_built_is_not_refused(changes: dict[str, Any]) -> None:
    assert broken(parse(PAIR, **changes).spec, PROFILE) == []


@pytest.mark.parametrize(
    ("products", "count"),
    [([], "no products"), (["A", "B"], "2 products"), (["A"], None)],
    ids=["none", "two", "one"],
)
def test_engines_for_several_gpus_are_warned_of(products: list[str], count: str) -> None:
    spec = parse(PAIR, placement__gpu={"product": products}).spec
    texts = [text for text in warned_of(spec) if "products" in text]
    assert [count in text for text in texts] == ([True] if count else [])


NARROW: list[tuple[dict[str, Any], str]] = [
    (
        target(maxSeqLen=2000, maxNumTokens=8192),
        "target.engine.build.maxNumTokens is 8192: a step takes 4 of 16 texts of maxSeqLen (2000), and 16 of 512"
        " tokens; write 32000, or leave it out",
    ),
    (target(maxSeqLen=2000, maxNumTokens=32_000), ""),
    (target(maxSeqLen=2000), ""),
    (target(maxNumTokens=8192), ""),
    ({**ALONE, **target(maxSeqLen=2000, maxNumTokens=8192)}, ""),
    ({"target__engine": {"prebuilt": {"uri": "pvc://engines/llama"}}}, ""),
]


@pytest.mark.parametrize(
    ("changes", "text"),
    NARROW,
    ids=["too few", "enough", "chosen by Tandem", "no length", "without a draft", "brought along"],
)
def test_steps_that_do_not_take_all_rounds_are_warned_of(changes: dict[str, Any], text: str) -> None:
    spec = parse(PAIR, **{**H100, **changes}).spec
    assert [each for each in warned_of(spec) if "a step takes" in each] == ([text] if text else [])
