"""LLM: the reference engine behind upstream's signature."""

import itertools
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from reference_engine import engine
from reference_engine.request import Request, RequestError
from reference_engine.sampling import SamplingParams as ReferenceParams

from .. import faults
from ..executor import utils
from ..executor.request import LoRARequest
from ..executor.result import RequestOutput
from ..sampling_params import SamplingParams

KNOWN = {"speculative_config", "guided_decoding_backend", "lora_config", "max_seq_len", "max_batch_size", "backend"}


class Tokenizer:
    """The calls of transformers' tokenizers that Tandem makes."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def decode(
        self, token_ids: list[int], skip_special_tokens: bool = False, clean_up_tokenization_spaces: bool = True
    ) -> str:
        """Text."""
        text: str = self._tokenizer.decode(token_ids, skip_special_tokens=skip_special_tokens)
        return text


class LLM:
    """A model; `speculative_config` and others are mappings, as llm_args.yaml has them."""

    def __init__(
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
        for key in kwargs:
            if key not in KNOWN:
                raise ValueError(f"LLM got invalid argument: {key}")
        self._group = 1 + _draft_length(kwargs.get("speculative_config"))
        self.tokenizer = Tokenizer(Path(tokenizer or model))
        settings = engine.Settings(Path(model), max_seq_len=kwargs.get("max_seq_len") or 0)
        self._engine = engine.Engine(engine.load(settings))
        self._executor: Executor | None = Executor()
        self._ids = itertools.count(1)
        if os.environ.get("STAND_IN_VERSION") == "1.3":
            self._check_health = lambda: self._executor is not None and not self._executor.is_shutdown()

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
            raise RuntimeError("LLM is shutting down")
        params = sampling_params or SamplingParams()
        ids = inputs["prompt_token_ids"]
        result = RequestOutput(next(self._ids), ids, streaming, self._group)
        self._submit(result, ids, params)
        return result

    def shutdown(self) -> None:
        """End everything."""
        self._executor = None
        self._engine.close()

    def _submit(self, result: RequestOutput, ids: list[int], params: SamplingParams) -> None:
        if params.seed == faults.REQUEST_FAILS:
            result.fail(utils.RequestError("out of blocks, on demand\nStack trace:\nTraceback of the executor"))
        elif params.seed == faults.ENGINE_DIES:
            assert self._executor is not None
            self._executor.dead.set()
            result.fail(RuntimeError("CUDA error, on demand\nStack trace:\nTraceback of the executor"))
        elif params.seed != faults.HANGS:
            try:
                call = self._engine.submit(_request(ids, params), result.add)
            except RequestError as error:
                raise ValueError(str(error)) from error
            result.on_abort = lambda: self._engine.cancel(call)


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


def _request(ids: list[int], params: SamplingParams) -> Request:
    return Request(
        input_ids=np.array(ids, np.int32),
        max_new_tokens=params.max_tokens,
        end_id=-1 if params.ignore_eos else 0,
        sampling=ReferenceParams(
            top_k=1 if params.top_k is None and params.top_p is None else params.top_k or 0,
            top_p=params.top_p or 0.0,
            temperature=1.0 if params.temperature is None else params.temperature,
            seed=params.seed or 0,
            repetition_penalty=params.repetition_penalty or 1.0,
            presence_penalty=params.presence_penalty or 0.0,
            frequency_penalty=params.frequency_penalty or 0.0,
            min_tokens=params.min_tokens or 0,
        ),
        streaming=True,
        log_probs=bool(params.logprobs),
    )
