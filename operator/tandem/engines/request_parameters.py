"""Which parameters of a request an engine follows: one table by kind of engine, version and decoding type. Pure.

The renderer sets the switches of `TABLE` and gives the servers the parameters that would have no effect, so that they
refuse them by name (`render.v1.request_parameters`); the docs' page comes from it (`request_parameters_page`), and
`tandem conformance` tries what it says. It shapes revisions: see docs/contributing.md.

Upstream's sources and pull requests were read on 2026-11-28; nothing of it has run here. For 1.2.1 they are:
`DecodingBaseConfig.allow_advanced_sampling`, false by default (llmapi/llm_args.py);
`SpecMetadata.populate_sampling_params_for_one_model` and `SpecWorkerBase._sample_tokens_for_batch`, which know
temperature, top-k and top-p and take the argmax without that switch (_torch/speculative/interface.py);
`_request_get_sampling_params` and the one generator of TorchSampler (_torch/pyexecutor/sampler.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tandem.api.decoding import DecodingType, Dialect, Mode
from tandem.api.profile import Profile
from tandem.api.sampling_parameters import of_mode
from tandem.api.types import ServiceSpec

SPECULATION = "speculative_config"
SAMPLING = ("temperature", "top_k", "top_p")
PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")
PARAMETERS = {mode: tuple(parameter.name for parameter in of_mode(mode)) for mode in (Mode.BLS, Mode.LLMAPI)}
"""By mode: those that its models have an input for. OpenAI's and vLLM's names."""


class Outcome(StrEnum):
    """What becomes of a parameter."""

    WORKS = "works"
    PARTLY = "partly"
    """Works within the limits that the reason states; it is passed on."""
    SWITCH = "switch"
    """Works with the engine's switch, which Tandem sets."""
    IGNORED = "ignored"
    """The engine drops it without a word: Tandem refuses it."""
    REFUSED = "refused"
    """The engine refuses it, or fails: Tandem refuses it before."""


@dataclass(frozen=True)
class Entry:
    """What becomes of a parameter in an engine, the subject of `reason`. `source`: where upstream says so."""

    outcome: Outcome
    reason: str = ""
    source: str = ""


class Engine(StrEnum):
    """A kind of engine, as far as parameters of requests depend on it; its title in the docs."""

    TENSORRT = "TensorRT engines"
    MEDUSA = "TensorRT engines, Medusa"
    LOOKAHEAD = "TensorRT engines, Lookahead"
    OWN_BLS = "Tandem's engine, mode BLS"
    TORCH_1_2 = "1.2"
    CPP_1_2 = "1.2, TRTLLMSampler"
    ONE_MODEL_1_2 = "1.2, one model"
    TORCH_1_3 = "1.3, 1.4"
    ONE_MODEL_1_3 = "1.3, 1.4, one model"
    TREE_1_3 = "1.3, 1.4, dynamic tree"
    RELAXED = "relaxed acceptance"
    OWN_LLMAPI = "Tandem's engine, mode LLMAPI"
    UNKNOWN = "a type that only the image knows"


@dataclass(frozen=True)
class Facts:
    """What is known of a kind of engine. `used`: when it is that kind; `entries`: of parameters that do not simply
    work; `switch`: the field of `speculative_config` behind Outcome.SWITCH; `instead`: what to do about parameters
    without effect, `to_draw` about those of SAMPLING."""

    mode: Mode
    used: str
    entries: Mapping[str, Entry] = field(default_factory=dict)
    switch: str = ""
    instead: str = "leave it out"
    to_draw: str = ""

    def entry(self, parameter: str) -> Entry:
        """What becomes of a parameter."""
        return self.entries.get(parameter, Entry(Outcome.WORKS))


def _all(names: tuple[str, ...], outcome: Outcome, reason: str, source: str) -> dict[str, Entry]:
    return dict.fromkeys(names, Entry(outcome, reason, source))


_PULL = "https://github.com/NVIDIA/TensorRT-LLM/pull"
_CODE = "https://github.com/NVIDIA/TensorRT-LLM/blob/v1.2.1"
_INTERFACE = f"{_CODE}/tensorrt_llm/_torch/speculative/interface.py"
_MODES = f"{_CODE}/cpp/include/tensorrt_llm/executor/types.h"
_LAYERS = f"{_CODE}/cpp/tensorrt_llm/layers"
_BEAMS = {"length_penalty": Entry(Outcome.IGNORED, "uses it for beams only, and there are none")}


def _in_engine(layer: str) -> dict[str, Entry]:
    """Of an engine that drafts by itself, in a layer of its own."""
    unchanged = (*PENALTIES, "bad_words", "embedding_bias")
    return {
        **_all(unchanged, Outcome.IGNORED, "has no step that changes logits", _MODES),
        "logprobs": Entry(Outcome.IGNORED, "computes no log probabilities", layer),
        **_BEAMS,
    }


_MEDUSA, _LOOKAHEAD = f"{_LAYERS}/medusaDecodingLayer.cpp", f"{_LAYERS}/lookaheadDecodingLayer.cpp"
_NOT_ONE_MODEL = {
    **_all(("min_p", "min_tokens", "bad_words"), Outcome.IGNORED, "drops it", f"{_PULL}/17955"),
    **_all(("logprobs", "best_of"), Outcome.REFUSED, "computes no log probabilities", f"{_PULL}/17955"),
}
_NOT_ONE_MODEL_1_3 = {
    **_NOT_ONE_MODEL,
    **_all(("min_p", "min_tokens", "bad_words"), Outcome.REFUSED, "refuses it", f"{_PULL}/17955"),
}
_ALONE = "repeats a text only where the request is the first of its batch: the sampling kernels read one seed a call"
_SEED_1_3 = {"seed": Entry(Outcome.PARTLY, _ALONE, "https://github.com/flashinfer-ai/flashinfer/pull/2345")}
_PROMPT_COUNTS = "counts the prompt's tokens, too, so that a long prompt leaves nothing of it"
_DROPS = {
    "seed": Entry(Outcome.IGNORED, "draws all requests from one generator", f"{_PULL}/17172"),
    **_all(PENALTIES, Outcome.IGNORED, "drops it", f"{_PULL}/16485"),
    "min_p": Entry(Outcome.IGNORED, "drops it", f"{_PULL}/16590"),
    "bad_words": Entry(Outcome.IGNORED, "drops it", f"{_PULL}/16052"),
    "min_tokens": Entry(Outcome.PARTLY, _PROMPT_COUNTS, f"{_PULL}/12166"),
}
_ONE_MODEL_DROPS = {
    "seed": Entry(Outcome.IGNORED, "draws all requests from one generator", f"{_PULL}/17599"),
    **_all(PENALTIES, Outcome.IGNORED, "drops it", f"{_PULL}/17701"),
}
_LIKELIEST = "compares drafts with the likeliest tokens, and draws none"

TABLE: Mapping[Engine, Facts] = {
    Engine.TENSORRT: Facts(
        Mode.BLS,
        "a profile with engineBackend tensorrtllm; decodingType DraftTarget or None",
        {
            "temperature": Entry(
                Outcome.PARTLY, "draws only where top_k or top_p is sent, too", f"{_LAYERS}/defaultDecodingParams.h"
            ),
            "logprobs": Entry(Outcome.PARTLY, "computes none where it verifies drafts; those requests are refused"),
            **_BEAMS,
        },
    ),
    Engine.MEDUSA: Facts(
        Mode.BLS,
        "decodingType Medusa",
        {
            **_all(("temperature", "top_p"), Outcome.IGNORED, "draws by top_k only", _MEDUSA),
            **_in_engine(_MEDUSA),
        },
        to_draw="send temperature 0, or temperature 1, top_p 1 and a top_k",
    ),
    Engine.LOOKAHEAD: Facts(
        Mode.BLS,
        "decodingType Lookahead",
        {**_all(SAMPLING, Outcome.IGNORED, _LIKELIEST, _LOOKAHEAD), **_in_engine(_LOOKAHEAD)},
        to_draw="send temperature 0",
    ),
    Engine.OWN_BLS: Facts(
        Mode.BLS,
        "a profile with engineBackend python (reference, torch)",
        {"temperature": Entry(Outcome.PARTLY, "draws only where top_k or top_p is sent, too"), **_BEAMS},
    ),
    Engine.TORCH_1_2: Facts(
        Mode.LLMAPI,
        "decodingType DraftTarget, NGram, UserProvided or None, or Eagle3 with oneModel false",
        _DROPS,
        instead="leave it out, or use mode BLS or TensorRT-LLM 1.3",
    ),
    Engine.CPP_1_2: Facts(Mode.LLMAPI, "decodingType None with runtime.extraLlmArgs.sampler_type TRTLLMSampler"),
    Engine.ONE_MODEL_1_2: Facts(
        Mode.LLMAPI,
        "decodingType Eagle3 or MTP",
        {
            **_all(SAMPLING, Outcome.SWITCH, "takes the likeliest token without it", _INTERFACE),
            **_ONE_MODEL_DROPS,
            **_NOT_ONE_MODEL,
        },
        switch="allow_advanced_sampling",
        instead="leave it out, or use mode BLS",
    ),
    Engine.TORCH_1_3: Facts(Mode.LLMAPI, "decodingType NGram, UserProvided or None", _SEED_1_3),
    Engine.ONE_MODEL_1_3: Facts(
        Mode.LLMAPI,
        "decodingType DraftTarget, Eagle3, MTP, DFlash, DSpark; Custom with type PARD or SA",
        {
            **_SEED_1_3,
            **_all(PENALTIES, Outcome.SWITCH, "refuses them without it", f"{_PULL}/17701"),
            **_NOT_ONE_MODEL_1_3,
        },
        switch="enable_penalty",
        instead="leave it out, or use decodingType NGram or None",
    ),
    Engine.TREE_1_3: Facts(
        Mode.LLMAPI,
        "speculation.eagle3.dynamicTreeMaxTopK",
        {
            **_SEED_1_3,
            **_all(PENALTIES, Outcome.REFUSED, "refuses them for trees", f"{_PULL}/17701"),
            **_NOT_ONE_MODEL_1_3,
        },
        instead="leave it out, or remove speculation.eagle3.dynamicTreeMaxTopK",
    ),
    Engine.RELAXED: Facts(
        Mode.LLMAPI,
        "speculation.mtp.relaxedAcceptance, in every version",
        {
            **_all(SAMPLING, Outcome.IGNORED, _LIKELIEST, f"{_CODE}/tensorrt_llm/_torch/speculative/mtp.py"),
            **_ONE_MODEL_DROPS,
            **_NOT_ONE_MODEL,
        },
        instead="leave it out, or remove speculation.mtp.relaxedAcceptance",
        to_draw="send temperature 0, or remove speculation.mtp.relaxedAcceptance",
    ),
    Engine.OWN_LLMAPI: Facts(
        Mode.LLMAPI,
        "a profile with llmPackage reference_llm (reference, torch)",
        {
            "min_p": Entry(Outcome.REFUSED, "does not have it"),
            "best_of": Entry(Outcome.REFUSED, "does not have it"),
        },
    ),
    Engine.UNKNOWN: Facts(Mode.LLMAPI, "Custom with any other type: all is passed on, and the engine decides"),
}
_TWO_MODELS = {
    Dialect.V1_2: ("DraftTarget", "NGram", "UserProvided", "AUTO"),
    Dialect.V1_3: ("NGram", "User_Provided", "AUTO"),
}
_ONE_MODEL = {
    Dialect.V1_2: ("Eagle", "MTP"),
    Dialect.V1_3: ("Draft_Target", "Eagle", "Eagle3", "MTP", "DFlash", "DSpark", "PARD", "SA"),
}
_IN_ENGINES = {DecodingType.MEDUSA: Engine.MEDUSA, DecodingType.LOOKAHEAD: Engine.LOOKAHEAD}
_APART = ("eagle3_one_model", "mtp_eagle_one_model")
"""Fields that 1.2 has: false means that drafts come from a model of their own."""


def engine_of(spec: ServiceSpec, profile: Profile, arguments: Mapping[str, Any]) -> Engine:
    """The kind of engine that serves `spec`. `arguments`: those of `LLM`, in mode LLMAPI."""
    if spec.runtime.mode is Mode.BLS:
        own = profile.engine_backend == "python"
        return Engine.OWN_BLS if own else _IN_ENGINES.get(spec.speculation.decoding_type, Engine.TENSORRT)
    if profile.llm_package != "tensorrt_llm":
        return Engine.OWN_LLMAPI
    speculation = arguments.get(SPECULATION) or {}
    if speculation.get("use_relaxed_acceptance_for_thinking"):
        return Engine.RELAXED
    old = profile.llm_args is Dialect.V1_2
    if old and not speculation and arguments.get("sampler_type") == "TRTLLMSampler":
        return Engine.CPP_1_2
    kind, dialect = speculation.get("decoding_type"), Dialect.V1_2 if old else Dialect.V1_3
    if not speculation or kind in _TWO_MODELS[dialect] or any(speculation.get(name) is False for name in _APART):
        return Engine.TORCH_1_2 if old else Engine.TORCH_1_3
    if kind not in _ONE_MODEL[dialect]:
        return Engine.UNKNOWN
    if old:
        return Engine.ONE_MODEL_1_2
    return Engine.TREE_1_3 if speculation.get("use_dynamic_tree") else Engine.ONE_MODEL_1_3


def with_switch(engine: Engine, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `LLM` with the engine's switch on, unless they have it. null leaves it out: release candidates
    before 1.3.0rc27 do not know `enable_penalty`."""
    name, speculation = TABLE[engine].switch, arguments.get(SPECULATION)
    if not name or not speculation:
        return dict(arguments)
    switched = {**speculation, name: speculation.get(name, True)}
    return {**arguments, SPECULATION: {k: v for k, v in switched.items() if k != name or v is not None}}


def refused(spec: ServiceSpec, profile: Profile, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Parameters that would have no effect, and why and what to do: a clause behind "NAME is not supported: "."""
    engine = engine_of(spec, profile, arguments)
    facts, subject = TABLE[engine], _subject(spec, profile)
    on = bool((arguments.get(SPECULATION) or {}).get(facts.switch))
    found: dict[str, str] = {}
    for name in PARAMETERS[facts.mode]:
        entry = facts.entry(name)
        if entry.outcome in (Outcome.IGNORED, Outcome.REFUSED):
            instead = facts.to_draw if name in SAMPLING else facts.instead
            found[name] = f"{subject} {entry.reason}; {instead}"
        elif entry.outcome is Outcome.SWITCH and not on:
            why = entry.reason.replace("without it", f"without runtime.extraLlmArgs.{SPECULATION}.{facts.switch}")
            found[name] = f"{subject} {why}; leave it out, or remove that"
    return found


def _subject(spec: ServiceSpec, profile: Profile) -> str:
    kind = spec.speculation.decoding_type
    decoding = "without speculation" if kind is DecodingType.NONE else f"with decodingType {kind}"
    if profile.engine_backend == "python" and not profile.tensorrt_llm_version:
        return f"the engine of profile {profile.name} {decoding}"
    version = f" {profile.tensorrt_llm_version or profile.llm_args}".rstrip()
    return f"TensorRT-LLM{version} (mode {spec.runtime.mode}, {decoding})"
