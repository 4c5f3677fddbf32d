"""TensorRT engines of the BLS mode: where each lies, and the commands that build those not brought along. Pure.

An engine is built once for its content: folder, image, GPU and arguments are its key, and the key names its folder
in the cache volume. Commands as TensorRT-LLM's guides give them (examples/draft_target_model, examples/medusa,
examples/lookahead of release 1.2).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tandem.api.decoding import DecodingType
from tandem.api.folders import CACHE
from tandem.api.roles import ENGINES, Role, references
from tandem.api.types import Draft, EngineBuild, Lookahead, Medusa, ServiceSpec, Speculation, Target
from tandem.digest import digest
from tandem.engines.gpus import memory_gib, model_ranks

MEDUSA_SCRIPT = "/app/examples/medusa/convert_checkpoint.py"
DECIDED_FLAGS = frozenset(
    {
        *("checkpoint_dir", "output_dir", "model_config", "build_config", "model_cls_file", "model_cls_name"),
        *("max_batch_size", "max_input_len", "max_seq_len", "max_decoder_seq_len", "max_num_tokens"),
        *("max_beam_width", "speculative_decoding_mode", "max_draft_len", "logits_dtype", "kv_cache_type"),
        *("gather_generation_logits", "gather_all_token_logits", "gather_context_logits", "paged_kv_cache"),
        *("use_paged_context_fmha", "remove_input_padding", "context_fmha", "workers", "auto_parallel", "dry_run"),
    }
)
"""Flags of trtllm-build that the resource decides: refused in `extraArgs`."""
DECIDED_PARAMETERS = {
    **dict.fromkeys(("gpt_model_path", "encoder_model_path", "gpt_model_type"), "engine.prebuilt"),
    "enable_kv_cache_reuse": "kvCache.enableBlockReuse",
    "max_tokens_in_paged_kv_cache": "kvCache.maxTokens",
    "kv_cache_free_gpu_mem_fraction": "kvCache.freeGpuMemoryFraction",
    **dict.fromkeys(("gpu_device_ids", "participant_ids", "num_nodes"), "placement"),
    "speculative_decoding_fast_logits": "speculation.acceptance.fastLogits",
    "decoding_mode": "speculation.decodingType",
    "medusa_choices": "speculation.medusa.choices",
    "eagle_choices": "speculation.decodingType",
    "lookahead_window_size": "speculation.lookahead.windowSize",
    "lookahead_ngram_size": "speculation.lookahead.ngramSize",
    "lookahead_verification_set_size": "speculation.lookahead.verificationSetSize",
    **dict.fromkeys(("max_beam_width", "exclude_input_in_output", "FORCE_CPU_ONLY_INPUT_TENSORS"), ""),
}
"""Parameters of TensorRT-LLM's Triton backend that the resource decides, refused in `engine.parameters`, and the
field to write instead; empty: there is none, since Tandem's models count on its value."""
OPEN_PARAMETERS: Mapping[str, str] = {
    **dict.fromkeys(("enable_chunked_context", "enable_trt_overlap", "kv_cache_onboard_blocks"), "true or false"),
    **dict.fromkeys(("enable_context_fmha_fp32_acc", "multi_block_mode", "cuda_graph_mode"), "true or false"),
    "normalize_log_probs": "true or false",
    **dict.fromkeys(("kv_cache_host_memory_bytes", "sink_token_length", "cuda_graph_cache_size"), "a whole number"),
    **dict.fromkeys(("cancellation_check_period_ms", "stats_check_period_ms"), "a whole number"),
    **dict.fromkeys(("iter_stats_max_iterations", "request_stats_max_iterations"), "a whole number"),
    **dict.fromkeys(("lora_cache_max_adapter_size", "lora_cache_optimal_adapter_size"), "a whole number"),
    **dict.fromkeys(("lora_cache_host_memory_bytes", "recv_poll_period_ms"), "a whole number"),
    "max_attention_window_size": "whole numbers with commas between them",
    **dict.fromkeys(("cross_kv_cache_fraction", "gpu_weights_percent"), "a number"),
    "lora_cache_gpu_memory_fraction": "a number",
    "batch_scheduler_policy": "max_utilization or guaranteed_no_evict",
    **dict.fromkeys(("executor_worker_path", "lora_prefetch_dir", "tokenizer_dir"), ""),
    **dict.fromkeys(("guided_decoding_backend", "xgrammar_tokenizer_info_path"), ""),
    "max_queue_delay_microseconds": "a whole number",
}
"""Parameters that the backend reads and the resource does not decide, and what it takes for a value; empty: any text.
It warns in its log about a value that it cannot read, and goes on with its default; a name that it does not know it
never looks at. Read in triton_backend/inflight_batcher_llm/src (TensorRT-LLM 0c8de69a). The last one is Triton's."""
DEFAULT_NUM_TOKENS = 8192
"""trtllm-build's own `max_num_tokens`."""
ACTIVATION_SHARE, ACTIVATION_KIB = 0.1, 256
"""Of a GPU's memory so much for an engine's activations, which take about so much for each token of a step: two
bytes for each of 8 hidden sizes and 3 intermediate ones, these over tensorParallelSize, are 148 KiB for Llama 3.1 8B,
170 for 70B on four GPUs, 295 for 405B on eight. An estimate; activations are linear in the tokens by TensorRT-LLM's
docs/source/reference/memory.md."""
SPECULATIVE_DECODING_MODES = {
    DecodingType.DRAFT_TARGET: "draft_tokens_external",
    DecodingType.MEDUSA: "medusa",
    DecodingType.LOOKAHEAD: "lookahead_decoding",
}
"""`--speculative_decoding_mode` of trtllm-build for the target's engine."""


@dataclass(frozen=True)
class Build:
    """How an engine is built: both steps as argument lists, run by the entry point's `build`."""

    model: str
    """Folder of the checkpoint."""
    folder: str
    """Where the engine will be; while it is built, beside it."""
    script: str
    """Script that converts the checkpoint; empty: the image's own for the model's architecture."""
    convert: tuple[str, ...]
    """Arguments of the script."""
    build: tuple[str, ...]
    """Arguments of trtllm-build."""


def engine_folders(spec: ServiceSpec, image: str, folders: Mapping[Role, str]) -> dict[Role, str]:
    """Folder of each model's engine, built or brought along; `folders`: those of the models."""
    built = {role: build.folder for role, build in builds(spec, image, folders).items()}
    brought = {role: folders[engine] for role, engine in ENGINES.items() if engine in folders}
    return {**built, **brought}


def builds(spec: ServiceSpec, image: str, folders: Mapping[Role, str]) -> dict[Role, Build]:
    """Engines to build, by the role of the model."""
    return {role: _build(spec, image, folders, role) for role in built_roles(spec)}


def built_roles(spec: ServiceSpec) -> list[Role]:
    """Models whose engine nobody brought along."""
    brought = references(spec)
    return [role for role in model_ranks(spec) if ENGINES[role] not in brought]


def lookahead_max_draft_len(sizes: Lookahead) -> int:
    """Draft tokens of a step, which the engine must be built for (formula: examples/lookahead/README.md)."""
    window, ngram, verification = sizes.window_size, sizes.ngram_size, sizes.verification_set_size
    return (0 if ngram == 1 else ngram - 2) + (window - 1 + verification) * (ngram - 1)


def max_draft_len(spec: ServiceSpec) -> int:
    """Draft tokens that the target's engine must verify at once; 0 without speculation."""
    speculation = spec.speculation
    if speculation.decoding_type is DecodingType.LOOKAHEAD:
        return lookahead_max_draft_len(speculation.lookahead or Lookahead())
    if speculation.medusa:
        return len(speculation.medusa.choices)
    return speculation.max_draft_len if spec.draft else 0


def step_tokens(spec: ServiceSpec, role: Role) -> int:
    """Tokens of a step (`max_num_tokens`) that the engine is built for.

    A text has to fit as a whole. With a draft each round brings the whole text as a new request, and TensorRT-LLM
    counts all of it: so as many are wanted as a full batch of the longest texts has, within the GPU's memory.
    """
    options = build_options(spec, role)
    if options.max_num_tokens:
        return options.max_num_tokens
    longest, most = options.max_seq_len or 0, DEFAULT_NUM_TOKENS
    if spec.draft and (memory := memory_gib(spec)):
        bound = int(memory * ACTIVATION_SHARE * (1 << 20) / ACTIVATION_KIB)
        most = max(most, min(longest * engine_batch(spec, role), bound))
    return max(most, longest)


def build_options(spec: ServiceSpec, role: Role) -> EngineBuild:
    """What the resource says of the engine's build."""
    engine = _model(spec, role).engine
    return (engine and engine.build) or EngineBuild()


def engine_batch(spec: ServiceSpec, role: Role) -> int:
    """Sequences that the engine is built for."""
    return build_options(spec, role).max_batch_size or spec.serving.max_batch_size


def decoding_parameters(speculation: Speculation) -> dict[str, str]:
    """Parameters of TensorRT-LLM's Triton backend for what the engine decodes by itself; none for other types."""
    match speculation.decoding_type:
        case DecodingType.MEDUSA if speculation.medusa:
            return {"decoding_mode": "medusa", "medusa_choices": _choices(speculation.medusa)}
        case DecodingType.LOOKAHEAD:
            sizes = speculation.lookahead or Lookahead()
            return {
                "decoding_mode": "lookahead",
                "lookahead_window_size": str(sizes.window_size),
                "lookahead_ngram_size": str(sizes.ngram_size),
                "lookahead_verification_set_size": str(sizes.verification_set_size),
            }
    return {}


def _choices(medusa: Medusa) -> str:
    """The tree in the backend's own notation, e.g. `{0}, {0, 0}, {1}`."""
    return ", ".join("{" + ", ".join(map(str, path)) + "}" for path in medusa.choices)


def _build(spec: ServiceSpec, image: str, folders: Mapping[Role, str], role: Role) -> Build:
    script = MEDUSA_SCRIPT if spec.speculation.medusa else ""
    convert = [
        *_mapping(spec, role),
        *_dtype(spec, role),
        *_medusa(spec, folders.get(Role.MEDUSA_HEADS, folders[role])),
    ]
    build = _trtllm_build(spec, role)
    sources = references(spec)
    heads = {"heads": sources[Role.MEDUSA_HEADS].uri} if Role.MEDUSA_HEADS in sources else {}
    key = digest(
        {
            "uri": sources[role].uri,  # the folder of a claim is named by its role alone
            **heads,
            "folder": folders[role],
            "image": image,
            "gpu": [spec.placement.gpu.resource_name, *sorted(spec.placement.gpu.product)],
            "commands": [script, convert, build],
        },
        length=32,
    )
    folder = f"{CACHE}/engines/{key}"
    checkpoint, partial = f"{folder}/.partial/checkpoint", f"{folder}/.partial/engine"
    return Build(
        model=folders[role],
        folder=f"{folder}/engine",
        script=script,
        convert=(f"--model_dir={folders[role]}", f"--output_dir={checkpoint}", *convert),
        build=(f"--checkpoint_dir={checkpoint}", f"--output_dir={partial}", *build),
    )


def _model(spec: ServiceSpec, role: Role) -> Target | Draft:
    model = spec.draft if role is Role.DRAFT else spec.target
    if model is None:
        raise ValueError(f"the spec has no {role}")
    return model


def _mapping(spec: ServiceSpec, role: Role) -> list[str]:
    pipeline = spec.target.pipeline_parallel_size if role is Role.TARGET else 1
    return [
        f"--tp_size={_model(spec, role).tensor_parallel_size}",
        f"--pp_size={pipeline}",
        f"--workers={model_ranks(spec)[role]}",
    ]


def _dtype(spec: ServiceSpec, role: Role) -> list[str]:
    dtype = _model(spec, role).dtype
    # The script for Medusa does not know auto; its own default is float16.
    return [] if spec.speculation.medusa and dtype == "auto" else [f"--dtype={dtype}"]


def _medusa(spec: ServiceSpec, folder: str) -> list[str]:
    if spec.speculation.medusa is None:
        return []
    return [
        f"--medusa_model_dir={folder}",
        f"--num_medusa_heads={spec.speculation.medusa.num_heads}",
        f"--max_medusa_token_len={max_draft_len(spec)}",
    ]


def _trtllm_build(spec: ServiceSpec, role: Role) -> list[str]:
    options, tokens = build_options(spec, role), step_tokens(spec, role)
    longest = options.max_input_len or (options.max_seq_len and options.max_seq_len - 1)
    sizes = {
        "max_batch_size": engine_batch(spec, role),
        "max_input_len": longest,
        "max_seq_len": options.max_seq_len,
        "max_num_tokens": tokens if options.max_num_tokens or tokens != DEFAULT_NUM_TOKENS else None,
        "max_beam_width": 1,
    }
    extra = {"gemm_plugin": "auto", **options.extra_args}
    return [
        *(f"--{name}={value}" for name, value in sizes.items() if value is not None),
        # Each step of the BLS brings the whole text so far: its keys and values are reused from paged blocks.
        "--use_paged_context_fmha=enable",
        *_speculation(spec, role),
        f"--workers={model_ranks(spec)[role]}",
        *(f"--{name}={value}" if value else f"--{name}" for name, value in sorted(extra.items())),
    ]


def _speculation(spec: ServiceSpec, role: Role) -> list[str]:
    logits = ["--gather_generation_logits"] if spec.speculation.acceptance.method == "Logits" else []
    mode = SPECULATIVE_DECODING_MODES.get(spec.speculation.decoding_type)
    if role is Role.DRAFT or mode is None:
        return logits
    return [f"--speculative_decoding_mode={mode}", f"--max_draft_len={max_draft_len(spec)}", *logits]
