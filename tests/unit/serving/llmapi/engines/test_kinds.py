"""The kinds of engines: found by name, and what each makes of its arguments."""

import pytest

from support.serving.model_folders import ModelFolder
from tandem_serving.llmapi import engines
from tandem_serving.llmapi.arguments import ArgumentsError
from tandem_serving.llmapi.engines.tensorrt_llm.arguments import with_drafter


@pytest.mark.parametrize("kind", engines.ENGINES)
def test_a_kind_is_found_by_its_name(kind: str) -> None:
    assert engines.find(kind).name == kind


def test_an_unknown_kind_names_those_that_there_are() -> None:
    with pytest.raises(engines.UnknownEngineError) as error:
        engines.find("tensorrt_llm")
    assert str(error.value) == (
        "the engine is 'tensorrt_llm', which this image does not know: write one of TensorRT-LLM, Tandem, vLLM"
    )


@pytest.mark.parametrize("spelling", ["User_Provided", "UserProvided"])
def test_a_drafter_goes_into_the_speculative_config(spelling: str) -> None:
    config = {"decoding_type": spelling, "max_draft_len": 4}
    drafter = object()
    given = {"model": "m", "speculative_config": config}
    assert with_drafter(given, drafter)["speculative_config"] == {**config, "drafter": drafter}
    assert "drafter" not in config, "the input is left as it is"
    manager = object()
    both = with_drafter(given, drafter, manager)["speculative_config"]
    assert both == {**config, "drafter": drafter, "resource_manager": manager}
    for other in ({"model": "m"}, {"model": "m", "speculative_config": {"decoding_type": "NGram"}}):
        with pytest.raises(ArgumentsError, match="decoding_type is not User_Provided"):
            with_drafter(other, drafter)


@pytest.mark.parametrize(
    ("kind", "asked", "length", "reason"),
    [
        ("TensorRT-LLM", None, 128, "the model's own"),
        ("TensorRT-LLM", 64, 64, "shorter"),
        ("TensorRT-LLM", 4096, 4096, "TensorRT-LLM goes beyond the model's own"),
        ("Tandem", 64, 64, "shorter"),
        ("Tandem", 4096, 128, "others do not: profile torch writes a length for every model"),
    ],
)
def test_tokens_of_a_sequence(
    model_folder: ModelFolder, kind: str, asked: int | None, length: int, reason: str
) -> None:
    given = {"model": str(model_folder("model")), **({"max_seq_len": asked} if asked else {})}
    assert engines.find(kind).limits(given).max_sequence_len == length, reason


@pytest.mark.parametrize("kind", ["TensorRT-LLM", "Tandem"])
def test_ranks_that_mpirun_starts_join_nobody(kind: str) -> None:
    with pytest.raises(ArgumentsError, match=f"the leader of a group starts the ranks of {kind}"):
        engines.find(kind).run_ranks({})
