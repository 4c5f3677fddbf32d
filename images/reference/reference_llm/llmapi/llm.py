"""LLM: the reference engine behind upstream's signature."""

import itertools
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from reference_engine import engine
from reference_engine.request import Request, RequestError, Sink
from reference_engine.sampling import SamplingParams as EngineParams
from reference_engine.scheduler import Scheduler
from reference_engine.statistics import Statistics

from ..executor.result import RequestOutput
from ..sampling_params import SamplingParams
from .drafters import Drafter, DraftModel, NGram
from .llm_args import DraftTargetConfig, LlmArgs, NGramConfig, SpeculativeConfig
from .speculation import Speculator

STOPPED = "LLM is shutting down"


class Tokenizer:
    """The calls of transformers' tokenizers that Tandem makes."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids."""
        # A batch, as only batches let go of the interpreter's lock: a long text takes seconds.
        [encoding] = self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        ids: list[int] = encoding.ids
        return ids

    def get_vocab(self) -> dict[str, int]:
        """Ids by token."""
        vocabulary: dict[str, int] = self._tokenizer.get_vocab()
        return vocabulary

    def decode(
        self, token_ids: list[int], skip_special_tokens: bool = False, clean_up_tokenization_spaces: bool = True
    ) -> str:
        """Text."""
        text: str = self._tokenizer.decode(token_ids, skip_special_tokens=skip_special_tokens)
        return text


class TargetAlone:
    """A target without speculation, with the methods of Speculator."""

    def __init__(self, target: engine.Engine) -> None:
        self._target = target

    @property
    def alive(self) -> bool:
        """Whether the engine runs."""
        return self._target.alive

    @property
    def statistics(self) -> Statistics:
        """The engine's state."""
        return self._target.statistics

    def submit(self, request: Request, sink: Sink) -> Callable[[], None]:
        """Start a sequence; returns what cancels it. Raises RequestError and EngineStopped."""
        call = self._target.submit(request, sink)
        return lambda: self._target.cancel(call)

    def close(self) -> None:
        """End the engine."""
        self._target.close()


class LLM:
    """A model; `speculative_config` and others are mappings, as llm_args.yaml has them.

    Raises TypeError and ValueError for arguments that `LlmArgs` refuses, CheckpointError for a folder that is no
    Llama checkpoint.
    """

    def __init__(  # the arguments of tensorrt_llm.LLM, in its order: callers may pass them by position
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
        self.args = LlmArgs(
            model=model,
            tokenizer=tokenizer,
            tokenizer_mode=tokenizer_mode,
            skip_tokenizer_init=skip_tokenizer_init,
            trust_remote_code=trust_remote_code,
            tensor_parallel_size=tensor_parallel_size,
            dtype=dtype,
            revision=revision,
            tokenizer_revision=tokenizer_revision,
            **kwargs,
        )
        self.tokenizer = Tokenizer(self.args.tokenizer)
        self._end_ids = end_ids(self.args.model, self.tokenizer, self.args.tokenizer)
        self._runner = _runner(self.args)
        self._ids = itertools.count(1)

    def generate_async(
        self,
        inputs: Mapping[str, Any],
        sampling_params: SamplingParams | None = None,
        lora_request: None = None,
        prompt_adapter_request: None = None,
        streaming: bool = False,
    ) -> RequestOutput:
        """Generate for one prompt, on the running asyncio loop.

        Raises ValueError for what the engine cannot do, RuntimeError when it has stopped.
        """
        if not self._runner.alive:
            raise RuntimeError(STOPPED)
        ids = inputs["prompt_token_ids"]
        result = RequestOutput(next(self._ids), ids, streaming)
        self._submit(result, ids, sampling_params or SamplingParams())
        return result

    async def get_stats_async(
        self,
        timeout: float | None = 2,  # noqa: ASYNC109 - the signature is upstream's
    ) -> AsyncIterator[dict[str, Any]]:
        """The engine's state: of this moment, where upstream's has one for each iteration since it was asked.

        Nothing without enable_iter_perf_stats. `timeout`: seconds that upstream waits for another iteration.
        """
        if self.args.enable_iter_perf_stats:
            state = self._runner.statistics
            cache = {"maxNumBlocks": state.blocks, "usedNumBlocks": state.used}
            yield {"numActiveRequests": state.running + state.waiting, "kvCacheStats": cache}

    def shutdown(self) -> None:
        """End everything."""
        self._runner.close()

    def _check_health(self) -> bool:
        return self._runner.alive

    def _submit(self, result: RequestOutput, ids: list[int], params: SamplingParams) -> None:
        _refuse(params)
        try:
            result.on_abort = self._runner.submit(self._request(ids, params), result.add)
        except RequestError as error:
            raise ValueError(str(error)) from error

    def _request(self, ids: list[int], params: SamplingParams) -> Request:
        words = [params.bad] if isinstance(params.bad, str) else params.bad or []
        bad = (tuple(self.tokenizer.encode(word, add_special_tokens=False)) for word in words)
        return Request(
            input_ids=np.array(ids, np.int32),
            max_new_tokens=params.max_tokens,
            more_ends=() if params.ignore_eos else self._end_ids,
            sampling=EngineParams(
                top_k=1 if params.top_k is None and params.top_p is None else params.top_k or 0,
                top_p=params.top_p or 0.0,
                temperature=1.0 if params.temperature is None else params.temperature,
                seed=params.seed or 0,
                repetition_penalty=params.repetition_penalty or 1.0,
                presence_penalty=params.presence_penalty or 0.0,
                frequency_penalty=params.frequency_penalty or 0.0,
                min_tokens=params.min_tokens or 0,
                bad_words=tuple(filter(None, bad)),  # for some tokenizers a space is no token
            ),
            streaming=True,
            log_probs=bool(params.logprobs),
        )


def end_ids(model: Path, tokenizer: Tokenizer, folder: Path) -> tuple[int, ...]:
    """Tokens that end a text: the tokenizer's own, and all of generation_config.json, or else of config.json."""
    config = folder / "tokenizer_config.json"
    named = json.loads(config.read_text()).get("eos_token") if config.is_file() else None
    name = named.get("content") if isinstance(named, dict) else named
    ids = [tokenizer.get_vocab().get(name)] if name else []
    for file in ("generation_config.json", "config.json"):
        path = model / file
        found = json.loads(path.read_text()).get("eos_token_id") if path.is_file() else None
        if found is not None:
            ids += found if isinstance(found, list) else [found]
            break
    return tuple(dict.fromkeys(int(each) for each in ids if each is not None))


def _runner(args: LlmArgs) -> TargetAlone | Speculator:
    most, config = args.max_batch_size, args.speculative_config
    if config is None:
        return TargetAlone(engine.Engine(_scheduler(args, args.model, most, args.tensor_parallel_size)))
    target = _scheduler(args, args.model, _with_spare(most), args.tensor_parallel_size)
    return Speculator(target, _drafter(args, config, target), config, most)


def _with_spare(sequences: int) -> int:
    """Slots for so many sequences whose rounds are requests of their own: an eighth more.

    Else a prompt that comes between two rounds takes the place of a text that goes on
    (tests/unit/reference_engine/test_slots.py).
    """
    return sequences + -(-sequences // 8)


def _drafter(args: LlmArgs, config: SpeculativeConfig, target: Scheduler) -> Drafter:
    if isinstance(config, NGramConfig):
        return NGram(config)
    assert isinstance(config, DraftTargetConfig)
    draft = _scheduler(args, Path(config.speculative_model), _with_spare(args.max_batch_size))
    if draft.limits.vocab_size != target.limits.vocab_size:
        raise ValueError(
            f"the draft model has a vocabulary of {draft.limits.vocab_size}, the target of"
            f" {target.limits.vocab_size}: choose a draft of the target's own family"
        )
    return DraftModel(draft)


def _scheduler(args: LlmArgs, folder: Path, slots: int, gpus: int = 1) -> Scheduler:
    settings = engine.Settings(folder, slots, args.max_num_tokens, args.max_seq_len, backend=args.backend)
    return engine.load(replace(settings, gpu_device_ids=tuple(range(gpus))))


def _refuse(params: SamplingParams) -> None:
    """What the engine has not: it would give other text than asked for."""
    asked = {
        "best_of": (params.best_of or 1) > 1,
        "min_p": bool(params.min_p),
        "guided_decoding": params.guided_decoding is not None,
    }
    for name, wanted in asked.items():
        if wanted:
            raise ValueError(f"the reference engine has no {name}: leave it out")
