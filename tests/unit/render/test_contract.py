"""The rendered models have the tensors of upstream's models: names, types, dimensions, what is optional.

The tables are upstream's contract (TensorRT-LLM 1.2; without the pixel tensors of vision models), written as
`dtype dims`, dimensions without the batch's; `*` marks a required input.
"""

from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from support.profiles import TENSORRT
from support.services import QUICKSTART, parse
from tandem.api.folders import folders
from tandem.render.v1.bls import bls
from tandem.render.v1.inputs import Inputs
from tandem.settings import Settings

Tensors = dict[str, str]


def each(spec: str, *names: str) -> Tensors:
    return dict.fromkeys(names, spec)


PERF: Tensors = {
    **each("INT32 1", "batch_index", "sequence_index", "total_accepted_draft_tokens", "total_draft_tokens"),
    **each("INT32 1", "kv_cache_alloc_new_blocks", "kv_cache_reused_blocks", "kv_cache_alloc_total_blocks"),
    **each("INT32 1", "num_input_tokens", "num_output_tokens"),
    **each("INT64 1", "arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns"),
    **each("FP32 1", "acceptance_rate"),
}
SCORES: Tensors = {
    **each("FP32 -1", "cum_log_probs"),
    **each("FP32 -1,-1", "output_log_probs", "context_logits"),
    **each("FP32 -1,-1,-1", "generation_logits"),
}
RETURN = ("return_log_probs", "return_context_logits", "return_generation_logits", "return_perf_metrics")
COUNT = ("return_num_input_tokens", "return_num_output_tokens")
COMPLETION: Tensors = {
    **each("STRING 1 *", "text_input"),
    **each("INT32 1 *", "max_tokens"),
    **each("STRING 1", "decoder_text_input", "guided_decoding_guide_type", "guided_decoding_guide"),
    **each("STRING -1", "bad_words", "stop_words", "embedding_bias_words"),
    **each("BOOL 1", "exclude_input_in_output", "stream"),
    **each("INT32 1", "end_id", "pad_id", "top_k", "min_tokens", "beam_width", "prompt_vocab_size"),
    **each("FP32 1", "top_p", "temperature", "length_penalty"),
    **each("FP32 1", "repetition_penalty", "presence_penalty", "frequency_penalty"),
    **each("FP32 -1", "embedding_bias_weights"),
    **each("UINT64 1", "seed", "prompt_table_extra_id"),
    **each("FP16 -1,-1", "prompt_embedding_table", "lora_weights"),
    **each("INT32 -1,3", "lora_config"),
}
FLAGS = each("BOOL 1", *RETURN, *COUNT)
COMPLETION |= each("INT32 1", "num_return_sequences") | each("UINT64 1", "lora_task_id") | FLAGS
BLS_INPUTS: Tensors = {
    **COMPLETION,
    **each("FP16 -1,3,-1,-1", "image_input"),
    **each("UINT8 -1,-1,-1,-1", "image_bytes_input", "video_bytes_input"),
    **each("STRING 1", "image_url_input"),
    **each("INT32 1", "num_draft_tokens"),
    **each("BOOL 1", "use_draft_logits"),
}
ENGINE_INPUTS: Tensors = {
    **FLAGS,
    **each("INT32 -1 *", "input_ids"),
    **each("INT32 1 *", "input_lengths", "request_output_len"),
    **each("INT32 -1", "draft_input_ids", "decoder_input_ids"),
    **each("INT32 1", "decoder_input_lengths", "encoder_output_lengths", "prompt_vocab_size", "num_return_sequences"),
    **each("INT32 1", "end_id", "pad_id", "beam_width", "runtime_top_k", "runtime_top_p_reset_ids", "min_tokens"),
    **each("INT32 1", "lookahead_window_size", "lookahead_ngram_size", "lookahead_verification_set_size"),
    **each("INT32 1", "retention_decode_priority", "retention_decode_duration_ms"),
    **each(
        "INT32 -1", *(f"retention_token_range_{what}" for what in ("starts", "ends", "priorities", "durations_ms"))
    ),
    **each("INT32 2,-1", "stop_words_list", "bad_words_list"),
    **each("FP32 1", "temperature", "runtime_top_p", "runtime_top_p_min", "runtime_top_p_decay", "len_penalty"),
    **each("FP32 1", "repetition_penalty", "presence_penalty", "frequency_penalty", "beam_search_diversity_rate"),
    **each("FP32 1", "draft_acceptance_threshold"),
    **each("FP32 -1", "embedding_bias", "mrope_rotary_cos_sin"),
    **each("FP32 -1,-1", "draft_logits"),
    **each("BOOL 1", "exclude_input_in_output", "stop", "streaming", "early_stopping", "skip_cross_attn_blocks"),
    **each("BOOL -1,-1", "cross_attention_mask"),
    **each("UINT64 1", "seed", "lora_task_id"),
    **each("UINT64 -1", "prompt_table_extra_ids"),
    **each("INT64 1", "mrope_position_deltas"),
    **each("UINT8 -1", "context_phase_params"),
    **each("STRING 1", "guided_decoding_guide_type", "guided_decoding_guide"),
    **each("FP16 -1,-1", "lora_weights", "encoder_input_features", "prompt_embedding_table"),
    **each("INT32 -1,3", "lora_config"),
}
ENGINE_OUTPUTS: Tensors = {
    **SCORES,
    **PERF,
    **{"output_ids": "INT32 -1,-1", "sequence_length": "INT32 -1", "context_phase_params": "UINT8 -1"},
}
PRE_INPUTS: Tensors = {
    **each("STRING 1 *", "QUERY"),
    **each("INT32 1 *", "REQUEST_OUTPUT_LEN"),
    **each("STRING 1", "DECODER_QUERY", "IMAGE_URL"),
    **each("UINT8 -1,-1,-1,-1", "IMAGE_BYTES", "VIDEO_BYTES"),
    **each("STRING -1", "BAD_WORDS_DICT", "STOP_WORDS_DICT", "EMBEDDING_BIAS_WORDS", "IMAGES"),
    **each("FP32 -1", "EMBEDDING_BIAS_WEIGHTS"),
    **each("INT32 1", "END_ID", "PAD_ID"),
    **each("UINT64 1", "PROMPT_TABLE_EXTRA_ID"),
}
PRE_OUTPUTS: Tensors = {
    **each("INT32 -1", "INPUT_ID", "DECODER_INPUT_ID", "REQUEST_OUTPUT_LEN"),
    **each("INT32 1", "REQUEST_INPUT_LEN", "REQUEST_DECODER_INPUT_LEN", "OUT_END_ID", "OUT_PAD_ID"),
    **each("INT32 2,-1", "BAD_WORDS_IDS", "STOP_WORDS_IDS"),
    **each("FP32 -1", "EMBEDDING_BIAS"),
    **each("UINT64 -1", "OUT_PROMPT_TABLE_EXTRA_IDS"),
}
POST_INPUTS: Tensors = {
    "TOKENS_BATCH": "INT32 -1,-1 *",
    "SEQUENCE_LENGTH": "INT32 -1 *",
    **each("FP32 -1", "CUM_LOG_PROBS"),
    **each("FP32 -1,-1", "OUTPUT_LOG_PROBS", "CONTEXT_LOGITS"),
    **each("FP32 -1,-1,-1", "GENERATION_LOGITS"),
}
TEXT: Tensors = {"text_output": "STRING -1", **SCORES, **PERF}
# model, its inputs, its outputs, whether it answers more than once
CONTRACT: list[tuple[str, Tensors, Tensors, bool]] = [
    ("tensorrt_llm_bls", BLS_INPUTS, TEXT, False),
    ("speculative_bls", BLS_INPUTS, TEXT, True),
    ("ensemble", COMPLETION, TEXT, False),
    ("tensorrt_llm", ENGINE_INPUTS, ENGINE_OUTPUTS, False),
    ("tensorrt_llm_draft", ENGINE_INPUTS, ENGINE_OUTPUTS, False),
    ("preprocessing", PRE_INPUTS, PRE_OUTPUTS, False),
    ("postprocessing", POST_INPUTS, {"OUTPUT": "STRING -1"}, False),
]


@pytest.fixture(params=["reference", "tensorrt"])
def configs(settings: Settings, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Configurations with the reference engine, and with TensorRT engines."""
    profile = TENSORRT if request.param == "tensorrt" else settings.profile("reference")
    assert profile is not None
    spec = parse(QUICKSTART).spec
    texts = bls(Inputs(spec, profile, settings.serving_image, folders(spec, {}))).configs.values()
    parsed = [text_format.Parse(text, model_config_pb2.ModelConfig()) for text in texts]
    return {config.name: config for config in parsed}


def declared(tensors: Any) -> Tensors:
    """Tensors of a parsed configuration, written as in the tables."""
    return {tensor.name: f"{data_type(tensor)} {','.join(map(str, tensor.dims))}" for tensor in tensors}


def data_type(tensor: Any) -> str:
    return str(model_config_pb2.DataType.Name(tensor.data_type)).removeprefix("TYPE_")


@pytest.mark.parametrize(("model", "inputs", "outputs", "decoupled"), CONTRACT, ids=[row[0] for row in CONTRACT])
def test_upstreams_clients_find_upstreams_tensors(
    configs: dict[str, Any], model: str, inputs: Tensors, outputs: Tensors, decoupled: bool
) -> None:
    config = configs[model]
    required = {name for name, spec in inputs.items() if spec.endswith("*")}
    plain = {name: spec.removesuffix(" *") for name, spec in inputs.items()}
    assert {name: spec for name, spec in declared(config.input).items() if name in plain} == plain
    assert {tensor.name for tensor in config.input if not tensor.optional} <= required, "clients leave these out"
    assert {name: spec for name, spec in declared(config.output).items() if name in outputs} == outputs
    assert config.model_transaction_policy.decoupled is decoupled


def test_the_steps_of_the_ensemble_exist(configs: dict[str, Any]) -> None:
    ensemble = configs["ensemble"]
    known = {tensor.name for tensor in ensemble.input}
    for step in ensemble.ensemble_scheduling.step:
        model = configs[step.model_name]
        assert set(step.input_map) <= {tensor.name for tensor in model.input}
        assert set(step.output_map) <= {tensor.name for tensor in model.output}
        assert set(step.input_map.values()) <= known, "each comes from the request or from a step before"
        required = {tensor.name for tensor in model.input if not tensor.optional}
        assert required <= set(step.input_map)
        known |= set(step.output_map.values())
    used = {name for step in ensemble.ensemble_scheduling.step for name in step.input_map.values()}
    assert {tensor.name for tensor in ensemble.input} <= used, "an input that nobody gets would be ignored in silence"
    assert {tensor.name for tensor in ensemble.output} <= known
