"""The speculative service: requests in, chunks out. Knows engines and responses only by protocols.

Threads: Triton calls `submit`, which checks the request and returns; each prompt then runs as a sequence on
the pool. One watchdog looks every `WATCH_SECONDS` whether a client is gone or a request's time is over and
stops that request's engine calls; it also reports the metrics.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from tandem_serving import metrics as m
from tandem_serving.chunks import Chunk, Writer
from tandem_serving.control import Abortable, Control, TimeLimited
from tandem_serving.errors import CancelledError, EngineError, RequestTimeoutError, ServingError
from tandem_serving.loop import Engine, Loop, Sequence, Step
from tandem_serving.policy import FixedDraftLength, SequencePool
from tandem_serving.request import Array, Parser, Prompt, Request
from tandem_serving.text import Detokenizer, StopText, TextStream
from tandem_serving.tokenizer import Tokenizer

WATCH_SECONDS = 0.1
METRICS_SECONDS = 0.5


class Responder(Protocol):
    """A request's way back to its client. Methods are called by one thread at a time."""

    def send(self, chunk: Chunk, last: bool) -> None:
        """Send a chunk; `last` ends the request."""
        ...

    def fail(self, error: ServingError) -> None:
        """Send an error, which ends the request."""
        ...

    def cancelled(self) -> bool:
        """Whether the client is gone."""
        ...


class Engines(Protocol):
    """Engines bound to one sequence."""

    def target(self, prompt: Prompt, request: Request, control: Control) -> Engine:
        """The target; its calls are cancelled by `control`."""
        ...

    def draft(self, prompt: Prompt, control: Control) -> Abortable | None:
        """The draft engine, or None where the service has none."""
        ...


@dataclass(frozen=True)
class Options:
    """Settings of a service; times in seconds. `draft_limit`: longest sequence (tokens) of the draft,
    0 where there is none."""

    request_timeout: float
    draft_timeout: float
    running: int = 64
    waiting: int = 1024
    draft_limit: int = 1 << 30
    mix_seed: bool = False


@dataclass
class Job:
    """A request while it runs. Sending stops at its end, whoever brings it about."""

    request: Request
    request_id: str
    responder: Responder
    deadline: float
    control: Control = field(default_factory=Control)
    arrived: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _finished: int = 0
    _over: bool = False

    def send(self, chunk: Chunk) -> None:
        """Send a chunk unless the request is over; its last prompt's last chunk ends it."""
        with self._lock:
            if self._over:
                return
            self._finished += bool(chunk.finish_reason)
            self._over = self._finished == len(self.request.prompts)
            self.responder.send(chunk, last=self._over)

    def fail(self, error: ServingError) -> None:
        """End the request with an error and stop its other sequences."""
        with self._lock:
            if not self._over:
                self._over = True
                self.responder.fail(error)
        self.control.stop(error)

    def cancelled(self) -> bool:
        """Whether the client is gone. Never asked once the request is over: Triton has freed it then."""
        with self._lock:
            return not self._over and self.responder.cancelled()


class Service:
    """Runs requests; thread-safe. `close` ends everything."""

    def __init__(self, parser: Parser, tokenizer: Tokenizer, engines: Engines, options: Options) -> None:
        self._parser = parser
        self._tokenizer = tokenizer
        self._engines = engines
        self._options = options
        self._pool = SequencePool(options.running, options.waiting)
        self._draft_threads = ThreadPoolExecutor(options.running, thread_name_prefix="draft")
        self._jobs: dict[int, Job] = {}
        self._closed = threading.Event()
        self.metrics = m.Metrics(speculates=options.draft_limit > 0)

    def submit(self, tensors: Mapping[str, Array], request_id: str, responder: Responder) -> None:
        """Start a request; everything that is wrong with it goes to `responder`."""
        try:
            request = self._parser.parse(tensors)
            self._pool.admit(len(request.prompts))
        except ServingError as error:
            responder.fail(error)
            return
        deadline = time.monotonic() + self._options.request_timeout
        job = Job(request, request_id, responder, deadline)
        self._jobs[id(job)] = job
        left = _Countdown(len(request.prompts))
        for prompt in request.prompts:
            self._pool.submit(partial(self._run, job, prompt, left))

    def cancel(self, request_id: str) -> None:
        """End all requests with this id: the client asked for it."""
        for job in list(self._jobs.values()):
            if request_id and job.request_id == request_id:
                job.fail(CancelledError("the request was stopped"))

    def watch(self, sink: m.Sink) -> None:
        """Watch over requests and report metrics until `close`; run on a thread of its own."""
        flushed = 0.0
        while not self._closed.wait(WATCH_SECONDS):
            now = time.monotonic()
            for job in list(self._jobs.values()):
                self._watch_job(job, now)
            if now - flushed >= METRICS_SECONDS:
                flushed = now
                self._report(sink)

    def close(self) -> None:
        """End all requests and threads."""
        self._closed.set()
        for job in list(self._jobs.values()):
            job.fail(CancelledError("the server is shutting down: send the request again"))
        self._pool.shutdown()
        self._draft_threads.shutdown(wait=False, cancel_futures=True)

    def _report(self, sink: m.Sink) -> None:
        running, waiting = self._pool.load()
        self.metrics.set(m.RUNNING, running)
        self.metrics.set(m.WAITING, waiting)
        self.metrics.flush(sink)

    def _watch_job(self, job: Job, now: float) -> None:
        if now > job.deadline:
            seconds = self._options.request_timeout
            job.fail(RequestTimeoutError(f"the request took longer than {seconds:g} s and was ended"))
        elif job.cancelled():
            job.fail(CancelledError("the client cancelled the request"))

    def _run(self, job: Job, prompt: Prompt, left: _Countdown) -> None:
        done = False
        try:
            job.control.check()
            self._generate(job, prompt)
            done = True
        except ServingError as error:
            job.fail(error)
            done = True
        finally:
            if not done:
                job.fail(EngineError("the server failed at this request; its log says why"))
            if left.down() == 0:
                del self._jobs[id(job)]

    def _generate(self, job: Job, prompt: Prompt) -> None:
        detokenizer = Detokenizer(self._tokenizer.decode, prompt.ids.tolist())
        text = TextStream(detokenizer, StopText(prompt.stop_words))
        writer = Writer(prompt, text, job.request.stream, job.send)
        started = False
        with closing(self._loop(job, prompt).steps()) as steps:
            for step in steps:
                if not started:
                    self.metrics.observe(m.FIRST_TOKEN, time.monotonic() - job.arrived)
                    started = True
                self._count(step)
                if writer.write(step):
                    break
        self.metrics.add(m.PROMPT_TOKENS, len(prompt.ids))
        self.metrics.observe(m.LATENCY, time.monotonic() - job.arrived)

    def _loop(self, job: Job, prompt: Prompt) -> Loop:
        options = self._options
        sequence = Sequence(
            prompt=prompt.ids,
            max_tokens=prompt.max_tokens,
            end_ids=prompt.end_ids,
            min_tokens=prompt.min_tokens,
            seed=prompt.seed,
            mix_seed=options.mix_seed,
            draft_limit=options.draft_limit,
        )
        draft = self._engines.draft(prompt, job.control) if prompt.num_draft_tokens else None
        limited = TimeLimited(draft, self._draft_threads, options.draft_timeout) if draft else None
        target = self._engines.target(prompt, job.request, job.control)
        return Loop(sequence, target, limited, FixedDraftLength(prompt.num_draft_tokens))

    def _count(self, step: Step) -> None:
        if step.drafted:
            self.metrics.round(step.drafted, step.accepted)
        if step.draft_error:
            self.metrics.add(m.DRAFT_FAILURES, 1)
        self.metrics.add(m.GENERATION_TOKENS, len(step.ids))


class _Countdown:
    def __init__(self, count: int) -> None:
        self._count = count
        self._lock = threading.Lock()

    def down(self) -> int:
        with self._lock:
            self._count -= 1
            return self._count
