"""Flags of `vllm serve`: how many values they take, and those that are not the engine's. Data.

As vLLM 0.32.0's own parser has them (`make_arg_parser` in vllm/entrypoints/launchers/cli_args.py, which also adds
`AsyncEngineArgs`); `names` says which version has which argument of the engine.
"""

from collections.abc import Mapping


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _each(names: str, why: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), why)


SWITCHES = _words(
    """
    aggregate_engine_logging allow_credentials allow_deprecated_quantization async_scheduling calculate_kv_scales
    cohere_is_reasoning_model cudagraph_metrics data_parallel_external_lb data_parallel_hybrid_lb
    data_parallel_multi_port_external_lb dcp_q_replicate disable_cascade_attn disable_chunked_mm_input
    disable_custom_all_reduce disable_fastapi_docs disable_frontend_multiprocessing
    disable_hybrid_kv_cache_manager disable_log_requests disable_log_stats disable_nccl_for_dp_synchronization
    disable_sliding_window disable_uvicorn_access_log enable_auto_tool_choice enable_batch_sharded_sampling
    enable_bf16x3_router_gemm enable_chunked_prefill enable_cumem_allocator enable_dbo enable_elastic_ep
    enable_ep_weight_filter enable_eplb enable_expert_parallel enable_fault_tolerance
    enable_flash_late_interaction enable_flashinfer_autotune enable_force_include_usage enable_hc_sp
    enable_layerwise_nvtx_tracing enable_log_deltas enable_log_outputs enable_log_requests
    enable_logging_iteration_details enable_lora enable_mamba_cache_stochastic_rounding
    enable_mamba_fine_grained_prefix_cache enable_mamba_shared_prefix_checkpoint enable_mfu_metrics
    enable_mixed_moe_lora_format enable_mm_embeds enable_mm_processor_stats enable_moe_shared_loras
    enable_nccl_comm_suspend enable_offline_docs enable_per_request_metrics enable_prefix_caching
    enable_prompt_embeds enable_prompt_tokens_details enable_reasoning enable_request_id_headers
    enable_return_routed_experts enable_scale_out enable_server_load_tracking enable_shm_tensor_arena
    enable_sleep_mode enable_ssl_refresh enable_tokenizer_info_endpoint enable_tower_connector_lora
    enable_trace_replay enforce_eager exclude_tools_when_tool_choice_none fail_on_environ_validation
    fully_sharded_loras grpc headless interleave_mm_strings jit_monitor_verbose kv_cache_metrics
    kv_sharing_fast_prefill language_model_only log_error_stack long_prefill_token_threshold_adaptive
    mm_device_do_normalize mm_encoder_only numa_bind ray_workers_use_nsight return_sampling_mask
    return_tokens_as_token_ids scheduler_reserve_full_isl skip_mm_profiling skip_tokenizer_init
    sleep_mode_offload_cudagraph specialize_active_lora swa_bounded_replay tokens_only
    trust_remote_code trust_request_chat_template trust_request_mm_kwargs use_fp64_gumbel use_replayssm
    use_tqdm_on_load use_v2_block_manager worker_use_ray
    """
)
LISTS = _words(
    """
    allowed_media_domains api_key collect_detailed_traces cpu_offload_params cudagraph_capture_sizes
    ignore_patterns kv_cache_dtype_skip_layers logits_processors lora_modules lora_target_modules
    numa_bind_cpus numa_bind_nodes offload_params served_model_name sleep_preserve_parameter_names
    """
)
SHORT: Mapping[str, tuple[str, ...]] = {
    "api_server_count": ("-asc",),
    "attention_config": ("-ac",),
    "compilation_config": ("-cc",),
    "data_parallel_address": ("-dpa",),
    "data_parallel_backend": ("-dpb",),
    "data_parallel_external_lb": ("-dpe",),
    "data_parallel_hybrid_lb": ("-dph",),
    "data_parallel_multi_port_external_lb": ("-dpm",),
    "data_parallel_rank": ("-dpn",),
    "data_parallel_rpc_port": ("-dpp",),
    "data_parallel_size": ("-dp",),
    "data_parallel_size_local": ("-dpl",),
    "data_parallel_start_rank": ("-dpr",),
    "decode_context_parallel_size": ("-dcp",),
    "diffusion_config": ("-dc",),
    "enable_expert_parallel": ("-ep",),
    "gpu_memory_utilization": ("--device-memory-utilization",),
    "nnodes": ("-n",),
    "node_rank": ("-r",),
    "optimization_level": ("-O",),
    "pipeline_parallel_size": ("-pp",),
    "prefill_context_parallel_size": ("-pcp",),
    "quantization": ("-q",),
    "speculative_config": ("-sc",),
    "tensor_parallel_size": ("-tp",),
}
_ENDPOINT = "Tandem's own OpenAI endpoint serves the model: docs/reference/openai.md says what it has"
_TLS = "put the certificate into a Secret of type kubernetes.io/tls, and write serving.openAI.tlsSecret"
_RANKS = "Tandem sets it for each pod"
_REPLICAS = "a replica is one engine: write replicas"
_SPECULATIVE = "this flag is of vLLM before 0.10: give --speculative-config"
NOT_MAPPED: Mapping[str, str] = {
    **_each(
        """
        allow_credentials allowed_headers allowed_methods allowed_origins anthropic_disabled_thinking_effort
        chat_template_content_format cohere_format cohere_is_reasoning_model default_chat_template_kwargs
        disable_access_log_for_endpoints disable_fastapi_docs disable_uvicorn_access_log
        enable_flash_late_interaction enable_force_include_usage enable_log_deltas enable_log_outputs
        enable_log_requests enable_offline_docs enable_per_request_metrics enable_prompt_tokens_details
        enable_request_id_headers enable_scale_out enable_server_load_tracking enable_tokenizer_info_endpoint
        exclude_tools_when_tool_choice_none fingerprint_mode fingerprint_value grpc grpc_port
        h11_max_header_count h11_max_incomplete_event_size log_error_stack max_log_len middleware response_role
        return_tokens_as_token_ids root_path sse_keep_alive_interval tokens_only tool_parser_plugin tool_server
        tool_strict_level trust_request_chat_template trust_request_mm_kwargs uvicorn_log_level
        """,
        _ENDPOINT,
    ),
    **dict.fromkeys(("ssl_keyfile", "ssl_certfile", "ssl_ca_certs", "ssl_cert_reqs", "ssl_ciphers"), _TLS),
    "enable_ssl_refresh": "a renewed certificate is always loaded without a restart",
    **dict.fromkeys(("host", "uds"), "Kubernetes' Service leads to the pods"),
    "api_key": "put the keys into a Secret, and write serving.openAI.apiKeySecret",
    "hf_token": "put it into a Secret with key HF_TOKEN, and write target.model.secretName",
    "chat_template": "the template is the model's own: put it into the checkpoint as chat_template.jinja",
    "config": "give the flags of the file on the command line",
    "api_server_count": "each pod has one endpoint: write replicas",
    "lora_modules": "mount the adapters (podTemplate), and write their folders into runtime.extraLlmArgs.lora_dirs",
    **dict.fromkeys(("master_addr", "master_port", "node_rank"), _RANKS),
    **_each(
        """
        data_parallel_rank data_parallel_start_rank data_parallel_size_local data_parallel_address
        data_parallel_rpc_port data_parallel_backend data_parallel_external_lb data_parallel_hybrid_lb
        data_parallel_multi_port_external_lb data_parallel_supervisor_port dp_supervisor_probe_failure_threshold
        dp_supervisor_probe_interval_s dp_supervisor_probe_timeout_s
        """,
        _REPLICAS,
    ),
    "distributed_executor_backend": "Tandem starts vLLM's processes without Ray",
    "worker_use_ray": "Tandem starts vLLM's processes without Ray",
    "ray_workers_use_nsight": "Tandem starts vLLM's processes without Ray",
    "disable_log_stats": "they are the service's metrics",
    "download_dir": "models are downloaded into storage.cache",
    "code_revision": "downloads bring no code",
    "disable_log_requests": "requests are not logged",
    "disable_frontend_multiprocessing": _ENDPOINT,
    "enable_reasoning": "--reasoning-parser is enough",
    **_each(
        """
        ngram_prompt_lookup_max ngram_prompt_lookup_min num_speculative_tokens
        speculative_draft_tensor_parallel_size speculative_model speculative_disable_by_batch_size
        """,
        _SPECULATIVE,
    ),
    "num_scheduler_steps": "it was of vLLM's first engine",
    "use_v2_block_manager": "it was of vLLM's first engine",
    "swap_space": "it was of vLLM's first engine",
    "max_seq_len_to_capture": "give --max-cudagraph-capture-size",
    "guided_decoding_backend": "give --structured-outputs-config.backend",
    "device": "the profile decides it",
    "task": "Tandem serves models that generate text",
}
"""Why, and what to do instead."""
TEXTS = ("model", "revision", "served_model_name", "spec_model", "tokenizer", "tokenizer_revision")
"""Flags whose value is a text even if it looks like a number."""
TOOL_CALLS: Mapping[str, str] = {"hermes": "Hermes", "llama3_json": "Llama3Json", "mistral": "Mistral"}
"""vLLM's parsers of tool calls that the endpoint has."""
THINKING = ("deepseek_r1", "deepseek_v3", "qwen3")
"""vLLM's parsers of thoughts between <think> and </think>."""
VARIABLES: Mapping[str, str] = {
    **dict.fromkeys(
        ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"),
        "put it into a Secret with key HF_TOKEN, and write target.model.secretName",
    ),
    "VLLM_API_KEY": "put the keys into a Secret, and write serving.openAI.apiKeySecret",
    **dict.fromkeys(("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"), "Kubernetes gives the pods their GPUs"),
    **dict.fromkeys(
        ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"),
        "models are downloaded by Jobs, into storage.cache",
    ),
    **dict.fromkeys(("VLLM_HOST_IP", "VLLM_PORT"), _RANKS),
    "VLLM_USE_V1": "these versions of vLLM have no other engine",
    "VLLM_USE_MODELSCOPE": "models come from the Hugging Face Hub, buckets, claims or images",
}
"""Variables that are not the pod's."""
