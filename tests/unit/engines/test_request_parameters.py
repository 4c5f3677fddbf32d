"""The table of request parameters: which engine a resource makes, its switch, what is refused, and the page."""

from pathlib import Path
from typing import Any

import pytest

from support.services import parse
from tandem.accept import Accepted, accept
from tandem.api.roles import Role, references
from tandem.api.types import ServiceSpec
from tandem.engines import KINDS, Engine, engine_of
from tandem.engines.own import TandemBls, TandemLlmApi
from tandem.engines.request_parameters import PARAMETERS, SAMPLING, Facts, Outcome
from tandem.engines.request_parameters_page import page
from tandem.engines.tensorrt_engines import parameters as trt
from tandem.engines.tensorrt_llm import parameters as llm
from tandem.engines.tensorrt_llm.dialect import Dialect
from tandem.settings import Settings

(OWN_BLS,), (OWN_LLMAPI,) = TandemBls.parameters.values(), TandemLlmApi.parameters.values()
BASE = """
apiVersion: serving.tandem.dev/v1alpha1
kind: SpeculativeInferenceService
metadata: {name: llama, namespace: default}
spec:
  runtime: {mode: LLMAPI, profile: trtllm-26.07, image: registry.example/tritonserver:own}
  target: {model: {uri: file:///models/t}}
  speculation: {decodingType: None}
"""
PENALTIES = {"repetition_penalty", "presence_penalty", "frequency_penalty"}
DRAWS = {"temperature", "top_k", "top_p"}
NO_LOG_PROBS = {"logprobs", "best_of"}
NOT_ONE_MODEL = {"min_p", "min_tokens", "bad_words"} | NO_LOG_PROBS
OF_1_2 = PENALTIES | {"seed", "min_p", "bad_words"}


def kind(name: str, **details: Any) -> dict[str, Any]:
    draft = {"draft": {"model": {"uri": "file:///models/d"}}} if name in ("DraftTarget", "Eagle3", "DFlash") else {}
    return {"speculation": {"decodingType": name, "maxDraftLen": 4, **details}, **draft}


def extra(**args: Any) -> dict[str, Any]:
    return {"runtime__extraLlmArgs": args}


def speculative(**args: Any) -> dict[str, Any]:
    return extra(speculative_config=args)


RELAXED = kind("MTP", mtp={"relaxedAcceptance": {}})
TREE = kind("Eagle3", eagle3={"dynamicTreeMaxTopK": 4})
ROWS: list[tuple[str, str, dict[str, Any], Facts, dict[str, Any], set[str]]] = [
    # why, profile, changes of BASE, engine, switches that are rendered, parameters that are refused
    ("no speculation", "trtllm-26.07", {}, llm.TORCH_1_2, {}, OF_1_2),
    ("a draft model is one of its own", "trtllm-26.07", kind("DraftTarget"), llm.TORCH_1_2, {}, OF_1_2),
    ("n-grams come from the host", "trtllm-26.07", kind("NGram"), llm.TORCH_1_2, {}, OF_1_2),
    (
        "EAGLE-3 in the target's engine takes the argmax without a switch",
        "trtllm-26.07",
        kind("Eagle3"),
        llm.ONE_MODEL_1_2,
        {"allow_advanced_sampling": True},
        PENALTIES | {"seed"} | NOT_ONE_MODEL,
    ),
    (
        "so does MTP",
        "trtllm-26.07",
        kind("MTP"),
        llm.ONE_MODEL_1_2,
        {"allow_advanced_sampling": True},
        PENALTIES | {"seed"} | NOT_ONE_MODEL,
    ),
    (
        "the user's own value stays: samples are refused then",
        "trtllm-26.07",
        kind("MTP") | speculative(allow_advanced_sampling=False),
        llm.ONE_MODEL_1_2,
        {"allow_advanced_sampling": False},
        DRAWS | PENALTIES | {"seed"} | NOT_ONE_MODEL,
    ),
    ("two models", "trtllm-26.07", kind("Eagle3", eagle3={"oneModel": False}), llm.TORCH_1_2, {}, OF_1_2),
    ("the old sampler", "trtllm-26.07", extra(sampler_type="TRTLLMSampler"), llm.CPP_1_2, {}, set()),
    (
        "relaxed acceptance draws nothing",
        "trtllm-26.07",
        RELAXED,
        llm.RELAXED,
        {},
        DRAWS | PENALTIES | {"seed"} | NOT_ONE_MODEL,
    ),
    ("1.3 alone", "trtllm-1.3", {}, llm.TORCH_1_3, {}, set()),
    ("1.3 with n-grams", "trtllm-1.3", kind("NGram"), llm.TORCH_1_3, {}, set()),
    *(
        (
            f"{version}: {name} is one model",
            version,
            kind(name),
            llm.ONE_MODEL_1_3,
            {"enable_penalty": True},
            found,
        )
        for version in ("trtllm-1.3", "trtllm-1.4rc")
        for name in ("DraftTarget", "Eagle3", "MTP", "DFlash", "DSpark")
        for found in [NOT_ONE_MODEL]
    ),
    (
        "null leaves the switch out, for images that do not know it",
        "trtllm-1.3",
        kind("MTP") | speculative(enable_penalty=None),
        llm.ONE_MODEL_1_3,
        {},
        PENALTIES | NOT_ONE_MODEL,
    ),
    ("a tree has no penalties", "trtllm-1.3", TREE, llm.TREE_1_3, {}, PENALTIES | NOT_ONE_MODEL),
    (
        "a type of upstream's",
        "trtllm-1.3",
        kind("Custom", custom={"type": "PARD"}),
        llm.ONE_MODEL_1_3,
        {"enable_penalty": True},
        NOT_ONE_MODEL,
    ),
    ("one that nobody knows", "trtllm-1.3", kind("Custom", custom={"type": "New"}), llm.UNKNOWN, {}, set()),
    ("Tandem's own", "reference", kind("NGram"), OWN_LLMAPI, {}, {"min_p", "best_of"}),
    ("Tandem's own on GPUs", "torch", kind("DraftTarget"), OWN_LLMAPI, {}, {"min_p", "best_of"}),
]


def accepted(profile: str, changes: dict[str, Any], settings: Settings) -> tuple[ServiceSpec, Accepted]:
    spec = parse(BASE, **{"runtime__profile": profile, **changes}).spec
    found = accept(spec, settings)
    assert isinstance(found, Accepted), found
    return spec, found


def folders(spec: ServiceSpec) -> dict[Role, str]:
    return dict.fromkeys(references(spec), "/models")


def refused(spec: ServiceSpec, engine: Engine) -> dict[str, str]:
    return engine.refused_parameters(spec, folders(spec))


@pytest.mark.parametrize(
    ("why", "profile", "changes", "facts", "switch", "names"), ROWS, ids=[row[0] for row in ROWS]
)
def test_the_llm_apis_engine_its_switch_and_what_is_refused(
    why: str,
    profile: str,
    changes: dict[str, Any],
    facts: Facts,
    switch: dict[str, Any],
    names: set[str],
    settings: Settings,
) -> None:
    spec, found_engine = accepted(profile, changes, settings)
    engine = found_engine.engine
    arguments = engine.arguments(spec, folders(spec))
    assert engine.facts(spec, arguments) is facts
    found = arguments.get("speculative_config") or {}
    assert {k: found[k] for k in ("allow_advanced_sampling", "enable_penalty") if k in found} == switch
    assert set(refused(spec, engine)) == names, why


BLS_ROWS = [
    ("trtllm-26.07", kind("DraftTarget"), trt.TENSORRT, {"length_penalty"}),
    ("trtllm-26.07", {}, trt.TENSORRT, {"length_penalty"}),
    (
        "trtllm-26.07",
        kind("Medusa", medusa={"choices": [[0]]}),
        trt.MEDUSA,
        {"temperature", "top_p", "bad_words", "embedding_bias", "logprobs", "length_penalty"} | PENALTIES,
    ),
    (
        "trtllm-26.07",
        kind("Lookahead"),
        trt.LOOKAHEAD,
        {"bad_words", "embedding_bias", "logprobs", "length_penalty"} | DRAWS | PENALTIES,
    ),
    ("reference", kind("DraftTarget"), OWN_BLS, {"length_penalty"}),
]


@pytest.mark.parametrize(("profile", "changes", "facts", "names"), BLS_ROWS)
def test_engines_of_mode_bls(
    profile: str, changes: dict[str, Any], facts: Facts, names: set[str], settings: Settings
) -> None:
    spec = parse(BASE, **{"runtime__mode": "BLS", "runtime__profile": profile, **changes}).spec
    of = settings.profile(profile)
    assert of
    engine = engine_of(spec, of)
    assert engine.facts(spec, {}) is facts
    assert set(refused(spec, engine)) == names


def test_a_refusal_has_engine_version_decoding_type_and_what_to_do(settings: Settings) -> None:
    spec, found = accepted("trtllm-26.07", kind("MTP"), settings)
    assert refused(spec, found.engine)["seed"] == (
        "TensorRT-LLM 1.2.1 (mode LLMAPI, with decodingType MTP) draws all requests from one generator;"
        " leave it out, or use mode BLS"
    )
    spec, found = accepted("trtllm-26.07", kind("MTP") | speculative(allow_advanced_sampling=False), settings)
    assert refused(spec, found.engine)["temperature"] == (
        "TensorRT-LLM 1.2.1 (mode LLMAPI, with decodingType MTP) takes the likeliest token without"
        " runtime.extraLlmArgs.speculative_config.allow_advanced_sampling; leave it out, or remove that"
    )


def test_a_service_that_draws_nothing_is_warned_about(settings: Settings) -> None:
    warnings = accepted("trtllm-26.07", RELAXED, settings)[1].warnings
    assert any(text.startswith("requests that sample get 400") for text in warnings)
    assert not any("sample" in text for text in accepted("trtllm-26.07", kind("MTP"), settings)[1].warnings)


def test_every_decoding_type_of_the_llm_api_is_in_the_table() -> None:
    """One that is added later is no unknown one."""
    for dialect in (Dialect.V1_2, Dialect.V1_3):
        known = {*dialect.facts.two_models, *dialect.facts.one_model}
        for each in dialect.facts.decoding_types:
            assert not each.traits.upstream or known & set(each.traits.upstream), (dialect, each)


def test_entries_name_parameters_that_the_mode_has_and_reasons() -> None:
    engines = [engine for modes in KINDS.values() for engine in modes.values()]
    for engine in engines:
        for title, facts in engine.parameters.items():
            assert facts.entries.keys() <= set(PARAMETERS[engine.mode]), title
            for name, entry in facts.entries.items():
                assert entry.reason, (title, name)
                assert name not in SAMPLING or entry.outcome is not Outcome.IGNORED or facts.to_draw, (title, name)
                assert (entry.outcome is not Outcome.SWITCH) or facts.switch, (title, name)


def test_the_page_in_the_repository_is_current() -> None:
    path = Path(__file__).parents[3] / "docs/reference/request-parameters.md"
    assert path.read_text(encoding="utf-8") == page(), "run `make generate`"
