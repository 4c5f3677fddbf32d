"""Parameters of requests: each that the service takes has an effect, each that it refuses is refused.

The server says which it refuses, by the parameter `refused_parameters` of its model's configuration, which comes from
the table of `tandem.engines.request_parameters`.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tandem.client.conformance.exactness import short
from tandem.client.conformance.prompts import PROMPTS
from tandem.client.conformance.results import CaseResult, not_applicable, of_problems
from tandem.client.conformance.subject import Subject, answer
from tandem.client.generate.figures import Completion
from tandem.client.generate.request import Request, Sampling

FEW = 4
"""Prompts of a case."""
DRAWS = 4
"""Samples of a prompt."""
SUPPORTED = "is not supported"
"""Part of every refusal of this kind."""


@dataclass(frozen=True)
class Tried:
    """What is sent for a parameter, and what it must do: `same`: all samples of a prompt are one text; `draws`: they
    are not; else greedy text is another than without it."""

    asked: Mapping[str, Any]
    same: bool = False
    draws: bool = False


TRIED: Mapping[str, Tried] = {
    "temperature": Tried({"temperature": 1.0, "top_p": 1.0}, draws=True),
    "top_k": Tried({"temperature": 1.0, "top_k": 1}, same=True),
    "top_p": Tried({"temperature": 1.0, "top_p": 1e-6}, same=True),
    "min_p": Tried({"temperature": 1.0, "min_p": 1.0}, same=True),
    "repetition_penalty": Tried({"repetition_penalty": 2.0}),
    "presence_penalty": Tried({"presence_penalty": 2.0}),
    "frequency_penalty": Tried({"frequency_penalty": 2.0}),
    "bad_words": Tried({"bad_words": ()}),
}
"""By parameter. Seeds are tried by the case `sampled`."""
REFUSED_WITH: Mapping[str, Mapping[str, Any]] = {
    **{name: tried.asked for name, tried in TRIED.items()},
    "top_k": {"temperature": 1.0, "top_k": 50},
    "min_p": {"temperature": 1.0, "min_p": 0.5},
    "seed": {"temperature": 1.0, "top_p": 0.95, "seed": 7},
    "bad_words": {"bad_words": ("the",)},
}
"""What asks for a parameter that is to be refused."""


def parameter(name: str) -> Callable[[Subject], Awaitable[CaseResult]]:
    """The case of a parameter."""

    async def case(subject: Subject) -> CaseResult:
        title = f"parameter-{name}"
        if name not in subject.server.parameters:
            return not_applicable(title, f"mode {subject.server.api.mode} has no input for it")
        if name in subject.refused:
            return await refusal(subject, name, title)
        tried = TRIED[name]
        return await (_drawn if tried.same or tried.draws else _greedy)(subject, tried, title)

    return case


async def refusal(subject: Subject, name: str, title: str) -> CaseResult:
    """The engine would drop the parameter: a request with it is refused by its name."""
    request = Request(PROMPTS[0], Sampling(subject.max_tokens, **REFUSED_WITH[name]))
    got = await answer(subject.server, request)
    if isinstance(got, str) and name.partition("_")[0] in got and SUPPORTED in got:
        return of_problems(title, [], "refused by its name: the engine would drop it")
    what = got if isinstance(got, str) else "it was answered, though the engine drops the parameter"
    return of_problems(title, [{"problem": what, "prompt": short(PROMPTS[0])}], "must be refused by its name")


async def _drawn(subject: Subject, tried: Tried, title: str) -> CaseResult:
    """Samples of each prompt: one text, or several."""
    differ, problems = False, []
    for prompt in PROMPTS[:FEW]:
        sampling = Sampling(subject.max_tokens, **tried.asked)
        requests = [Request(prompt, subject.seeded(sampling, seed)) for seed in range(1, DRAWS + 1)]
        got = [await answer(subject.server, request) for request in requests]
        problems += [{"problem": each, "prompt": short(prompt)} for each in got if isinstance(each, str)]
        texts = {each.ids for each in got if isinstance(each, Completion)}
        differ |= len(texts) > 1
        if tried.same and len(texts) > 1:
            problems.append({"problem": f"{len(texts)} texts of {DRAWS} samples", "prompt": short(prompt)})
    if tried.draws and not differ and not problems:
        problems.append({"problem": f"{DRAWS} samples of each prompt are one text: nothing is drawn"})
    return of_problems(title, problems, f"{FEW} prompts, {DRAWS} samples each, with {_shown(tried.asked)}")


async def _greedy(subject: Subject, tried: Tried, title: str) -> CaseResult:
    """Greedy text with the parameter, and without."""
    changed, problems, asked = False, [], dict(tried.asked)
    for prompt in PROMPTS[:FEW]:
        plain = await subject.expected(prompt, Sampling(subject.max_tokens))
        if "bad_words" in asked and isinstance(plain, Completion):
            words = plain.text.split()
            asked["bad_words"] = tuple(each for word in words[:2] for each in (word, f" {word}"))
        got = await answer(subject.server, Request(prompt, Sampling(subject.max_tokens, **asked)))
        problems += [{"problem": each, "prompt": short(prompt)} for each in (plain, got) if isinstance(each, str)]
        changed |= isinstance(plain, Completion) and isinstance(got, Completion) and plain.ids != got.ids
    if not changed and not problems:
        problems.append({"problem": f"{FEW} prompts have the same text with it: it has no effect"})
    return of_problems(title, problems, f"{FEW} prompts, greedy, with {_shown(tried.asked)} and without")


def _shown(asked: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" if value != () else f"{name} of the text" for name, value in asked.items())


PARAMETER_CASES = {f"parameter-{name}": parameter(name) for name in TRIED}
"""By name."""
