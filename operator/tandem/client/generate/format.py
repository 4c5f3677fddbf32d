"""Figures as text, table rows and JSON. Pure."""

from collections.abc import Callable, Sequence
from typing import Any

from tandem.client.generate.figures import ComparedCompletion, Completion, PromptResult, median_of

NONE = "-"

# The C0 and C1 control characters but tab and newline: in a model's output they could move the cursor, or
# worse. Unicode has pictures of the C0 ones and of DEL.
_CONTROL = {code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)}
_CONTROL |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


def printable(text: str) -> str:
    """`text` with every control character but tab and newline as a visible one, length unchanged."""
    return text.translate(_CONTROL)


def rate(value: float | None) -> str:
    """A share as per cent."""
    return NONE if value is None else f"{value:.1%}"


def number(value: float | None, digits: int = 2) -> str:
    """A number with fixed digits."""
    return NONE if value is None else f"{value:.{digits}f}"


def factor(value: float | None) -> str:
    """A ratio."""
    return NONE if value is None else f"{value:.2f}x"


def completion_line(completion: Completion) -> str:
    """All figures of a completion on one line."""
    parts = [
        f"{len(completion.ids)} tokens in {completion.seconds:.2f} s",
        f"{completion.tokens_per_second:.1f} tokens/s",
        f"first token {completion.first_token_seconds:.3f} s",
    ]
    if completion.speculated:
        parts.append(f"acceptance {rate(completion.acceptance_rate)}")
    if completion.mean_accepted_length is not None:
        parts.append(f"mean accepted length {number(completion.mean_accepted_length)}")
    return ", ".join([*parts, f"finish: {completion.finish_reason}"])


def comparison_line(comparison: ComparedCompletion, greedy: bool) -> str:
    """Speed-up, and whether the two completions are the same.

    Only greedy ones must be: sampling may draw other tokens with other engine calls.
    """
    speedup = f"speculation {factor(comparison.speedup)} the speed of the target alone"
    position = comparison.first_difference
    if position is None:
        return f"{speedup}, same tokens"
    difference = f"tokens differ from token {position + 1} on"
    return f"{speedup}, {difference}: " + ("WRONG, greedy ones must not" if greedy else "sampled, so they may")


def outcome_json(outcome: PromptResult, greedy: bool) -> dict[str, Any]:
    """A prompt's outcome as one JSON object: field names end in their unit."""
    record: dict[str, Any] = {"index": outcome.index, "prompt": outcome.prompt}
    if outcome.completion:
        record |= _completion_json(outcome.completion)
    if outcome.alone:
        record["target_alone"] = _completion_json(outcome.alone)
    if outcome.comparison:
        record |= {
            "speedup": outcome.comparison.speedup,
            "same_tokens": outcome.comparison.first_difference is None,
            "first_difference": outcome.comparison.first_difference,
            "greedy": greedy,
        }
    return record | ({"error": outcome.error} if outcome.error else {})


def _completion_json(completion: Completion) -> dict[str, Any]:
    return {
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "input_tokens": completion.totals.input_tokens,
        "output_tokens": len(completion.ids),
        "output_ids": list(completion.ids),
        "seconds": completion.seconds,
        "time_to_first_token_seconds": completion.first_token_seconds,
        "tokens_per_second": completion.tokens_per_second,
        "target_passes": completion.passes,
        "draft_tokens": completion.totals.draft_tokens,
        "accepted_draft_tokens": completion.totals.accepted_draft_tokens,
        "acceptance_rate": completion.acceptance_rate,
        "mean_accepted_length": completion.mean_accepted_length,
    }


Column = tuple[str, Callable[[PromptResult], float | None], Callable[[float | None], str]]


def _of(read: Callable[[Completion], float | None]) -> Callable[[PromptResult], float | None]:
    return lambda outcome: read(outcome.completion) if outcome.completion else None


def _alone(read: Callable[[Completion], float | None]) -> Callable[[PromptResult], float | None]:
    return lambda outcome: read(outcome.alone) if outcome.alone else None


_TOKENS: Column = ("tokens", _of(lambda c: len(c.ids)), lambda v: number(v, 0))
_SPEED: Column = ("tokens/s", _of(lambda c: c.tokens_per_second), lambda v: number(v, 1))
_FIRST: Column = ("first (s)", _of(lambda c: c.first_token_seconds), lambda v: number(v, 3))
_RATE: Column = ("accepted", _of(lambda c: c.acceptance_rate), rate)
_LENGTH: Column = ("length", _of(lambda c: c.mean_accepted_length), number)
_ALONE: Column = ("alone", _alone(lambda c: c.tokens_per_second), lambda v: number(v, 1))
_SPEEDUP: Column = ("speed-up", lambda o: o.comparison.speedup if o.comparison else None, factor)


def summary_table(outcomes: Sequence[PromptResult], compare: bool) -> tuple[list[str], list[list[str]]]:
    """Header and rows: one row a prompt, then the median over the prompts that were completed."""
    columns = [_TOKENS, _SPEED, *([_ALONE, _SPEEDUP] if compare else []), _FIRST, _RATE, _LENGTH]
    header = ["prompt", *(name for name, _, _ in columns), *(["same"] if compare else [])]
    rows = [
        [str(outcome.index + 1), *(show(read(outcome)) for _, read, show in columns)]
        + ([_same(outcome)] if compare else [])
        for outcome in outcomes
    ]
    middle = [show(median_of(map(read, outcomes))) for _, read, show in columns]
    return header, [*rows, ["median", *middle, *([_all_same(outcomes)] if compare else [])]]


def _same(outcome: PromptResult) -> str:
    if outcome.comparison is None:
        return NONE
    return "yes" if outcome.comparison.first_difference is None else "no"


def _all_same(outcomes: Sequence[PromptResult]) -> str:
    compared = [outcome.comparison for outcome in outcomes if outcome.comparison]
    return f"{sum(c.first_difference is None for c in compared)}/{len(compared)}"
