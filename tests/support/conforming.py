"""A server for tests of `tandem conformance`: exact, unless it is made to break a promise."""

import asyncio
import math
import zlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from tandem.client.conformance.exactness import TIE_SAMPLES, TIE_TEMPERATURE
from tandem.client.conformance.subject import Alone, Subject
from tandem.client.generate.errors import RequestRefusedError
from tandem.client.generate.figures import Chunk, Totals
from tandem.client.generate.request import BLS, LLM_API, Request, Sampling

LIMIT = 4000
CHANGES = ("repetition_penalty", "presence_penalty", "frequency_penalty", "bad_words")
"""Parameters that change greedy text."""
CHARACTERS = 4  # of a prompt's token
VOCABULARY = 1000
WRONG = VOCABULARY
"""A token that only speculation gives."""


@dataclass
class Faults:
    """What the server does wrong: with speculation a wrong token at `wrong_at`, where `rows` run at once and the
    prompt has `prompt_tokens`; `gap`: logits by which the right one is ahead of it. `ignores`: parameters that have
    no effect; `refuses`: those that it refuses by their names."""

    wrong_at: int | None = None
    rows: int = 1
    prompt_tokens: int = 0
    gap: float = 5.0
    drafts: bool = True
    ignores_seeds: bool = False
    ignores_temperature: bool = False
    ignores_stop_words: bool = False
    ignores: tuple[str, ...] = ()
    refuses: tuple[str, ...] = ()
    keeps_stop_words: bool = True
    keeps_sequences: bool = False
    most_rows: int = 1000
    most_prompt_tokens: int = LIMIT
    hides_limit: bool = False
    hangs: bool = False


class Server:
    """Answers as `TritonClient` does. Its token at a position depends on prompt and position, and of samples on the
    seed; a token's text is a word of letters."""

    def __init__(self, faults: Faults | None = None, mode: str = "BLS") -> None:
        self.faults = faults or Faults()
        self.api = {"BLS": BLS, "LLMAPI": LLM_API}[mode]
        self.running = 0
        self.asked = 0
        self.parameters = self.api.tensors.keys()

    def subject(self, *, alone: bool = True) -> Subject:
        """It as a subject, with the target alone or without."""

        async def running() -> float:
            return self.running

        why = "" if alone else "it cannot"
        refused = dict.fromkeys(self.faults.refuses, "the engine drops it")
        return Subject(self, 16, running, Alone(self, 0) if alone else None, why, refused)  # type: ignore[arg-type]  # a fake

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """The chunks of a request, one a token."""
        prompt_tokens = max(1, len(request.prompt) // CHARACTERS)
        self._refuse(request, prompt_tokens)
        self.asked += 1
        number, self.running = self.asked, self.running + 1
        ended = False
        try:
            await asyncio.sleep(0)  # those that are sent at once run at once
            await asyncio.sleep(0)
            if self.faults.hangs:
                await asyncio.sleep(3600)
            chunks = self._chunks(request, number, prompt_tokens)
            for chunk in chunks:
                ended = bool(chunk.finish_reason)
                yield chunk
        finally:
            if ended or not self.faults.keeps_sequences:
                self.running -= 1

    def _refuse(self, request: Request, prompt_tokens: int) -> None:
        for name in self.faults.refuses:
            if getattr(request.sampling, name) and name not in self.faults.ignores:
                raise RequestRefusedError(f"request refused: {name} is not supported: the engine drops it")
        if prompt_tokens + request.sampling.max_tokens > LIMIT:
            limit = "what it has" if self.faults.hides_limit else f"the model's limit of {LIMIT}"
            raise RequestRefusedError(f"request refused: the prompt is more than {limit}: shorten it")
        if prompt_tokens > self.faults.most_prompt_tokens:
            raise RequestRefusedError("request refused: max_num_tokens")
        if self.running >= self.faults.most_rows:
            raise RequestRefusedError("request refused: CUDA runtime error")

    def _chunks(self, request: Request, number: int, prompt_tokens: int) -> list[Chunk]:
        sampling, speculates = request.sampling, request.num_draft_tokens != 0 and self.faults.drafts
        ids = [self._token(request, i, number, prompt_tokens) for i in range(sampling.max_tokens)]
        words = ["".join(chr(97 + int(digit)) for digit in str(token)) + " " for token in ids]
        text, reason = "".join(words), "length"
        stops = [
            text.index(word) + len(word) * self.api.keeps_stop_words for word in sampling.stop_words if word in text
        ]
        if stops and not self.faults.ignores_stop_words:
            text, reason = text[: min(stops)], "stop"
            if not self.faults.keeps_stop_words:
                text = text[:-1]
        drafted = sampling.max_tokens if speculates else 0
        totals = Totals(drafted, drafted // 2, prompt_tokens)
        return [Chunk(text[:1], tuple(ids[:1])), Chunk(text[1:], tuple(ids[1:]), drafted // 2, 0, reason, totals)]

    def _token(self, request: Request, position: int, number: int, prompt_tokens: int) -> int:
        sampling, faults = request.sampling, self.faults
        if sampling.top_k == 2 and position == faults.wrong_at:
            share = 1 / (1 + math.exp(faults.gap / TIE_TEMPERATURE))
            if (sampling.seed or 0) <= share * TIE_SAMPLES:
                return WRONG
        limited = any(name not in faults.ignores and asked for name, asked in one_token(sampling).items())
        drawn = not (
            limited or sampling.temperature in (None, 0) or sampling.top_k == 2 or faults.ignores_temperature
        )
        seed = (number if faults.ignores_seeds or "seed" in faults.refuses else sampling.seed) if drawn else 0
        at_once = self.running >= faults.rows and prompt_tokens >= faults.prompt_tokens
        if position == faults.wrong_at and request.num_draft_tokens != 0 and at_once and not drawn:
            return WRONG
        changes = {name: getattr(sampling, name) for name in CHANGES if name not in faults.ignores}
        shown = "".join(f" {value}" for value in changes.values() if value)
        return zlib.crc32(f"{request.prompt} {position} {seed}{shown}".encode()) % VOCABULARY


def one_token(sampling: Sampling) -> dict[str, bool]:
    """Limits of what is drawn, and whether they leave one token."""
    return {
        "top_k": sampling.top_k == 1,
        "top_p": sampling.top_p is not None and sampling.top_p < 0.01,
        "min_p": sampling.min_p == 1,
    }
