"""The table of sampling parameters: both copies are one, and what is not derived from it has each of its rows."""

import math
import re
from dataclasses import fields
from pathlib import Path

import pytest

from tandem.api import sampling_parameters
from tandem.api.sampling_parameters import PARAMETERS, SamplingParameter, of_mode
from tandem.client.generate.request import Sampling
from tandem_serving.openai.api import Parameters
from tandem_serving.requests import sampling_parameters as in_image

RENDERED = Path(__file__).parents[2] / "data/output"
CONFIGS = [
    ("BLS", "draft-target/revision/speculative_bls.config.pbtxt"),
    ("BLS", "draft-target/revision/tensorrt_llm_bls.config.pbtxt"),
    ("LLMAPI", "torch-llmapi/revision/tensorrt_llm_stream.config.pbtxt"),
    ("LLMAPI", "torch-llmapi/revision/tensorrt_llm.config.pbtxt"),
]
ENGINES = [
    "draft-target/revision/tensorrt_llm_engine.config.pbtxt",
    "torch/revision/tensorrt_llm_engine.config.pbtxt",
]
STRINGS = {"BYTES": "STRING"}
"""Datatypes that config.pbtxt has by another name."""


def inputs(config: str) -> dict[str, str]:
    """Names and types of a rendered configuration's inputs."""
    text = (RENDERED / config).read_text().partition("\noutput [")[0]
    return dict(re.findall(r'name: "(\w+)"\s+data_type: TYPE_(\w+)', text))


def test_the_image_has_the_same() -> None:
    source, copy = (Path(str(module.__file__)).read_text() for module in (in_image, sampling_parameters))
    assert source == copy, "run `make generate`"


@pytest.mark.parametrize(("mode", "config"), CONFIGS)
def test_each_is_an_input_of_its_modes(mode: str, config: str) -> None:
    wanted = {each.input(mode): STRINGS.get(each.datatype, each.datatype) for each in of_mode(mode)}
    assert wanted.items() <= inputs(config).items()


@pytest.mark.parametrize("config", ENGINES)
def test_the_engines_take_what_goes_to_them(config: str) -> None:
    assert {each.engine: each.datatype for each in PARAMETERS if each.engine}.items() <= inputs(config).items()


def test_the_endpoint_takes_those_that_it_is_to_take() -> None:
    assert {each.name for each in PARAMETERS if each.openai} <= Parameters.model_fields.keys()


def test_clients_send_what_the_table_has() -> None:
    names = {each.name for each in PARAMETERS}
    assert {each.name for each in fields(Sampling)} - names == {"max_tokens", "stop_words"}


@pytest.mark.parametrize(
    ("parameter", "value", "fault"),
    [
        (SamplingParameter("x", "FP32"), -1e9, ""),
        (SamplingParameter("x", "FP32"), math.nan, "be finite"),
        (SamplingParameter("x", "FP32", least=0), 0, ""),
        (SamplingParameter("x", "FP32", least=0), math.inf, "be 0 or more"),
        (SamplingParameter("x", "FP32", least=0, above=True), 0, "be above 0"),
        (SamplingParameter("x", "FP32", least=0, most=1), 1, ""),
        (SamplingParameter("x", "FP32", least=0, most=1), 1.5, "lie between 0 and 1"),
        (SamplingParameter("x", "INT32", least=0, must="be 0 (all) or more"), -1, "be 0 (all) or more"),
    ],
)
def test_ranges(parameter: SamplingParameter, value: float, fault: str) -> None:
    assert parameter.fault(value) == fault
