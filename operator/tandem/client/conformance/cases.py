"""What is tried, a function a case: from a `Subject` to a `CaseResult`, whose evidence are requests that fail."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tandem.client.conformance.exactness import EPSILON, evidence, short
from tandem.client.conformance.parameters import PARAMETER_CASES, refusal
from tandem.client.conformance.prompts import PROMPTS, long_text
from tandem.client.conformance.results import CaseOutcome, CaseResult, not_applicable, of_problems
from tandem.client.conformance.subject import Subject, answer, leave, until
from tandem.client.generate.figures import Completion, first_difference
from tandem.client.generate.request import Request, Sampling
from tandem.plural import counted

ROWS = (1, 4, 16)
FEW = 4
"""Prompts of the cases that ask one row at a time."""
SEEDS = (7, 8)
SAMPLED = Sampling(0, temperature=0.8, top_p=0.95)
SEEDLESS = "the engine ignores seeds, as the LLM API's did before TensorRT-LLM's pull requests 17172 and 17599"
LONG_SHARES = (0.97, 0.9, 0.75, 0.5, 0.25, 0.1)
"""Of the service's maximum: the first that it takes is tried."""
LONG_ROWS = 2
SAMPLE_CHARACTERS = 1000
"""Of a long text, by which its tokens a character are measured."""
SLOTS_SECONDS = 20.0
"""Until the sequences of clients that left are gone; a call of the engine that is under way ends first."""
SETTLE_SECONDS = 1.0
"""Before the metrics are read: they lag by up to half a second."""
STOP_LETTERS = re.compile(r"[A-Za-z]{2,}")

Case = Callable[[Subject], Awaitable[CaseResult]]
Problem = Mapping[str, Any]


@dataclass
class Comparison:
    """Answers against the expected ones: problems, and what was compared."""

    problems: list[Problem] = field(default_factory=list)
    tokens: int = 0
    near_ties: int = 0
    drafted: int = 0
    accepted: int = 0
    passes: int = 0

    @property
    def speculated(self) -> bool:
        """Whether anything was drafted. TensorRT-LLM 1.2 reports no drafts, but what they save."""
        return bool(self.drafted or self.accepted)

    @property
    def figures(self) -> dict[str, float | None]:
        """For the report."""
        length = 1 + self.accepted / self.passes if self.passes and self.speculated else None
        return {
            "tokens": self.tokens,
            "nearTies": self.near_ties,
            "draftTokens": self.drafted,
            "meanAcceptedLength": round(length, 3) if length else None,
        }

    async def add(self, subject: Subject, request: Request, got: Completion | str) -> None:
        """Compare one answer."""
        expected = await subject.expected(request.prompt, request.sampling)
        if isinstance(got, str) or isinstance(expected, str):
            self.problems.append(refused(request.prompt, got if isinstance(got, str) else str(expected)))
            return
        self._count(got)
        position = first_difference(expected.ids, got.ids)
        if position is None:
            return
        tie = await subject.tie(request, expected, got, position)
        if tie.near:
            self.near_ties += 1
            return
        shown = evidence(request.prompt, expected, got, position)
        samples = {"reached": tie.reached, "expected": tie.expected, "got": tie.got}
        self.problems.append({"problem": f"other tokens from token {position} on", **shown, "samples": samples})

    def _count(self, got: Completion) -> None:
        self.tokens += len(got.ids)
        self.drafted += got.totals.draft_tokens
        self.accepted += got.accepted
        self.passes += got.passes


def refused(prompt: str, why: str) -> Problem:
    """A request without an answer."""
    return {"problem": why, "prompt": short(prompt)}


def exact(rows: int) -> Case:
    """Greedy text with speculation is that of the target alone, `rows` requests at a time."""

    async def case(subject: Subject) -> CaseResult:
        name = f"exact-{rows}"
        if rows == 1 and subject.alone is None:
            return not_applicable(name, subject.why_not)
        prompts = PROMPTS[: max(rows, FEW)]
        requests = [Request(prompt, Sampling(subject.max_tokens)) for prompt in prompts]
        return _judged(name, subject, await _compared(subject, requests, rows))

    return case


async def _compared(subject: Subject, requests: Sequence[Request], rows: int) -> Comparison:
    found = Comparison()
    for request in requests:  # before: the target alone is not to run at the same time
        await subject.expected(request.prompt, request.sampling)
    for start in range(0, len(requests), rows):
        group = requests[start : start + rows]
        for request, got in zip(group, await subject.together(group), strict=True):
            await found.add(subject, request, got)
    return found


def _judged(name: str, subject: Subject, found: Comparison) -> CaseResult:
    whose = "the target alone" if subject.alone else "one row at a time (there is no target alone to ask)"
    ties = f", {counted(found.near_ties, 'near-tie')} within {EPSILON}" if found.near_ties else ""
    detail = f"{counted(found.tokens, 'token')} as {whose}{ties}"
    if not found.problems and not found.speculated:
        return replace(
            not_applicable(name, f"{detail}; but no token was drafted, so it says nothing of speculation"),
            figures=found.figures,
        )
    return of_problems(name, found.problems, f"compared {detail}" if found.problems else detail, **found.figures)


async def sampled(subject: Subject) -> CaseResult:
    """Samples with a seed repeat; with another seed they are others."""
    if "seed" in subject.refused:
        return await refusal(subject, "seed", "sampled")
    problems: list[Problem] = []
    seedless: list[Problem] = []
    differ = False
    for prompt in PROMPTS[:FEW]:
        first, again, other = [
            await answer(subject.server, Request(prompt, replace(SAMPLED, max_tokens=subject.max_tokens, seed=seed)))
            for seed in (SEEDS[0], *SEEDS)
        ]
        if isinstance(first, str) or isinstance(again, str) or isinstance(other, str):
            problems.append(
                refused(prompt, next(str(each) for each in (first, again, other) if isinstance(each, str)))
            )
            continue
        differ |= first.ids != other.ids
        if (position := first_difference(first.ids, again.ids)) is not None:
            shown = evidence(prompt, first, again, position)
            seedless.append({"problem": f"a seed does not repeat: other tokens from token {position} on", **shown})
    if seedless and not problems and not subject.server.api.owns_seeds:
        return replace(not_applicable("sampled", SEEDLESS), evidence=seedless)
    problems += seedless
    if not differ and not problems:
        problems.append({"problem": f"seeds {SEEDS[0]} and {SEEDS[1]} give the same texts: nothing is sampled"})
    return of_problems("sampled", problems, f"{FEW} prompts, each twice with a seed and once with another")


async def mixed(subject: Subject) -> CaseResult:
    """Greedy rows stay exact among sampled ones, of other lengths, and rows whose clients leave."""
    name, rows = "mixed", list(enumerate(PROMPTS))
    greedy = [Request(prompt, Sampling(subject.max_tokens)) for i, prompt in rows if i % 2 == 0]
    half = replace(SAMPLED, max_tokens=max(1, subject.max_tokens // 2))
    drawn = [Request(prompt, subject.seeded(half, i)) for i, prompt in rows if i % 4 == 1]
    left = [Request(prompt, Sampling(subject.max_tokens)) for i, prompt in rows if i % 4 == 3]
    for request in greedy:
        await subject.expected(request.prompt, request.sampling)
    got, others, leaving = await asyncio.gather(
        subject.together(greedy),
        subject.together(drawn),
        asyncio.gather(*(leave(subject.server, request) for request in left)),
    )
    found = Comparison()
    for request, each in zip(greedy, got, strict=True):
        await found.add(subject, request, each)
    without = [
        (request.prompt, str(each)) for request, each in zip(drawn, others, strict=True) if isinstance(each, str)
    ]
    without += [(request.prompt, why) for request, why in zip(left, leaving, strict=True) if why]
    found.problems += [refused(prompt, why) for prompt, why in without]
    return _judged(name, subject, found)


async def long_contexts(subject: Subject) -> CaseResult:
    """Exact near the service's longest sequence."""
    name, limit = "long", await subject.limit()
    if limit is None:
        return not_applicable(name, "the service does not name its longest sequence")
    sample = await answer(subject.server, Request(long_text(0, SAMPLE_CHARACTERS), Sampling(1)))
    if isinstance(sample, str) or not sample.totals.input_tokens:
        return not_applicable(name, f"a prompt of {SAMPLE_CHARACTERS} characters is too long: {sample}")
    of_token = SAMPLE_CHARACTERS / sample.totals.input_tokens
    why = ""
    for share in LONG_SHARES:
        characters = int((share * limit - subject.max_tokens) * of_token)
        requests = [Request(long_text(row + 1, characters), Sampling(subject.max_tokens)) for row in range(LONG_ROWS)]
        first = await subject.expected(requests[0].prompt, requests[0].sampling)
        if isinstance(first, Completion):
            found = await _compared(subject, requests, LONG_ROWS)
            result, tokens = _judged(name, subject, found), first.totals.input_tokens
            refusal = f"; longer ones are refused: {why}" if why else ""
            return replace(
                result,
                detail=f"{LONG_ROWS} prompts of {tokens} tokens, the limit is {limit}: {result.detail}{refusal}",
                figures={**result.figures, "promptTokens": tokens, "limit": limit},
            )
        why = why or str(first)
    return of_problems(name, [refused("a tenth of the limit", why)], f"the service's limit is {limit} tokens")


async def cancels(subject: Subject) -> CaseResult:
    """Clients that leave give their slots back: no sequence stays, and as many rows are exact as before."""
    name = "cancels"
    await asyncio.sleep(SETTLE_SECONDS)
    before = await subject.running()
    requests = [Request(prompt, Sampling(4 * subject.max_tokens)) for prompt in PROMPTS]
    reasons = await asyncio.gather(*(leave(subject.server, request) for request in requests))
    problems = [refused(request.prompt, why) for request, why in zip(requests, reasons, strict=True) if why]

    async def gone() -> bool:
        now = await subject.running()
        return now is None or before is None or now <= before

    await asyncio.sleep(SETTLE_SECONDS)
    if not await until(gone, SLOTS_SECONDS):
        stay = f"{await subject.running():.0f} sequences still run {SLOTS_SECONDS:.0f} s after their clients left"
        problems.append({"problem": stay})
    after = [Request(prompt, Sampling(subject.max_tokens)) for prompt in PROMPTS]
    found = await _compared(subject, after, len(after))
    read = "their sequences are gone" if before is not None else "metrics were not read"
    detail = f"{counted(len(requests), 'client')} left, {read}, then {counted(found.tokens, 'token')} of as many rows"
    return of_problems(name, [*problems, *found.problems], detail, **found.figures)


async def stop_words(subject: Subject) -> CaseResult:
    """A stop word ends the text: mode BLS keeps it, mode LLMAPI cuts it (docs/reference/bls.md and llmapi.md)."""
    problems: list[Problem] = []
    tried = 0
    for prompt in PROMPTS:
        greedy = Sampling(subject.max_tokens)
        whole = await subject.expected(prompt, greedy)
        word = _word(whole.text) if isinstance(whole, Completion) else ""
        if not word or tried == FEW:
            continue
        tried += 1
        request = Request(prompt, replace(greedy, stop_words=(word,)))
        problems += await _stopped(subject, request, whole, word)
    if not tried:
        return not_applicable("stop-words", "no answer has a word of letters in its middle")
    return of_problems("stop-words", problems, f"{counted(tried, 'prompt')}, each with a word of its own answer")


async def _stopped(subject: Subject, request: Request, whole: Completion | str, word: str) -> list[Problem]:
    got = await answer(subject.server, request)
    if isinstance(got, str) or isinstance(whole, str):
        return [refused(request.prompt, str(got))]
    start = whole.text.index(word)
    end = start + len(word) if subject.server.api.keeps_stop_words else start
    expected = replace(whole, text=whole.text[:end])
    if (got.text, got.finish_reason) == (expected.text, "stop"):
        return []
    position = first_difference(whole.ids[: len(got.ids)], got.ids)
    if position is not None and (await subject.tie(request, whole, got, position)).near:
        return []
    shown = evidence(request.prompt, expected, got, position or 0)
    how = f"the text does not end at the stop word {word!r} ({got.finish_reason})"
    return [{"problem": how if position is None else f"other tokens from token {position} on", **shown}]


def _word(text: str) -> str:
    """Letters from behind the middle of a text; empty where there are none."""
    found = STOP_LETTERS.search(text, len(text) // 2)
    return found[0] if found else ""


CASES: Mapping[str, Case] = {
    **{f"exact-{rows}": exact(rows) for rows in ROWS},
    "sampled": sampled,
    "mixed": mixed,
    "long": long_contexts,
    "cancels": cancels,
    "stop-words": stop_words,
    **PARAMETER_CASES,
}
"""All, in the order in which they run."""


def failed(name: str, why: str) -> CaseResult:
    """A case that could not end."""
    return CaseResult(name, CaseOutcome.BROKE, why, evidence=({"problem": why},))
