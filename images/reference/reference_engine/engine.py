"""The scheduler on a thread of its own: submit from any thread, outputs come on the engine's."""

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from reference_engine import config as model_config
from reference_engine import kv_cache, layout, weights
from reference_engine.config import CheckpointError
from reference_engine.kv_cache import KVCache
from reference_engine.model import Llama
from reference_engine.request import Limits, Request, RequestError, Sink, check
from reference_engine.scheduler import Capacity, Scheduler
from reference_engine.sequence import Sequence
from reference_engine.statistics import Statistics

STOPPED = "the engine has stopped after an internal error: its log says which; restart the server"


BACKENDS = ("numpy", "torch")
_ABOVE_0 = ("max_num_sequences", "max_num_tokens", "kv_cache_bytes")
_ALSO_0 = ("max_seq_len",)
_NUMPY_CACHE = 2 << 30


class EngineStopped(RuntimeError):
    """The engine's thread has ended."""


@dataclass(frozen=True)
class Settings:
    """How to run a checkpoint.

    `max_seq_len` 0: the model's own limit. `kv_cache_bytes` bounds the cache: as many slots as fit, at most
    `max_num_sequences`; further requests wait. 0: 2 GiB in numpy, no bound in torch. `backend` is one of BACKENDS,
    `gpu_device_ids` the indices of torch's GPUs: over several a model is split.
    """

    model_path: Path
    max_num_sequences: int = 64
    max_num_tokens: int = 512
    max_seq_len: int = 0
    kv_cache_bytes: int = 0
    backend: str = "numpy"
    gpu_device_ids: tuple[int, ...] = (0,)

    @classmethod
    def parse(cls, parameters: Mapping[str, str]) -> "Settings":
        """From string parameters by these fields' names; others are ignored. Raises CheckpointError."""
        path = parameters.get("model_path")
        if not path:
            raise CheckpointError("the parameter model_path is missing: set it to the checkpoint's folder")
        numbers = {}
        for name in (*_ABOVE_0, *_ALSO_0):
            text = parameters.get(name, "")
            if text and not (text.isdecimal() and (int(text) > 0 or name in _ALSO_0)):
                raise CheckpointError(f"the parameter {name} is {text!r}: set it to a whole number above 0")
            if text:
                numbers[name] = int(text)
        backend = parameters.get("backend") or "numpy"
        if backend not in BACKENDS:
            raise CheckpointError(f"the parameter backend is {backend!r}: set it to {' or '.join(BACKENDS)}")
        return cls(Path(path), **numbers, backend=backend, gpu_device_ids=_devices(parameters, backend))


def _devices(parameters: Mapping[str, str], backend: str) -> tuple[int, ...]:
    """As TensorRT-LLM's parameter: indices with commas between them. Raises CheckpointError."""
    text = parameters.get("gpu_device_ids") or "0"
    parts = text.split(",")
    if not all(part.isdecimal() for part in parts) or len(set(map(int, parts))) < len(parts):
        raise CheckpointError(f"the parameter gpu_device_ids is {text!r}: set it to different whole numbers, as 0,1")
    if len(parts) > 1 and backend != "torch":
        raise CheckpointError(f"the parameter gpu_device_ids is {text!r}: write backend torch, or one GPU")
    return tuple(map(int, parts))


class Call:
    """A submitted request, for cancelling it."""

    def __init__(self) -> None:
        self.cancelled = False
        self.sequence: Sequence | None = None


def load(settings: Settings) -> Scheduler:
    """Read a checkpoint and make its scheduler. Raises CheckpointError."""
    if settings.backend == "torch":
        from reference_engine.torch_backend import loading  # torch and transformers are there only where it is used

        sizes = loading.Sizes(settings.max_num_sequences, settings.max_seq_len, settings.max_num_tokens)
        return loading.load(settings.model_path, sizes, settings.kv_cache_bytes, settings.gpu_device_ids)
    config = model_config.read(settings.model_path)
    longest = min(settings.max_seq_len or config.max_position_embeddings, config.max_position_embeddings)
    slots = kv_cache.slots(
        settings.kv_cache_bytes or _NUMPY_CACHE,
        kv_cache.bytes_per_slot(config, longest),
        longest,
        settings.max_num_sequences,
    )
    packed = layout.build(weights.read(settings.model_path, config), config, longest)
    model = Llama(config, packed, KVCache(config, slots, longest), settings.max_num_tokens)
    return Scheduler(model, Capacity(settings.max_num_tokens, slots, longest), config.vocab_size)


class Engine:
    """Runs a scheduler until `close`. Thread-safe."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.limits: Limits = scheduler.limits
        self._scheduler = scheduler
        self._inbox: deque[tuple[Request, Sink, Call]] = deque()
        self._wake = threading.Condition()
        self._stepping = threading.Lock()  # of the scheduler; taken before `_wake`
        self._open = True
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def statistics(self) -> Statistics:
        """Its state (read without a lock: a moment's picture)."""
        statistics = self._scheduler.statistics
        return replace(statistics, waiting=statistics.waiting + len(self._inbox))

    @property
    def alive(self) -> bool:
        """Whether it takes requests: neither closed nor stopped by an error."""
        return self._open

    def submit(self, request: Request, sink: Sink) -> Call:
        """Queue a request; `sink` is called on the engine's thread, must not block long nor raise.

        Raises RequestError (the request is wrong) and EngineStopped.
        """
        [call] = self.submit_all([(request, sink)])
        return call

    def submit_all(self, rows: Iterable[tuple[Request, Sink]]) -> list[Call]:
        """Queue requests for the same pass: all or, when it raises as `submit`, none."""
        queued = [(request, sink, Call()) for request, sink in rows]
        for index, (request, _, _) in enumerate(queued):
            try:
                check(request, self.limits)
            except RequestError as error:
                raise error if len(queued) == 1 else RequestError(f"row {index}: {error}") from error
        with self._wake:
            if not self._open:
                raise EngineStopped(STOPPED)
            self._inbox.extend(queued)
        self._begin()
        with self._wake:
            self._wake.notify()
        return [call for _, _, call in queued]

    def _begin(self) -> None:
        """Give an idle backend its first pass on this thread.

        The engine's thread would have to wake up first, and to get the interpreter's lock, which this one has.
        """
        if not self._stepping.acquire(blocking=False):
            return
        try:
            if self._scheduler.idle and self._take_inbox():
                with suppress(Exception):  # the engine's thread meets it again, and ends all requests
                    self._scheduler.begin()
        finally:
            self._stepping.release()

    def cancel(self, call: Call) -> None:
        """End a request at the next pass; its sink gets Finish.CANCELLED. No effect once it has ended."""
        with self._wake:
            call.cancelled = True
            if call.sequence is not None:
                call.sequence.cancelled = True

    def close(self) -> None:
        """End all requests with an error, and the thread."""
        with self._wake:
            self._open = False
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        """Until closed. An error in a step ends all requests: none is left waiting for ever."""
        try:
            while self._wait():
                with self._stepping:
                    self._take_inbox()
                    self._scheduler.step()
        finally:
            with self._stepping:
                with self._wake:
                    self._open = False
                self._take_inbox()
                self._scheduler.fail_all(STOPPED)

    def _wait(self) -> bool:
        """Wait for something to do; False: closed."""
        with self._wake:
            while self._open and self._scheduler.idle and not self._inbox:
                self._wake.wait()
            return self._open

    def _take_inbox(self) -> bool:
        """Move submitted requests to the scheduler; whether it is to work on them."""
        with self._wake:
            while self._inbox:
                request, sink, call = self._inbox.popleft()
                call.sequence = self._scheduler.queue(request, sink)
                call.sequence.cancelled = call.cancelled
            return self._open
