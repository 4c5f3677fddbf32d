"""The speculative service: requests in, chunks out. Knows engines and responses only by protocols.

Triton calls `submit`, which checks the request and returns; its prompts then run as sequences in the
runner. One watchdog looks every `WATCH_SECONDS` whether a client is gone or a request's time is over; it also
reports the metrics.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from tandem_serving import metrics as m
from tandem_serving.bls.batches import Route
from tandem_serving.bls.calls import Role
from tandem_serving.bls.chunks import BlsChunk, BlsWriter
from tandem_serving.bls.draft_length.policy import AdaptiveDraftLength
from tandem_serving.bls.limits import RoundLimits
from tandem_serving.bls.loop import LoopParams, SequenceLoop
from tandem_serving.bls.request import BlsParser, BlsPrompt, BlsRequest
from tandem_serving.bls.runner import BlsEngine, Runner
from tandem_serving.bls.sequence import BlsSequence, EngineInputs
from tandem_serving.bls.watched import watched
from tandem_serving.engine.health import IDLE, EngineHealth
from tandem_serving.engine.watch import EngineWatch
from tandem_serving.errors import CancelledError, ServingError, Survived, faults_as_errors
from tandem_serving.requests.active import ActiveRequest, ActiveRequests, Responder
from tandem_serving.requests.tensors import Array
from tandem_serving.requests.text import Detokenizer, StopText, StopTokens, TextStream
from tandem_serving.requests.tokenizer import Tokenizer

WATCH_SECONDS = 0.1
METRICS_SECONDS = 0.5


class MakeEngineInputs(Protocol):
    """What goes with each call of a prompt, by engine."""

    def __call__(self, prompt: BlsPrompt, request: BlsRequest) -> Mapping[Role, EngineInputs]:
        """The prompt's bindings."""
        ...


@dataclass(frozen=True)
class BlsOptions:
    """Settings of a service. `request_timeout` in seconds; `target_limit`, `draft_limit`: longest sequences (tokens)
    of the engines, 0: no draft. `mix_seed`, `vocabulary`: see loop.LoopParams. `probe_share` (0 to 1): of the
    requests that leave the draft length to the service, so many run without speculation, to measure what it is worth.
    `target`: the target engine's name; `canary_seconds`: see engine.health.IDLE."""

    request_timeout: float
    limits: RoundLimits
    target_limit: int = 1 << 30
    draft_limit: int = 1 << 30
    vocabulary: int = 1 << 31
    mix_seed: bool = False
    probe_share: float = 0.0
    target: str = "target"
    canary_seconds: float = IDLE


class BlsService:
    """Runs requests; thread-safe. `close` ends everything. `engine` watches the target once it is begun."""

    def __init__(
        self,
        parser: BlsParser,
        tokenizer: Tokenizer,
        engines: Mapping[Route, BlsEngine],
        bind: MakeEngineInputs,
        policy: AdaptiveDraftLength,
        options: BlsOptions,
    ) -> None:
        self._parser = parser
        self._tokenizer = tokenizer
        self._bind = bind
        self._options = options
        self._closed = threading.Event()
        probes = (m.PROBES,) if options.probe_share or policy.probes else ()
        self.metrics = m.Metrics(m.ALWAYS + (m.SPECULATION + probes if options.draft_limit else ()))
        self._active: ActiveRequests[BlsChunk] = ActiveRequests(options.request_timeout, self.metrics.fault)
        self.engine = EngineWatch(options.target, self.metrics, EngineHealth(options.canary_seconds))
        self._failure: ServingError | None = None
        self._streams = "stream" in engines
        self._runner = Runner(watched(engines, self.engine), policy, options.limits, self.metrics)

    def submit(self, tensors: Mapping[str, Array], request_id: str, responder: Responder[BlsChunk]) -> None:
        """Start a request; everything that is wrong with it goes to `responder`."""
        end: Callable[[ServingError], None] = responder.fail
        try:
            if self._failure:
                raise self._failure
            with faults_as_errors("a request could not be started"):
                request = self._parser.parse(tensors)
                active = self._active.make(len(request.prompts), request_id, responder)
                end = active.fail  # who runs it may have ended it already
                sequences = [self._sequence(active, request, prompt) for prompt in request.prompts]
                self._runner.add(sequences)
                self._active.add(active)
        except ServingError as error:
            end(error)
            return
        if self._failure:  # meanwhile
            active.fail(self._failure)

    def fail(self, error: ServingError) -> None:
        """End all requests, and refuse later ones: the target engine has failed."""
        self._failure = error
        self._active.fail_all(error)
        self._runner.end_dead()

    def cancel(self, request_id: str) -> None:
        """End all requests with this id: the client asked for it."""
        self._active.cancel(request_id)
        self._runner.end_dead()

    def watch(self, sink: m.Sink) -> None:
        """Watch over requests and report metrics until `close`; run on a thread of its own."""
        flushed = 0.0
        over, late, reporting = (
            Survived(f"{what} failed", self.metrics.fault) for what in ("requests that end", "late calls", "metrics")
        )
        while not self._closed.wait(WATCH_SECONDS):
            now = time.monotonic()
            with over:
                if self._active.watch(now):
                    self._runner.end_dead()
            with late:
                self._runner.watch(now)
            if now - flushed >= METRICS_SECONDS:
                flushed = now
                with reporting:
                    self._report(sink)

    def close(self) -> None:
        """End all requests and threads."""
        self.engine.close()
        self._closed.set()
        self._active.fail_all(CancelledError("the server is shutting down: send the request again"))
        self._runner.close()

    def _report(self, sink: m.Sink) -> None:
        running, waiting = self._runner.load()
        self.metrics.set(m.RUNNING, running)
        self.metrics.set(m.WAITING, waiting)
        self.metrics.flush(sink)

    def _sequence(self, active: ActiveRequest[BlsChunk], request: BlsRequest, prompt: BlsPrompt) -> BlsSequence:
        options = self._options
        # By logits, too, which token a seed gives depends on the lengths of the drafts.
        drawn = request.use_draft_logits or (options.mix_seed and prompt.sampled)
        reproducible = prompt.seed is not None and drawn
        if options.mix_seed and prompt.seed is None:
            # Such engines start each call without one at the same seed: all tokens would be drawn by the same number.
            prompt = replace(prompt, seed=random.getrandbits(64))
        bound = self._bind(prompt, request)
        # Engines do not agree on which log probs and logits a part of an answer has.
        streams = self._streams and not bound["target"].outputs
        probe = bool(options.draft_limit) and not prompt.asked and random.random() < options.probe_share
        return BlsSequence(
            request=active,
            loop=SequenceLoop(self._loop_params(request, prompt, streams)),
            writer=BlsWriter(prompt, self._text(prompt), request.stream, request.refused_text),
            engine_inputs=bound,
            metrics=self.metrics,
            draft_length=0 if probe or not options.draft_limit else prompt.num_draft_tokens,
            probe=probe,
            reproducible=reproducible,
            asked=prompt.asked,
        )

    def _loop_params(self, request: BlsRequest, prompt: BlsPrompt, streams: bool) -> LoopParams:
        options = self._options
        return LoopParams(
            prompt=prompt.ids,
            max_tokens=prompt.max_tokens,
            end_ids=prompt.end_ids,
            min_tokens=prompt.min_tokens,
            seed=prompt.seed,
            mix_seed=options.mix_seed,
            target_limit=options.target_limit,
            draft_limit=options.draft_limit,
            vocabulary=options.vocabulary,
            use_draft_logits=request.use_draft_logits,
            one_call=prompt.guided,
            streams=streams,
            redrawn=options.mix_seed and prompt.sampled,
        )

    def _text(self, prompt: BlsPrompt) -> TextStream:
        ids = prompt.ids.tolist()
        stop_tokens = StopTokens(self._tokenizer.words(prompt.stop_words), ids)
        detokenizer = Detokenizer(self._tokenizer.decode, ids, prompt.text)
        return TextStream(detokenizer, StopText(prompt.stop_words, keep=True), stop_tokens)
