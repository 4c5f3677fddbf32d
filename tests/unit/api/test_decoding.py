"""Decoding types: each has traits, and what its traits ask for in other files is there."""

from typing import Any

import pytest
from pydantic import ValidationError

from tandem.api.decoding import DecodingType, Dialect, Mode, Traits, TypeWithTraits
from tandem.api.profile import Profile
from tandem.api.types import Speculation
from tandem.render.v1.engines import SPECULATIVE_DECODING_MODES
from tandem.render.v1.llm_args import SCHEMAS, conflict
from tandem.settings import load_settings

DIALECTS = set(Dialect) - {Dialect.NONE}


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
    runs = {
        mode
        for profile in load_settings().profiles
        for mode, kinds in profile.decoding_types.items()
        if kind in kinds
    }
    if not traits.upstream and kind not in ("Custom", "None"):
        gaps.append("Traits.upstream: TensorRT-LLM's decoding_type")
    if traits.block and traits.block not in blocks:
        gaps.append(f"api/types/speculation.py: the field {traits.block}")
    if traits.block and f"has(self.{traits.block})" not in rules:
        gaps.append(f"api/types/speculation.py: the rule of {traits.block}")
    configs = [config for schema in SCHEMAS.values() for each, config in schema.configs.items() if each == kind]
    if Mode.LLMAPI in traits.modes and kind != "None" and not configs:
        gaps.append("render/v1/llm_args: its model in a dialect")
    for name in {name for config in configs for name in config.model_fields}:
        if not conflict({"speculative_config": {}}, {"speculative_config": {name: 1}}):
            gaps.append(f"render/v1/llm_args: {name} in decided_by of its model")
    if Mode.BLS in traits.modes and kind != "None" and kind not in SPECULATIVE_DECODING_MODES:
        gaps.append("render/v1/engines.py: its --speculative_decoding_mode")
    if not set(traits.modes) <= runs:
        gaps.append("profiles.yaml: a profile that runs it in each mode")
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
        "render/v1/llm_args: its model in a dialect",
        "render/v1/engines.py: its --speculative_decoding_mode",
        "profiles.yaml: a profile that runs it in each mode",
    ]


def test_each_block_belongs_to_a_type() -> None:
    shared = {"decodingType", "maxDraftLen", "acceptance", "adaptive", "maxConcurrency", "draftLenSchedule"}
    shared |= {"suffixAutomaton", "minAcceptedLength"}
    fields = {field.alias for field in Speculation.model_fields.values()}
    assert fields - shared == {kind.traits.block for kind in DecodingType} - {""}


def test_each_dialect_has_its_schema() -> None:
    assert set(SCHEMAS) == DIALECTS


def test_a_dialect_has_the_types_that_their_traits_name() -> None:
    of_llmapi = [kind for kind in DecodingType.of_mode(Mode.LLMAPI) if kind is not DecodingType.NONE]
    for dialect, schema in SCHEMAS.items():
        assert set(schema.configs) == {kind for kind in of_llmapi if dialect in kind.traits.dialects}, dialect


def test_a_profile_without_the_dialect_of_a_type() -> None:
    """Rendering would have no arguments for it."""
    wrong = {"name": "own", "modes": ["LLMAPI"], "decodingTypes": {"LLMAPI": ["None", "DFlash"]}, "llmArgs": "1.2"}
    with pytest.raises(
        ValidationError, match=r"decodingTypes.LLMAPI has DFlash, which llmArgs 1.2 has not: remove it"
    ):
        Profile.model_validate(wrong)
    assert Profile.model_validate({**wrong, "llmArgs": "1.3"}).llm_args is Dialect.V1_3


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
