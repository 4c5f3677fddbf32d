"""The LLM-API model's configurations have upstream's tensors, and are what Triton parses.

Upstream's are those of triton_backend/all_models/llmapi/tensorrt_llm/config.pbtxt in TensorRT-LLM (0a71057); where it
has one value ([1]) ours take one for each prompt too ([-1]), which its clients' requests fit.
"""

from dataclasses import replace
from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from tandem.render.v1 import stack
from tandem.render.v1.llmapi import NAMES, STREAMS, UNARY, LlmApiVariables

UPSTREAM_INPUTS = {
    "STRING": "text_input image_url sampling_param_stop lora_name lora_path lora_ckpt_source",
    "BOOL": "streaming sampling_param_exclude_input_from_output sampling_param_return_perf_metrics "
    "return_finish_reason return_stop_reason return_cumulative_logprob stop",
    "INT32": "sampling_param_best_of sampling_param_top_k sampling_param_max_tokens",
    "FP32": "sampling_param_temperature sampling_param_top_p sampling_param_frequency_penalty "
    "sampling_param_presence_penalty",
    "UINT64": "sampling_param_seed lora_id",
}
UPSTREAM_OUTPUTS = {
    "STRING": "text_output finish_reason stop_reason",
    "FP32": "cumulative_logprob kv_cache_hit_rate acceptance_rate",
    "INT32": "kv_cache_reused_block kv_cache_missed_block kv_cache_alloc_new_blocks kv_cache_alloc_total_blocks "
    "total_accepted_draft_tokens total_draft_tokens",
    "INT64": "arrival_time_ns first_scheduled_time_ns first_token_time_ns last_token_time_ns",
}
VARIABLES = LlmApiVariables(
    streams=NAMES[STREAMS],
    unary=NAMES[UNARY],
    llm_args_path="/etc/tandem/llm_args.yaml",
    engine="TensorRT-LLM",
    max_batch_size=16,
    max_waiting_sequences=1024,
    request_timeout_seconds=600,
    drafter="",
    resource_manager="",
    drafter_path="",
    refused_parameters="{}",
)


def config(model: str, **changes: Any) -> Any:
    text = stack.config(model, replace(VARIABLES, **changes))
    return text_format.Parse(text, model_config_pb2.ModelConfig())


def types(tensors: Any) -> dict[str, str]:
    return {tensor.name: model_config_pb2.DataType.Name(tensor.data_type) for tensor in tensors}


def upstream(table: dict[str, str]) -> dict[str, str]:
    return {name: f"TYPE_{kind}" for kind, names in table.items() for name in names.split()}


@pytest.mark.parametrize("model", [STREAMS, UNARY])
def test_tensors_are_a_superset_of_upstream_s(model: str) -> None:
    made = config(model)
    inputs, outputs = upstream(UPSTREAM_INPUTS), upstream(UPSTREAM_OUTPUTS)
    if model == UNARY:
        del inputs["stop"]  # a unary call is ended by its client
    assert inputs.items() <= types(made.input).items()
    assert outputs.items() <= types(made.output).items()
    assert all(tensor.optional for tensor in made.input)
    assert {tuple(t.dims) for t in made.input if t.name not in ("input_ids", "stop")} == {(-1,)}


def test_the_decoupled_model() -> None:
    made = config(STREAMS)
    assert (made.name, made.backend, made.max_batch_size) == ("tensorrt_llm_stream", "python", 0)
    assert made.model_transaction_policy.decoupled
    assert {name: value.string_value for name, value in made.parameters.items()} == {
        "llm_args_path": "/etc/tandem/llm_args.yaml",
        "engine": "TensorRT-LLM",
        "request_timeout_seconds": "600",
        "max_running_sequences": "16",
        "max_waiting_sequences": "1024",
        "refused_parameters": "{}",
    }


def test_the_unary_model() -> None:
    made = config(UNARY)
    assert (made.name, made.max_batch_size, made.model_transaction_policy.decoupled) == (
        "tensorrt_llm",
        0,
        False,
    )
    assert made.parameters["decoupled_model_name"].string_value == "tensorrt_llm_stream"


def test_strings_are_quoted() -> None:
    hostile = 'a"} parameters { key: "x"\n$(id) {{ 7 * 7 }}'
    names = ("drafter", "resource_manager", "drafter_path", "llm_args_path", "engine", "refused_parameters")
    made = config(STREAMS, **dict.fromkeys(names, hostile))
    for name in names:
        assert made.parameters[name].string_value == hostile
    assert "x" not in made.parameters
