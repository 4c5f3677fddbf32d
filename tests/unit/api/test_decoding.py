"""Decoding types: each has traits, and what its traits ask for in other files is there."""

from typing import Any

import pytest

from tandem.api.decoding import DecodingType, Mode, Traits, TypeWithTraits
from tandem.api.types import Speculation
from tandem.engines import KINDS, modes
from tandem.engines.tensorrt_engines.builds import SPECULATIVE_DECODING_MODES
from tandem.engines.tensorrt_llm.arguments import SCHEMAS, conflict
from tandem.engines.tensorrt_llm.dialect import DIALECTS, Dialect, dialect_of
from tandem.engines.vllm.arguments import METHODS
from tandem.settings import load_settings


def new_type(name: str, *traits: Traits) -> TypeWithTraits:
    kinds: Any = TypeWithTraits("NewType", {name.upper(): (name, *traits)})  # type: ignore[arg-type]
    (member,) = kinds
    assert isinstance(member, TypeWithTraits)
    return member


def test_a_type_without_traits_is_refused_with_what_to_fill_in() -> None:
    with pytest.raises(TypeError, match=r"decodingType Unheard has no traits: write Traits\(modes=\.\.\.\) after"):
        new_type("Unheard")


def missing(kind: TypeWithTraits) -> list[str]:
    """What is still to be written for a decoding type."""
    traits, gaps = kind.traits, []
    blocks = {field.alias for field in Speculation.model_fields.values()}
    rules = " ".join(rule.rule for rule in Speculation.cel)
    profiles = load_settings().profiles
    engines = [KINDS[each.engine.kind][mode](each) for each in profiles for mode in modes(each)]
    runs = {engine.mode for engine in engines if kind in engine.decoding_types}
    configs = [config for schema in SCHEMAS.values() for each, config in schema.configs.items() if each == kind]
    vllm = kind in METHODS
    if not traits.upstream and kind not in ("Custom", "None") and (configs or not vllm):
        gaps.append("Traits.upstream: TensorRT-LLM's decoding_type")
    if traits.block and traits.block not in blocks:
        gaps.append(f"api/types/speculation.py: the field {traits.block}")
    if traits.block and f"has(self.{traits.block})" not in rules:
        gaps.append(f"api/types/speculation.py: the rule of {traits.block}")
    if Mode.LLMAPI in traits.modes and kind != "None" and not configs and not vllm:
        gaps.append(
            "engines/tensorrt_llm/arguments: its model in a dialect, or engines/vllm/arguments.py: its method"
        )
    for name in {name for config in configs for name in config.model_fields}:
        if not conflict({"speculative_config": {}}, {"speculative_config": {name: 1}}):
            gaps.append(f"engines/tensorrt_llm/arguments: {name} in decided_by of its model")
    if Mode.BLS in traits.modes and kind != "None" and kind not in SPECULATIVE_DECODING_MODES:
        gaps.append("engines/tensorrt_engines/builds.py: its --speculative_decoding_mode")
    if not set(traits.modes) <= runs:
        gaps.append("engines: one that runs it in each mode, with a profile")
    return gaps


@pytest.mark.parametrize("kind", DecodingType)
def test_what_the_traits_ask_for_is_there(kind: DecodingType) -> None:
    assert missing(kind) == [], f"write for decodingType {kind}"


def test_what_is_missing_is_named() -> None:
    bare = Traits(modes=(Mode.LLMAPI, Mode.BLS), block="unheard")
    assert missing(new_type("Unheard", bare)) == [
        "Traits.upstream: TensorRT-LLM's decoding_type",
        "api/types/speculation.py: the field unheard",
        "api/types/speculation.py: the rule of unheard",
        "engines/tensorrt_llm/arguments: its model in a dialect, or engines/vllm/arguments.py: its method",
        "engines/tensorrt_engines/builds.py: its --speculative_decoding_mode",
        "engines: one that runs it in each mode, with a profile",
    ]


def test_each_block_belongs_to_a_type() -> None:
    shared = {"decodingType", "maxDraftLen", "acceptance", "adaptive", "maxConcurrency", "draftLenSchedule"}
    shared |= {"suffixAutomaton", "minAcceptedLength"}
    fields = {field.alias for field in Speculation.model_fields.values()}
    assert fields - shared == {kind.traits.block for kind in DecodingType} - {""}


def test_each_dialect_has_its_schema() -> None:
    assert set(SCHEMAS) == set(DIALECTS) == set(Dialect)


def test_a_dialect_has_arguments_for_its_types() -> None:
    for dialect, schema in SCHEMAS.items():
        assert {*schema.configs, DecodingType.NONE} == set(dialect.facts.decoding_types), dialect
        assert set(dialect.facts.follow_schedule) <= set(schema.configs)
        assert not set(dialect.facts.follow_schedule) & set(dialect.facts.fixed_draft_len)


def test_types_with_which_every_engine_follows_a_schedule() -> None:
    everywhere = set.intersection(*(set(dialect.facts.follow_schedule) for dialect in Dialect))
    assert {kind for kind in DecodingType if kind.traits.follows_schedule} == everywhere


@pytest.mark.parametrize(
    ("version", "dialect"),
    [
        ("1.2.1", "1.2"),
        ("1.2", "1.2"),
        ("1.3.0rc27", "1.3"),
        ("1.4", "1.4"),
        ("1.1", None),
        ("", None),
    ],
)
def test_the_dialect_of_a_version(version: str, dialect: str | None) -> None:
    assert dialect_of(version) == dialect


def test_what_the_renderer_writes_is_reserved() -> None:
    """`custom.type` must not be what another type is written as."""
    for schema in SCHEMAS.values():
        for kind, config in schema.configs.items():
            if kind is not DecodingType.CUSTOM:
                assert config.model_fields["decoding_type"].default in kind.traits.upstream


def test_names_that_upstream_gave_up_are_reserved_too() -> None:
    assert DecodingType.of_upstream("DraftTarget") is DecodingType.DRAFT_TARGET
    assert DecodingType.of_upstream("Eagle") is DecodingType.EAGLE3, "the alias gives way to its type"
    assert DecodingType.of_upstream("Unheard") is None
