"""vLLM's `AsyncLLM` at work: it takes a sequence at a time, batches them itself, and runs in processes of its own."""

from __future__ import annotations

import asyncio
import itertools
import locale
import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tandem_serving.errors import RequestError
from tandem_serving.llmapi.chunks import CANCELLED, RequestMetrics, SequenceOutput
from tandem_serving.llmapi.codec import codec
from tandem_serving.llmapi.engine import stopped
from tandem_serving.llmapi.engines.vllm import errors, sampling
from tandem_serving.llmapi.engines.vllm.statistics import Statistics
from tandem_serving.llmapi.request import LlmApiPrompt, LlmApiRequest, Lora
from tandem_serving.llmapi.statistics import EngineFamilies, EngineState

log = logging.getLogger("tandem.llmapi")

ABORTED = "abort"
"""A finish reason of vLLM: the request was given up."""


def prepare() -> Path | None:
    """What vLLM needs of this process before it is imported; where its processes will write their errors. Triton's
    stub has the locale C, whatever the environment says, in which torch's compiler and vLLM cannot read their own
    files; and it has threads, so that a forked engine could hang."""
    locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    return errors.keep()


class VllmEngine:
    """A running AsyncLLM: an LlmApiEngine. `config`: a VllmConfig."""

    def __init__(self, config: Any, name: str, families: EngineFamilies) -> None:
        """Load the model."""
        self._errors = prepare()
        from vllm import exceptions
        from vllm.v1.engine.async_llm import AsyncLLM

        self.name, self.families = name, families
        self._statistics = Statistics()
        self.llm = AsyncLLM.from_vllm_config(config, stat_loggers=[lambda *_: self._statistics])
        self._statistics.blocks = int(config.cache_config.num_gpu_blocks or 0)
        self.refusals: tuple[type[Exception], ...] = (
            getattr(exceptions, "VLLMClientError", ValueError),
            ValueError,
            TypeError,
        )
        self._numbers = itertools.count()
        self.codec = codec(self.llm.get_tokenizer())

    def start(self, prompt: LlmApiPrompt, request: LlmApiRequest) -> VllmCall:
        """Start a sequence. Raises RequestError where vLLM refuses it; that may also come when it is iterated."""
        number = str(next(self._numbers))
        try:
            outputs = self.llm.generate(
                {"prompt_token_ids": prompt.ids},
                sampling.params(prompt, request),
                number,
                lora_request=_lora_request(prompt.lora),
            )
        except self.refusals as error:
            raise _refused(error) from None
        return VllmCall(self, number, outputs, request.log_probs)

    async def states(self) -> AsyncIterator[EngineState]:
        """Its state now, with what it counted since the last time."""
        yield self._statistics.take()

    def healthy(self) -> bool:
        """Whether its processes live."""
        return not self.llm.errored

    def error(self) -> str:
        """What its processes logged last."""
        return errors.recent(self._errors)

    def close(self) -> None:
        """End its processes."""
        self.llm.shutdown()


class VllmCall:
    """A sequence in the engine."""

    def __init__(self, engine: VllmEngine, number: str, outputs: Any, log_probs: bool) -> None:
        self._engine, self._number, self._outputs, self._log_probs = engine, number, outputs, log_probs
        self._over = False
        self._aborting: asyncio.Task[None] | None = None

    def abort(self) -> None:
        """Have the engine give the sequence up, unless it is over."""
        if not self._over:
            self._over = True
            self._aborting = asyncio.ensure_future(self._engine.llm.abort(self._number))

    async def __aiter__(self) -> AsyncIterator[SequenceOutput]:
        """The sequence after each output of the engine. Raises RequestError, EngineError."""
        ids, log_probs, of_prompt = list[int](), list[float](), list[float]()
        try:
            async for output in self._outputs:
                best = max(output.outputs, key=_log_prob)
                ids.extend(best.token_ids)
                if self._log_probs:
                    log_probs += chosen(best.token_ids, best.logprobs)
                if output.prompt_logprobs:  # with the first output; the first token has none
                    of_prompt = chosen(output.prompt_token_ids[1:], output.prompt_logprobs[1:])
                self._over = output.finished
                yield _progress(best, ids, log_probs, of_prompt)
        except self._engine.refusals as error:
            raise _refused(error) from None
        except Exception as error:
            log.exception("the engine broke off")
            why = self._engine.error()
            raise stopped() from RuntimeError(why) if why else error


def chosen(ids: Sequence[int], log_probs: Sequence[Mapping[int, Any]]) -> list[float]:
    """Of each token; vLLM has them by token, since others may be asked for."""
    return [float(each[token].logprob) for token, each in zip(ids, log_probs, strict=True)]


def _log_prob(completion: Any) -> float:
    return completion.cumulative_logprob or 0.0


def _refused(error: Exception) -> RequestError:
    lines = str(error).strip().splitlines()
    return RequestError(f"the engine refuses the request: {lines[0] if lines else type(error).__name__}")


def _progress(best: Any, ids: list[int], log_probs: list[float], of_prompt: list[float]) -> SequenceOutput:
    reason = best.finish_reason or ""
    return SequenceOutput(
        ids=ids,
        finish_reason=CANCELLED if reason == ABORTED else reason,
        cumulative_logprob=best.cumulative_logprob,
        metrics=acceptance(getattr(best, "spec_decode_metrics", None)),  # since 0.30
        log_probs=log_probs,
        prompt_log_probs=of_prompt,
    )


def acceptance(speculation: Any) -> RequestMetrics:
    """`speculation`: a RequestSpecDecodeMetrics; its histogram counts rounds by the drafts that they accepted."""
    rounds = sum(speculation.histogram) if speculation else 0
    if not rounds:
        return RequestMetrics()
    accepted = sum(drafts * count for drafts, count in enumerate(speculation.histogram))
    return RequestMetrics(
        1 + accepted / rounds, speculation.num_draft_tokens, accepted, rounds=tuple(speculation.histogram)
    )


def _lora_request(lora: Lora | None) -> Any:
    if lora is None:
        return None
    from vllm.lora.request import LoRARequest

    return LoRARequest(lora_name=lora.name, lora_int_id=lora.number, lora_path=lora.path)
