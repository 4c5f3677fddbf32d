"""Mends faults of vLLM 0.32 on a CPU that a request can trigger; vLLM loads it in each of its processes.

tests/triton/test_vllm.py has a test for each, which fails without the mend: when one passes without it in a newer
version of vLLM, the mend can go.
"""

from __future__ import annotations

from typing import Any


def mend() -> None:
    """Replace what is wrong. An entry point of the group `vllm.general_plugins`."""
    from vllm.model_executor.models import registry
    from vllm.utils import cpu_triton_utils
    from vllm.v1.sample.ops import topk_topp_sampler

    # A process of its own keeps the first from initializing CUDA, and costs 18 s here: it imports all of vLLM again.
    registry._run_in_subprocess = lambda function: function()
    cpu_triton_utils._expand_kernel_impl = expand
    of_some = topk_topp_sampler.apply_top_k_only

    def apply_top_k_only(logits: Any, k: Any) -> Any:
        """Of no row, too: a pass in which no sequence drafts has none, and the largest k of none is an error."""
        return of_some(logits, k) if len(k) else logits

    topk_topp_sampler.apply_top_k_only = apply_top_k_only


def expand(output: Any, values: Any, ends: Any, replace_from: float, replace_to: float, *_: object) -> None:
    """A value of each sequence for each of its tokens, as the kernel in vllm/v1/sample/rejection_sampler.py.

    The CPU's own writes into a copy, as integers (vllm issue 55005): temperatures and top_p of sequences that draft
    were whatever memory held. `ends`: the tokens of the sequences up to and including each.
    """
    counts = ends.diff(prepend=ends.new_zeros(1))
    output.copy_(values.masked_fill(values == replace_from, replace_to).repeat_interleave(counts))
