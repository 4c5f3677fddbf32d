"""Profile `torch`: what a resource makes of its engines' parameters, and of what the image is asked."""

import json
from typing import Any

import pytest
import yaml
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from support.services import QUICKSTART, parse
from tandem.render import LATEST, Record, Revision, render
from tandem.settings import Settings

MODULE = "reference_engine.torch_backend.checkpoints"
TORCH = {"runtime__profile": "torch"}
LLMAPI = {**TORCH, "runtime__mode": "LLMAPI"}


def rendered(settings: Settings, **changes: Any) -> Revision:
    profile = settings.profile("torch")
    assert profile is not None
    spec = parse(QUICKSTART, **changes).spec
    return render(Record(renderer=LATEST, serving_image="serving:1", profile=profile, spec=spec))


def parameters(revision: Revision, model: str) -> dict[str, str]:
    config = text_format.Parse(revision.files[f"{model}.config.pbtxt"], model_config_pb2.ModelConfig())
    return {name: value.string_value for name, value in config.parameters.items()}


def plan(revision: Revision) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(revision.files["launch.json"])
    return found


@pytest.mark.parametrize(
    ("strategy", "sequences", "draft_gpu", "gpus"),
    [("Shared", "5", None, "1"), ("Separate", "9", "1", "2")],
)
def test_where_the_engines_run_and_how_much_they_keep(
    settings: Settings, strategy: str, sequences: str, draft_gpu: str | None, gpus: str
) -> None:
    """Side by side one half drafts while the other is verified: engines keep the texts of both, and an eighth."""
    revision = rendered(settings, **TORCH, placement__strategy=strategy, serving__maxBatchSize=4)
    for model, gpu in (("tensorrt_llm_engine", None), ("tensorrt_llm_draft_engine", draft_gpu)):
        found = parameters(revision, model)
        assert found["backend"] == "torch"
        assert found["max_num_sequences"] == sequences
        assert found.get("gpu_device_ids") == gpu
    asked = plan(revision)["preflight"]["engine_check"]
    devices = {"target": 0, "draft": int(draft_gpu or 0)}
    assert asked == {"module": MODULE, "sequences": int(sequences), "max_seq_len": 8192, "devices": devices}
    assert revision.pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": gpus}


@pytest.mark.parametrize(
    ("changes", "target", "draft"),
    [
        (TORCH, "0,1", None),
        ({**TORCH, "placement__strategy": "Separate"}, "0,1", "2"),
        ({**TORCH, "placement__strategy": "Separate", "draft__tensorParallelSize": 2}, "0,1", "2,3"),
    ],
)
def test_a_model_over_two_gpus_has_one_server(
    settings: Settings, changes: dict[str, Any], target: str, draft: str | None
) -> None:
    """The engine starts its own ranks: no MPI."""
    revision = rendered(settings, **changes, target__tensorParallelSize=2)
    for model, gpus in (("tensorrt_llm_engine", target), ("tensorrt_llm_draft_engine", draft)):
        assert parameters(revision, model).get("gpu_device_ids") == gpus
    made = plan(revision)
    assert made["server"]["command"][0] == "tritonserver"
    assert made["preflight"]["engine_check"]["devices"]["target"] == [0, 1]
    used = {gpu for gpus in (target, draft or "0") for gpu in gpus.split(",")}
    assert revision.pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": str(len(used))}


def test_the_llm_api_splits_its_target_alone(settings: Settings) -> None:
    revision = rendered(settings, **LLMAPI, target__tensorParallelSize=2)
    assert yaml.safe_load(revision.files["llm_args.yaml"])["tensor_parallel_size"] == 2
    assert plan(revision)["preflight"]["engine_check"]["devices"] == {"target": [0, 1], "draft": 0}


@pytest.mark.parametrize(("build", "length"), [({}, 8192), ({"maxSeqLen": 4096}, 4096)])
def test_the_same_length_in_both_engines_in_the_loop_and_in_the_preflight(
    settings: Settings, build: dict[str, int], length: int
) -> None:
    revision = rendered(settings, **TORCH, **({"target__engine": {"build": build}} if build else {}))
    for model in ("tensorrt_llm_engine", "tensorrt_llm_draft_engine", "speculative_bls"):
        assert parameters(revision, model)["max_seq_len"] == str(length), model
    assert plan(revision)["preflight"]["engine_check"]["max_seq_len"] == length


@pytest.mark.parametrize(("extra", "length"), [({}, 8192), ({"max_seq_len": 4096}, 4096)])
def test_the_llm_apis_arguments(settings: Settings, extra: dict[str, int], length: int) -> None:
    revision = rendered(settings, **LLMAPI, runtime__extraLlmArgs=extra, serving__maxBatchSize=4)
    arguments = yaml.safe_load(revision.files["llm_args.yaml"])
    assert (arguments["backend"], arguments["max_seq_len"]) == ("torch", length)
    asked = plan(revision)["preflight"]["engine_check"]
    assert asked["devices"] == {"target": 0, "draft": 0}
    assert (asked["sequences"], asked["max_seq_len"]) == (5, length), "four that run, and a spare one"


@pytest.mark.parametrize(
    ("changes", "in_turn", "reason"),
    [
        (TORCH, True, "what one takes while it loads is free when the other begins"),
        ({**TORCH, "draft": None, "speculation": {"decodingType": "None"}}, False, "there is one"),
        (LLMAPI, False, "one model has both"),
    ],
)
def test_engines_load_one_after_the_other(
    settings: Settings, changes: dict[str, Any], in_turn: bool, reason: str
) -> None:
    command = plan(rendered(settings, **changes))["server"]["command"]
    assert ("--model-load-thread-count=1" in command) == in_turn, reason
