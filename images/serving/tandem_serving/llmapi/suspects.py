"""Requests that end the engine, and would end it again after its restart.

A file in a volume of the pod has a record for each kind of request that runs. It is written where a sequence begins
and ends, never between; the kernel keeps it however this process dies. At the next start of the container, what was
running has one more *death*. A sequence that is answered to its end has none; one with `MOST_DEATHS` is refused.

After a death those that ran come again together. They begin one at a time, each at the first response of the one
before, so that of them only the one that ends the engine has a second death.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tandem_serving import metrics as m
from tandem_serving.engine.watch import REQUESTS_OWN
from tandem_serving.errors import RequestError, ServingError
from tandem_serving.llmapi.request import LlmApiPrompt, LlmApiRequest

log = logging.getLogger("tandem.llmapi")

FILE = "running-requests"
MOST_DEATHS = 2
MOST_KNOWN = 4096
"""Records that a start takes over, those with the most deaths first."""
_RECORD = struct.Struct("32sBB")  # digest, deaths, whether it runs
_FREE = bytes(_RECORD.size)
REFUSED = (
    f"the engine ended {MOST_DEATHS} times while this request ran, so this server refuses it: change the request; the"
    " engine's log and the container's last termination message say why it ended"
)


def digest(prompt: LlmApiPrompt, request: LlmApiRequest) -> bytes:
    """Names what a sequence asks of the engine. Not its seed, which is drawn anew where a client sends none."""
    sampling = sorted((name, value) for name, value in prompt.sampling.items() if name != "seed")
    asked = (
        sampling,
        prompt.guide,
        prompt.lora,
        sorted(prompt.stop_ids),
        request.log_probs,
        request.prompt_log_probs,
    )
    return hashlib.sha256(prompt.digest_of_ids + repr(asked).encode()).digest()


class Turn:
    """Of sequences that begin one at a time; others have no `lock`."""

    def __init__(self, lock: asyncio.Lock | None = None) -> None:
        self._lock = lock

    def until_first(self, answered: Callable[[], None]) -> Callable[[], None]:
        """To be called at each response in place of `answered`."""
        if self._lock is None:
            return answered

        def answer() -> None:
            self.end()
            answered()

        return answer

    def end(self) -> None:
        """Let the next one begin."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()


class Suspects:
    """`folder`: of the file; None: nothing outlives this process, and nothing is looked at. Sequences run on one
    asyncio loop; `check` and `freeze` are for any thread."""

    def __init__(self, folder: Path | None, metrics: m.Metrics) -> None:
        self._metrics = metrics
        self._deaths: dict[bytes, int] = {}
        self._places: dict[bytes, int] = {}
        self._running = Counter[bytes]()
        self._failed: list[bytes] = []
        self._free: list[int] = []
        self._turns = asyncio.Lock()
        self._trusted: Sequence[int] = ()
        self._frozen = False
        self._file = -1
        if folder is not None:
            try:
                self._open(folder / FILE)
            except OSError as error:
                self._give_up(error)

    def trust(self, prompt: LlmApiPrompt) -> None:
        """Never suspect this prompt: the canary's and the startup probe's."""
        self._trusted = prompt.ids

    def check(self, request: LlmApiRequest) -> None:
        """Raises RequestError: one of the prompts has ended the engine too often."""
        for prompt in request.prompts if self._file >= 0 else ():
            # Of a long prompt it takes a millisecond, once: here it holds up no other request.
            if self._deaths.get(digest(prompt, request), 0) >= MOST_DEATHS:
                self._metrics.add(m.POISON, len(request.prompts))
                raise RequestError(REFUSED)

    def freeze(self) -> None:
        """The engine has failed: what runs now has run to the end of it."""
        self._frozen = True

    @asynccontextmanager
    async def run(self, prompt: LlmApiPrompt, request: LlmApiRequest) -> AsyncIterator[Turn]:
        """Around a sequence in the engine."""
        if self._file < 0 or prompt.ids == self._trusted:
            yield Turn()
            return
        key = digest(prompt, request)
        turn = Turn()
        if key in self._deaths:
            await self._turns.acquire()
            turn = Turn(self._turns)
        self._begin(key)
        try:
            yield turn
        except ServingError as error:
            if error.code in REQUESTS_OWN:
                self._end(key)
            elif not self._frozen:
                self._failed.append(key)  # until another one shows that the engine has survived it
            raise
        except BaseException:
            self._end(key)
            raise
        else:
            self._answered(key)
        finally:
            turn.end()

    def _begin(self, key: bytes) -> None:
        self._running[key] += 1
        if self._running[key] == 1:
            if key not in self._places:
                self._places[key] = self._free.pop() if self._free else len(self._places)
            self._write(self._places[key], _RECORD.pack(key, self._deaths.get(key, 0), 1))

    def _answered(self, key: bytes) -> None:
        if self._frozen:
            return
        self._deaths.pop(key, None)
        self._end(key)
        failed, self._failed = self._failed, []
        for each in failed:
            self._end(each)

    def _end(self, key: bytes) -> None:
        if self._frozen:
            return
        self._running[key] -= 1
        if self._running[key] > 0:
            return
        del self._running[key]
        if deaths := self._deaths.get(key, 0):
            self._write(self._places[key], _RECORD.pack(key, deaths, 0))
        else:
            place = self._places.pop(key)
            self._free.append(place)
            self._write(place, _FREE)

    def _open(self, path: Path) -> None:
        """Take over what an earlier process left."""
        self._deaths = read(path)
        self._places = {key: place for place, key in enumerate(self._deaths)}
        unfinished = path.with_name(f"{path.name}.new")
        unfinished.write_bytes(b"".join(_RECORD.pack(key, deaths, 0) for key, deaths in self._deaths.items()))
        unfinished.replace(path)
        self._file = os.open(path, os.O_WRONLY)
        for key, deaths in self._deaths.items():
            if deaths >= MOST_DEATHS:
                log.error("a request (%s) ran at %d ends of the engine: it is refused", key.hex()[:12], deaths)
        if self._deaths:
            log.warning("%d requests ran when the engine ended: they begin one at a time", len(self._deaths))

    def _write(self, place: int, record: bytes) -> None:
        try:
            os.pwrite(self._file, record, place * _RECORD.size)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        log.warning("requests that end the engine will not be recognised: %s", error)
        self._file = -1


def read(path: Path) -> dict[bytes, int]:
    """Deaths of the requests in a file, with those that ran when it was last written."""
    data = path.read_bytes() if path.exists() else b""
    found = Counter[bytes]()
    for key, deaths, ran in _RECORD.iter_unpack(data[: len(data) // _RECORD.size * _RECORD.size]):
        if deaths or ran:
            found[key] = min(deaths + ran, 255)
    return dict(found.most_common(MOST_KNOWN))
