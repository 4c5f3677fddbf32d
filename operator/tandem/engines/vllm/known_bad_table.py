"""The table of combinations that vLLM takes and then serves wrongly or slowly, or cannot start, by version. Data.

`runner`s: vLLM has two implementations of the workers' loop (`_get_v2_model_runner_unsupported_features` in
vllm/config/vllm.py says which methods are not in the new one).
"""

from tandem.engines.known_bad import Case, KnownBad, has, is_kind, on_cpus, over_stages, speculates, unless
from tandem.engines.vllm.versions import MINORS, before, since

_GITHUB = "https://github.com/vllm-project/vllm"
_STAGES = "target.pipelineParallelSize above 1 with"
_ONE_STAGE = "write pipelineParallelSize: 1 and a larger tensorParallelSize, or speculation.decodingType: None"
_HEADS = ("eagle", "eagle3", "dflash", "dspark")


def _own_image(case: Case) -> bool:
    return bool(case.spec.runtime.image)


TABLE = (
    # Cannot start
    KnownBad(
        combination=f"{_STAGES} MTP",
        versions=before("0.30"),
        when=(over_stages, is_kind("mtp")),
        happens="demands stages of the MTP layers, and does not start",
        instead=_ONE_STAGE,
        source=f"{_GITHUB}/issues/52069",
        refused=True,
    ),
    KnownBad(
        combination=f"{_STAGES} MTP",
        versions=since("0.30"),
        when=(over_stages, is_kind("mtp")),
        happens="was changed to run it for DeepSeek and Qwen3.5; other models may fail, or accept almost nothing",
        instead="try it with your model and see the accepted length, or write pipelineParallelSize: 1",
        source=f"{_GITHUB}/pull/46994",
    ),
    KnownBad(
        combination=f"{_STAGES} EAGLE heads, DFlash or DSpark",
        versions=before("0.30"),
        when=(over_stages, is_kind(*_HEADS)),
        happens="loses the hidden states of all stages but the last",
        instead=_ONE_STAGE,
        source=f"{_GITHUB}/pull/50514",
        refused=True,
    ),
    KnownBad(
        combination=f"{_STAGES} a draft model",
        versions=before("0.31"),
        when=(over_stages, is_kind("draft_model")),
        happens="has the drafter on the last stage only, and does not start",
        instead=_ONE_STAGE,
        source=f"{_GITHUB}/issues/30436",
        refused=True,
    ),
    KnownBad(
        combination=f"{_STAGES} n-grams",
        versions=before("0.32"),
        when=(over_stages, is_kind("ngram", "ngram_gpu")),
        happens="has the drafter on the last stage only, and does not start",
        instead=_ONE_STAGE,
        source=f"{_GITHUB}/issues/30436",
        refused=True,
    ),
    KnownBad(
        combination=f"{_STAGES} Suffix, Medusa or custom_class",
        versions=MINORS,
        when=(over_stages, is_kind("suffix", "medusa", "mlp_speculator", "custom_class")),
        happens="has the drafter on the last stage only, and does not start",
        instead=_ONE_STAGE,
        source=f"{_GITHUB}/issues/30436",
        refused=True,
    ),
    # Slow
    KnownBad(
        combination="decodingType DraftTarget",
        versions=before("0.31"),
        when=(is_kind("draft_model"), unless(on_cpus)),
        happens="runs draft models on its old runner, where 0.24.0 made half the tokens a second of its target"
        " without a"
        " draft (one H100, 8B and 1B)",
        instead="compare with decodingType None first, or write Eagle3, or a profile with vLLM 0.31",
        source=f"{_GITHUB}/pull/43091",
    ),
    # CPUs
    KnownBad(
        combination="speculation on CPUs with an image of your own",
        versions=MINORS,
        when=(on_cpus, speculates, _own_image),
        happens="draws samples by uninitialised memory, and requests with top_k or top_p can end the engine, unless"
        " the"
        " image mends it as that of profile vllm-cpu does",
        instead="remove runtime.image, or send temperature 0",
        source=f"{_GITHUB}/issues/55005",
    ),
    KnownBad(
        combination="target.pipelineParallelSize above 1 on CPUs, with enforce_eager",
        versions=("0.32",),
        when=(on_cpus, over_stages, has("enforce_eager")),
        happens="makes the buffers between stages only when it compiles: the first request ends the engine",
        instead="write pipelineParallelSize: 1 and a larger tensorParallelSize",
        source=f"{_GITHUB}/blob/v0.32.0/vllm/v1/worker/cpu_model_runner.py",
        refused=True,
    ),
    KnownBad(
        combination="speculation.draftLenSchedule or maxConcurrency on CPUs",
        versions=before("0.25"),
        when=(on_cpus, has("speculative_config.num_speculative_tokens_per_batch_size")),
        happens="fails when the draft length changes",
        instead="remove it",
        source=f"{_GITHUB}/issues/47014",
        refused=True,
    ),
    KnownBad(
        combination="enable_chunked_prefill on CPUs",
        versions=MINORS,
        when=(on_cpus, has("enable_chunked_prefill", lambda value: value is not False)),
        happens="ends when a request with a seed has a prompt that it takes in parts",
        instead="write runtime.extraLlmArgs.enable_chunked_prefill: false",
        source=f"{_GITHUB}/blob/v0.32.0/vllm/v1/worker/gpu_model_runner.py",
    ),
)
