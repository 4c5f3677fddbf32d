"""Requests of a case, and what their answers say: speed, and the times of tokens."""

import base64
import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.bls import client
from bench.gpu.served.prompts import Prompt
from bench.gpu.served.ways import ENGINE, LLM_API, SAMPLING, Case

REQUESTS_A_SECOND = 200  # more than any engine ends


@dataclass(frozen=True)
class Window:
    """A run: `streams` at once in a closed loop, seconds before and in the window, tokens a request."""

    streams: int
    warm_up: float
    seconds: float
    max_tokens: int


@dataclass(frozen=True)
class Chunk:
    """`tokens` that came at `at`, in seconds; the ones before, or the request, at `since`. `first`: of a request."""

    since: float
    at: float
    tokens: int
    first: bool


@dataclass(frozen=True)
class Sent:
    """A request: at most `tokens` of an answer; `seed`: its number, from 1."""

    prompt: Prompt
    tokens: int
    seed: int


def requests(prompts: Sequence[Prompt], window: Window) -> list[Sent]:
    """The prompts again and again, the first requests of other lengths, not to end together."""
    rng = random.Random(1)
    lengths = [rng.randint(1, window.max_tokens) for _ in range(window.streams)]
    count = int(window.streams + REQUESTS_A_SECOND * (window.warm_up + window.seconds))
    sent = itertools.islice(itertools.cycle(prompts), count)
    wanted = itertools.chain(lengths, itertools.repeat(window.max_tokens))
    return [Sent(*each, seed) for seed, each in enumerate(zip(sent, wanted, strict=False), 1)]


def messages(case: Case, prompts: Sequence[Prompt], window: Window) -> list[bytes]:
    """Serialised requests."""
    return [_message(case, each.prompt, each.tokens, each.seed) for each in requests(prompts, window)]


def _message(case: Case, prompt: Prompt, max_tokens: int, seed: int) -> bytes:
    if case.way == ENGINE:
        return client.message(case.model, _engine_call(prompt, max_tokens))
    more: dict[str, int | float] = {**SAMPLING, "seed": seed} if case.sampled else {}
    if case.way == LLM_API:
        return client.message(case.model, _llm_api_call(prompt, max_tokens, more))
    if case.draft_len is not None:
        more["num_draft_tokens"] = case.draft_len
    return client.message(case.model, client.completion(prompt.text, max_tokens, **more))


def _engine_call(prompt: Prompt, max_tokens: int) -> list[client.Tensor]:
    ids = np.array(prompt.ids, np.int32)
    numbers = {"input_lengths": len(ids), "request_output_len": max_tokens}
    scalars = [(name, "INT32", [1, 1], value.to_bytes(4, "little")) for name, value in numbers.items()]
    return [
        ("input_ids", "INT32", [1, len(ids)], ids.tobytes()),
        *scalars,
        *((name, "BOOL", [1, 1], b"\1") for name in ("exclude_input_in_output", "streaming")),
    ]


def _llm_api_call(prompt: Prompt, max_tokens: int, sampling: Mapping[str, int | float]) -> list[client.Tensor]:
    """The BLS's tensors by the names and shapes that they have there."""
    names = {"stream": "streaming", "exclude_input_in_output": "exclude_input_from_output"}
    prefix = "sampling_param_"
    return [
        (name if name in ("text_input", "streaming") else prefix + name, datatype, [1], raw)
        for name, datatype, raw in (
            (names.get(name, name), datatype, raw)
            for name, datatype, _, raw in client.completion(prompt.text, max_tokens, **sampling)
        )
    ]


def play(program: Path, url: str, window: Window, sent: list[bytes], at_window: Any) -> dict[str, Any]:
    """Run a case; its figures. Raises LoadError."""
    record = client.play(program, client.Plan(url, window.streams, window.warm_up, window.seconds, sent), at_window)
    return figures(chunks(record), record["begin"], record["end"])


def chunks(record: dict[str, Any]) -> list[Chunk]:
    """All tokens of a record. Raises LoadError where a request was refused."""
    found = []
    for answer in record["answers"]:
        since, first = answer["sent"], True
        for each in answer["chunks"] or []:
            if ids := client.token_ids(base64.b64decode(each["raw"])):
                found.append(Chunk(since, each["at"], len(ids), first))
                since, first = each["at"], False
    return found


def figures(found: Sequence[Chunk], begin: float, end: float) -> dict[str, Any]:
    """Of the window: tokens/s, ms to the first tokens of requests sent in it, ms between tokens, tokens a chunk.

    A chunk's tokens count for the part of its time that is in the window. Between tokens: a chunk's time over its
    tokens. Percentiles are of requests and of tokens.
    """
    inside = [max(0.0, min(each.at, end) - max(each.since, begin)) / (each.at - each.since) for each in found]
    tokens = sum(share * each.tokens for share, each in zip(inside, found, strict=True))
    later = [each for each in found if not each.first and begin <= each.at < end]
    between = [1e3 * (each.at - each.since) / each.tokens for each in later for _ in range(each.tokens)]
    first = [1e3 * (each.at - each.since) for each in found if each.first and begin <= each.since < end]
    return {
        "tokens_per_second": tokens / (end - begin),
        "requests": len(first),
        "ttft_ms": _percentiles(first),
        "itl_ms": _percentiles(between),
        "tokens_a_chunk": float(np.mean([each.tokens for each in later])) if later else None,
    }


def _percentiles(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {"p50": float(np.percentile(values, 50)), "p99": float(np.percentile(values, 99))}
