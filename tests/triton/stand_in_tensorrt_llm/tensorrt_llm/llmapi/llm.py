"""LLM: reference_llm's, with made-up speculation, faults and a version's habits."""

import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import reference_llm
from reference_llm.llmapi.llm import STOPPED
from reference_llm.sampling_params import SamplingParams

from .. import faults
from ..executor import utils
from ..executor.request import LoRARequest
from ..executor.result import RequestOutput

TAKEN = ("guided_decoding_backend", "lora_config", "backend")


class LLM(reference_llm.LLM):
    """A model; `speculative_config` and others are mappings, as llm_args.yaml has them."""

    def __init__(  # written out: a test compares the signature with upstream's own record of it
        self,
        model: str | Path,
        tokenizer: str | Path | None = None,
        tokenizer_mode: str = "auto",
        skip_tokenizer_init: bool = False,
        trust_remote_code: bool = False,
        tensor_parallel_size: int = 1,
        dtype: str = "auto",
        revision: str | None = None,
        tokenizer_revision: str | None = None,
        **kwargs: Any,
    ) -> None:
        self._group = 1 + _draft_length(kwargs.pop("speculative_config", None))
        super().__init__(model, tokenizer, **{name: kwargs[name] for name in kwargs if name not in TAKEN})
        self._executor: Executor | None = Executor()
        if os.environ.get("STAND_IN_VERSION") != "1.3":  # has no such check
            self._check_health = None  # type: ignore[method-assign,assignment]

    def generate_async(
        self,
        inputs: Mapping[str, Any],
        sampling_params: SamplingParams | None = None,
        lora_request: LoRARequest | None = None,
        prompt_adapter_request: None = None,
        streaming: bool = False,
    ) -> RequestOutput:
        """Generate for one prompt."""
        if self._executor is None or self._executor.is_shutdown():
            raise RuntimeError(STOPPED)
        params = sampling_params or SamplingParams()
        ids = inputs["prompt_token_ids"]
        result = RequestOutput(next(self._ids), ids, streaming, self._group)
        if params.seed == faults.REQUEST_FAILS:
            result.fail(utils.RequestError("out of blocks, on demand\nStack trace:\nTraceback of the executor"))
        elif params.seed == faults.ENGINE_DIES:
            self._executor.dead.set()
            result.fail(RuntimeError("CUDA error, on demand\nStack trace:\nTraceback of the executor"))
        elif params.seed != faults.HANGS:
            self._submit(result, ids, replace(params, guided_decoding=None))
        return result

    def shutdown(self) -> None:
        """End everything."""
        self._executor = None
        super().shutdown()

    def _check_health(self) -> bool:
        return self._executor is not None and not self._executor.is_shutdown()


class Executor:
    """The part of upstream's executor that tells whether it lives."""

    def __init__(self) -> None:
        self.dead = threading.Event()

    def is_shutdown(self) -> bool:
        """Whether it has ended."""
        return self.dead.is_set()


def _draft_length(config: Mapping[str, Any] | None) -> int:
    if config is None:
        return 0
    if config["decoding_type"] == "User_Provided":
        drafter = config.get("drafter")
        if not callable(getattr(drafter, "prepare_draft_tokens", None)):
            raise ValueError(f"drafter ({drafter!r}) has no prepare_draft_tokens")
        print(f"stand-in: drafter {type(drafter).__name__}", flush=True)
    return int(config["max_draft_len"])
