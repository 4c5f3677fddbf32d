"""TensorRT-LLM's `LLM` at work, or that of a package with its modules and signatures, asynchronously.

It takes a sequence at a time and batches them itself.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

from tandem_serving.errors import EngineError, RequestError
from tandem_serving.llmapi.chunks import CANCELLED, SequenceOutput
from tandem_serving.llmapi.codec import codec
from tandem_serving.llmapi.engine import stopped
from tandem_serving.llmapi.engines.tensorrt_llm import dialect, sampling, statistics
from tandem_serving.llmapi.request import LlmApiPrompt, LlmApiRequest, Lora
from tandem_serving.llmapi.statistics import EngineFamilies, EngineState

log = logging.getLogger("tandem.llmapi")

STATISTICS_SECONDS = 2.0
"""Upstream's own default; an iteration of a long prompt takes less."""


class TensorRtLlmEngine:
    """A running `LLM`: an LlmApiEngine."""

    def __init__(self, arguments: Mapping[str, Any], package: str, name: str, families: EngineFamilies) -> None:
        """Load the model with the package's `LLM`."""
        self.name, self.families = name, families
        self._package = package
        self._llm = dialect.find(package, "LLM")(**dialect.llm_arguments(arguments, package))
        self._failed: type[Exception] = dialect.find(package, "RequestError", "executor.utils")
        self.codec = codec(self._llm.tokenizer)
        self._has_statistics = bool(arguments.get("enable_iter_perf_stats"))

    async def states(self) -> AsyncIterator[EngineState]:
        """The engine's state after each iteration, until none came for seconds; nothing where it does not tell."""
        if self._has_statistics:
            async for statistics_of_iteration in self._llm.get_stats_async(timeout=STATISTICS_SECONDS):
                if state := statistics.parse(statistics_of_iteration):
                    yield state

    def healthy(self) -> bool:
        """Whether the engine lives, as far as it knows."""
        return dialect.healthy(self._llm)

    def error(self) -> str:
        """Its requests get it."""
        return ""

    def start(self, prompt: LlmApiPrompt, request: LlmApiRequest) -> TensorRtLlmCall:
        """Start a sequence. Raises RequestError where the engine refuses it, EngineError where it is gone."""
        try:
            result = self._llm.generate_async(
                {"prompt_token_ids": prompt.ids},
                sampling_params=sampling.params(self._package, prompt, request),
                lora_request=self._lora_request(prompt.lora),
                # Always: stop words and the time to the first token are seen here. The best of several is
                # known at the end only.
                streaming=prompt.best_of == 1,
            )
        except (self._failed, ValueError, TypeError) as error:
            raise RequestError(f"the engine refuses the request: {first_line(error)}") from None
        except RuntimeError as error:
            log.exception("a request could not be started")
            raise stopped() from error
        return TensorRtLlmCall(result, self._failed)

    def close(self) -> None:
        """End the engine."""
        self._llm.shutdown()

    def _lora_request(self, lora: Lora | None) -> Any:
        if lora is None:
            return None
        return dialect.find(self._package, "LoRARequest", "executor.request")(
            lora_name=lora.name, lora_int_id=lora.number, lora_path=lora.path, lora_ckpt_source=lora.source
        )


class TensorRtLlmCall:
    """A sequence in the engine. `failed`: what iterating raises when only the request has failed."""

    def __init__(self, result: Any, failed: type[Exception]) -> None:
        self._result = result
        self._failed = failed

    def abort(self) -> None:
        """Have the engine give the sequence up, unless it is over."""
        if not self._result.finished:
            self._result.abort()

    async def __aiter__(self) -> AsyncIterator[SequenceOutput]:
        """The sequence after each response of the engine. Raises EngineError."""
        try:
            async for result in self._result:
                yield _progress(result)
        except self._failed as error:
            raise EngineError(f"the engine failed at this request: {first_line(error)}") from None
        except Exception as error:  # of its threads and processes, of any class: it shuts down, as its error says
            log.exception("the engine broke off")
            raise stopped() from error


def first_line(error: Exception) -> str:
    """An error's message without the traces that TensorRT-LLM's errors carry."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _progress(result: Any) -> SequenceOutput:
    best = result.outputs[0]
    over = result.finished
    return SequenceOutput(
        ids=list(best.token_ids),
        finish_reason=(best.finish_reason or CANCELLED) if over else "",  # every end of text has a reason
        stop_reason="" if best.stop_reason is None else str(best.stop_reason),
        cumulative_logprob=best.cumulative_logprob,
        metrics=dialect.metrics(result),
        log_probs=dialect.log_probs(best),
    )
