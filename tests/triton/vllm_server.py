"""A server whose LLM-API model runs vLLM on the CPU, by image vllm-cpu's own packages."""

import json
from pathlib import Path
from typing import Any

from support import environments
from triton import llmapi_client
from triton.bls_client import PAIR
from triton.harness import REPOSITORY_ROOT, Options, TritonServer

LOCK = REPOSITORY_ROOT / "images/vllm-cpu/requirements.txt"
DRAFT = {"method": "draft_model", "model": str(PAIR / "draft"), "num_speculative_tokens": 4}
ARGUMENTS: dict[str, Any] = {
    "dtype": "float32",  # as the numpy engine: greedy tokens are the same
    "enforce_eager": True,
    "enable_chunked_prefill": False,
    "max_num_seqs": 16,
    "max_num_batched_tokens": 4096,
    "kv_cache_memory_bytes": 256 << 20,
}
ENVIRONMENT = {
    **{"TORCHDYNAMO_DISABLE": "1", "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    **{"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"},
    "PYTHONPATH": "",  # the tests' `triton` is not OpenAI's
}
"""As images/vllm-cpu/Containerfile has it."""
REFUSED = {"min_p": "vLLM does not have it while it drafts; leave it out"}


def server(folder: Path, **arguments: Any) -> TritonServer:
    """Not yet started; `arguments` of AsyncEngineArgs."""
    made = llmapi_client.repository(
        folder / "models", {**ARGUMENTS, **arguments}, engine="vLLM", refused_parameters=json.dumps(REFUSED)
    )
    packages = environments.packages(environments.python(LOCK))
    # It logs nothing while it is imported, which takes a minute or more on a busy machine.
    return TritonServer(made, Options(env=ENVIRONMENT, packages=packages, hung_seconds=600))
