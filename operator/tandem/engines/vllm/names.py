"""Names of vLLM's arguments by version: the fields of its dataclasses `AsyncEngineArgs` (vllm/engine/arg_utils.py)
and `SpeculativeConfig` (vllm/config/speculative.py) that users may set, as of the releases 0.24.0, 0.25.1, 0.26.0,
0.27.1, 0.28.0, 0.29.0, 0.30.0, 0.31.0, 0.32.0 and 0.33.0. Data.
"""

from collections.abc import Mapping
from functools import cache

from tandem.engines.vllm.versions import MINORS

_ENGINE: Mapping[str, str] = {
    "0.24": """
        additional_config aggregate_engine_logging all2all_backend allow_deprecated_quantization
        allowed_local_media_path allowed_media_domains async_scheduling attention_backend attention_config
        block_size calculate_kv_scales code_revision collect_detailed_traces compilation_config config_format
        convert cp_kv_cache_interleave_size cpu_distributed_timeout_seconds cpu_offload_gb cpu_offload_params
        cudagraph_capture_sizes cudagraph_metrics data_parallel_address data_parallel_backend
        data_parallel_external_lb data_parallel_hybrid_lb data_parallel_multi_port_external_lb
        data_parallel_rank data_parallel_rpc_port data_parallel_size data_parallel_size_local
        data_parallel_start_rank dbo_decode_token_threshold dbo_prefill_token_threshold dcp_comm_backend
        dcp_kv_cache_interleave_size decode_context_parallel_size default_mm_loras device_ids diffusion_config
        disable_cascade_attn disable_chunked_mm_input disable_custom_all_reduce disable_hybrid_kv_cache_manager
        disable_log_stats disable_nccl_for_dp_synchronization disable_sliding_window
        distributed_executor_backend distributed_timeout_seconds download_dir dtype ec_transfer_config
        enable_chunked_prefill enable_cumem_allocator enable_dbo enable_elastic_ep enable_ep_weight_filter
        enable_eplb enable_expert_parallel enable_flashinfer_autotune enable_layerwise_nvtx_tracing
        enable_log_requests enable_logging_iteration_details enable_lora enable_mamba_cache_stochastic_rounding
        enable_mfu_metrics enable_mixed_moe_lora_format enable_mm_embeds enable_mm_processor_stats
        enable_prefix_caching enable_prompt_embeds enable_return_routed_experts enable_sleep_mode
        enable_tower_connector_lora enforce_eager eplb_config expert_placement_strategy
        fail_on_environ_validation fully_sharded_loras gdn_prefill_backend generation_config
        gpu_memory_utilization hf_config_path hf_overrides hf_token ignore_patterns interleave_mm_strings
        io_processor_plugin ir_op_priority jit_monitor_verbose kernel_config kv_cache_dtype
        kv_cache_dtype_skip_layers kv_cache_memory_bytes kv_cache_metrics kv_cache_metrics_sample
        kv_events_config kv_offloading_backend kv_offloading_size kv_sharing_fast_prefill kv_transfer_config
        language_model_only limit_mm_per_prompt linear_backend load_format logits_processors logprobs_mode
        long_prefill_token_threshold lora_dtype lora_target_modules mamba_backend mamba_block_size
        mamba_cache_dtype mamba_cache_mode mamba_cache_philox_rounds mamba_config mamba_ssm_cache_dtype
        master_addr master_port max_cpu_loras max_cudagraph_capture_size max_logprobs max_long_partial_prefills
        max_lora_rank max_loras max_model_len max_num_batched_tokens max_num_partial_prefills max_num_seqs
        max_parallel_loading_workers media_io_kwargs mm_encoder_attn_backend mm_encoder_attn_dtype
        mm_encoder_fp8_scale_path mm_encoder_fp8_scale_save_margin mm_encoder_fp8_scale_save_path
        mm_encoder_only mm_encoder_tp_mode mm_processor_cache_gb mm_processor_cache_type mm_processor_kwargs
        mm_shm_cache_max_object_size_mb mm_tensor_ipc model model_impl model_loader_extra_config model_weights
        moe_backend nnodes node_rank num_gpu_blocks_override numa_bind numa_bind_cpus numa_bind_nodes
        offload_backend offload_group_size offload_num_in_group offload_params offload_prefetch_step
        optimization_level otlp_traces_endpoint override_attention_dtype override_generation_config
        performance_mode pipeline_parallel_size pooler_config prefill_context_parallel_size
        prefill_schedule_interval prefix_caching_hash_algo profiler_config pt_load_map_location quantization
        quantization_config ray_workers_use_nsight reasoning_config reasoning_parser reasoning_parser_plugin
        renderer_num_workers revision runner safetensors_load_strategy safetensors_prefetch_block_size
        safetensors_prefetch_num_threads scheduler_cls scheduler_reserve_full_isl scheduling_policy seed
        served_model_name show_hidden_metrics_for_version shutdown_timeout skip_mm_profiling skip_tokenizer_init
        spec_method spec_model spec_tokens specialize_active_lora speculative_config stream_interval
        structured_outputs_config tensor_parallel_size tokenizer tokenizer_mode tokenizer_revision tokens_only
        trust_remote_code ubatch_size use_fp64_gumbel use_tqdm_on_load video_pruning_rate watermark
        weight_transfer_config worker_cls worker_extension_cls
    """,
    "0.25": """
        jit_monitor_mode mm_ipc_gpu_memory_gb model_class_overrides
    """,
    "0.26": """
        enable_bf16x3_router_gemm enable_moe_shared_loras max_num_scheduled_tokens prefix_match_unit
    """,
    "0.27": """
        enable_fault_tolerance fault_tolerance_config kda_prefill_backend mamba_ssu_algorithm
        mm_hasher_algorithm replayssm_buffer_len use_replayssm video_pruning_method -max_long_partial_prefills
        -max_num_partial_prefills
    """,
    "0.28": """
        ec_manager_config mm_device_do_normalize mm_processor_device return_sampling_mask -calculate_kv_scales
        -override_attention_dtype
    """,
    "0.29": """
        dcp_q_replicate enable_batch_sharded_sampling enable_trace_replay max_num_queued_reqs
        max_num_queued_tokens per_request_spec_decode_metrics prefix_cache_retention_interval
    """,
    "0.30": """
        dp_sync_interval elastic_ep_max_dp_size enable_mamba_fine_grained_prefix_cache enable_nccl_comm_suspend
        engram_config kda_decode_backend sparse_indexer_topk_backend watermark_config -enable_bf16x3_router_gemm
    """,
    "0.31": """
        aux_output_config enable_mamba_shared_prefix_checkpoint log_config_file log_level logging_config
        long_prefill_token_threshold_adaptive max_lora_cls_labels max_num_active_seqs
        sleep_preserve_parameter_names swa_bounded_replay -enable_mamba_fine_grained_prefix_cache
    """,
    "0.32": """
        custom_histogram_buckets enable_hc_sp enable_shm_tensor_arena sleep_mode_offload_cudagraph
    """,
    "0.33": """
        monokernel sleep_mode_backend watchdog_config
    """,
}
"""Those that a version has beyond the one before it; those with a minus sign it has no more."""
_SPECULATION: Mapping[str, str] = {
    "0.24": """
        attention_backend code_revision disable_padded_drafter_batch draft_load_config draft_sample_method
        draft_tensor_parallel_size enforce_eager max_model_len method model moe_backend num_speculative_tokens
        num_speculative_tokens_per_batch_size parallel_drafting prompt_lookup_max prompt_lookup_min quantization
        rejection_sample_method revision suffix_decoding_max_cached_requests suffix_decoding_max_spec_factor
        suffix_decoding_max_tree_depth suffix_decoding_min_token_prob synthetic_acceptance_length
        synthetic_acceptance_rates use_local_argmax_reduction
    """,
    "0.25": """
        use_heterogeneous_vocab
    """,
    "0.26": """
        kv_cache_dtype
    """,
    "0.28": """
        dspark_draft_topk enable_adaptive_verification
    """,
    "0.29": """
        index_share_for_mtp_iteration
    """,
    "0.30": """
        disable_eagle_block_drop
    """,
    "0.33": """
        disable_lookahead_block_hashes draft_lm_head_quantization fly_entropy_threshold fly_entropy_top_k
        fly_window_size xpress_topc
    """,
}
"""Likewise."""


@cache
def arguments(minor: str) -> frozenset[str]:
    """Those of the engine."""
    return _names(_ENGINE, minor)


@cache
def speculation(minor: str) -> frozenset[str]:
    """Those of `speculative_config`."""
    return _names(_SPECULATION, minor)


def _names(changes: Mapping[str, str], minor: str) -> frozenset[str]:
    found: set[str] = set()
    for version in MINORS[: MINORS.index(minor) + 1]:
        words = changes.get(version, "").split()
        found |= {word for word in words if not word.startswith("-")}
        found -= {word[1:] for word in words if word.startswith("-")}
    return frozenset(found)
