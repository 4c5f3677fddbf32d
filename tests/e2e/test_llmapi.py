"""Mode LLMAPI on the reference profile: the example becomes Ready, and says what the quickstart says."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton
import yaml

from .completions import PROMPTS, stream, text
from .conformance import by_name
from .conftest import OF_METRICS, REPOSITORY, Site

EXAMPLE = REPOSITORY / "examples/reference-llmapi.yaml"
TOKENS = 48  # as completions.inputs asks for


@pytest.fixture(scope="module")
def llmapi(site: Site) -> Iterator[str]:
    name = str(yaml.safe_load(EXAMPLE.read_text())["metadata"]["name"])
    site.run("apply", "-f", str(EXAMPLE))
    site.wait_condition(name, "Ready", "True")
    yield name
    site.run("delete", "sis", name)


def complete(url: str, prompt: str) -> "triton.InferResult":
    values = {
        "text_input": np.array([prompt.encode()], np.object_),
        "sampling_param_max_tokens": np.array([TOKENS], np.int32),
        "sampling_param_exclude_input_from_output": np.array([True]),
    }
    types = {"text_input": "BYTES", "sampling_param_max_tokens": "INT32"}
    tensors = []
    for name, value in values.items():
        tensors.append(triton.InferInput(name, list(value.shape), types.get(name, "BOOL")))
        tensors[-1].set_data_from_numpy(value)
    with triton.InferenceServerClient(url) as client:
        return client.infer("tensorrt_llm", tensors)


@pytest.mark.parametrize("prompt", PROMPTS, ids=range(len(PROMPTS)))
def test_it_says_what_the_quickstart_s_target_says(
    site: Site, client: triton.InferenceServerClient, llmapi: str, prompt: str
) -> None:
    answer = complete(site.address(llmapi), prompt)
    assert answer.as_numpy("text_output").flat[0].decode() == text(stream(client, prompt, 0))
    assert answer.as_numpy("total_accepted_draft_tokens").item() > 0
    assert answer.as_numpy("avg_decoded_tokens_per_iter").item() > 1


def test_its_conditions(site: Site, llmapi: str) -> None:
    conditions = site.conditions(llmapi)
    assert {kind: c["status"] for kind, c in conditions.items() if kind not in OF_METRICS} == {
        "Ready": "True",
        "SpecAccepted": "True",
        "ModelsReady": "True",
        "PairCompatible": "True",
        "EnginesReady": "True",
        "Available": "True",
    }
    assert conditions["EnginesReady"]["reason"] == "ArgumentsAccepted"


def test_it_is_conformant(site: Site, llmapi: str, tmp_path: Path) -> None:
    code, report = by_name(site, tmp_path / "report", llmapi, "--against", "quickstart")
    assert {case["outcome"] for case in report["cases"]} == {"verified"}, report["cases"]
    assert code == 0
    assert report["service"]["mode"] == "LLMAPI"
    assert "as the target alone" in report["cases"][0]["detail"]
