"""Figures as lines, tables and JSON."""

import pytest

from tandem.client.generate.figures import ComparedCompletion, Completion, PromptResult, Totals
from tandem.client.generate.format import comparison_line, completion_line, outcome_json, printable, summary_table

FAST = Completion("ab", (1, 2, 3, 4), 2.0, 0.25, 2, 2, "length", Totals(8, 2, 5))
ALONE = Completion("ab", (1, 2, 3, 4), 4.0, 0.5, 4, 0, "length", Totals(0, 0, 5))
OTHER = Completion("ac", (1, 2, 3, 9), 4.0, 0.5, 4, 0, "length", Totals(0, 0, 5))

LINES = [
    (
        "speculation",
        completion_line(FAST),
        "4 tokens in 2.00 s, 2.0 tokens/s, first token 0.250 s, acceptance 25.0%, mean accepted length 2.00,"
        " finish: length",
    ),
    (
        "no acceptance without drafts",
        completion_line(ALONE),
        "4 tokens in 4.00 s, 1.0 tokens/s, first token 0.500 s, finish: length",
    ),
    (
        "equal",
        comparison_line(ComparedCompletion(FAST, ALONE), True),
        "speculation 2.00x the speed of the target alone, same tokens",
    ),
    (
        "a greedy difference is an error",
        comparison_line(ComparedCompletion(FAST, OTHER), True),
        "speculation 2.00x the speed of the target alone, tokens differ from token 4 on: WRONG, greedy ones must not",
    ),
    (
        "a sampled difference is none",
        comparison_line(ComparedCompletion(FAST, OTHER), False),
        "speculation 2.00x the speed of the target alone, tokens differ from token 4 on: sampled, so they may",
    ),
]


@pytest.mark.parametrize(("line", "expected"), [line[1:] for line in LINES], ids=[line[0] for line in LINES])
def test_lines(line: str, expected: str) -> None:
    assert line == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\tb\nc é 漢", "a\tb\nc é 漢"),
        ("\x1b[2J\r\x07", "␛[2J␍␇"),
        ("\x7f\x9b2J", "␡\ufffd2J"),
    ],
    ids=["text stays", "no escape sequence gets through", "nor an 8-bit one"],
)
def test_control_characters_cannot_act_on_the_terminal(text: str, expected: str) -> None:
    assert printable(text) == expected
    assert len(printable(text)) == len(text), "draft_text_length counts characters"


def test_table_of_a_comparison_ends_with_medians() -> None:
    outcomes = [
        PromptResult(0, "p", FAST, ALONE),
        PromptResult(1, "q", FAST, OTHER),
        PromptResult(2, "r", error="refused"),
    ]
    header, rows = summary_table(outcomes, compare=True)
    assert header == [
        "prompt", "tokens", "tokens/s", "alone", "speed-up", "first (s)", "accepted", "length", "same",
    ]  # fmt: skip
    assert rows == [
        ["1", "4", "2.0", "1.0", "2.00x", "0.250", "25.0%", "2.00", "yes"],
        ["2", "4", "2.0", "1.0", "2.00x", "0.250", "25.0%", "2.00", "no"],
        ["3", "-", "-", "-", "-", "-", "-", "-", "-"],
        ["median", "4", "2.0", "1.0", "2.00x", "0.250", "25.0%", "2.00", "1/2"],
    ]


def test_table_without_a_comparison_has_no_empty_columns() -> None:
    header, rows = summary_table([PromptResult(0, "p", ALONE)], compare=False)
    assert header == ["prompt", "tokens", "tokens/s", "first (s)", "accepted", "length"]
    assert rows == [["1", "4", "1.0", "0.500", "-", "-"], ["median", "4", "1.0", "0.500", "-", "-"]]


def test_json_of_a_comparison() -> None:
    record = outcome_json(PromptResult(3, "p", FAST, OTHER), greedy=True)
    alone = record.pop("target_alone")
    assert record == {
        "index": 3, "prompt": "p", "text": "ab", "finish_reason": "length", "input_tokens": 5, "output_tokens": 4,
        "output_ids": [1, 2, 3, 4], "seconds": 2.0, "time_to_first_token_seconds": 0.25, "tokens_per_second": 2.0,
        "target_passes": 2, "draft_tokens": 8, "accepted_draft_tokens": 2, "acceptance_rate": 0.25,
        "mean_accepted_length": 2.0, "speedup": 2.0, "same_tokens": False, "first_difference": 3, "greedy": True,
    }  # fmt: skip
    assert (alone["text"], alone["acceptance_rate"], alone["tokens_per_second"]) == ("ac", None, 1.0)


def test_json_of_a_refusal() -> None:
    assert outcome_json(PromptResult(0, "", error="the prompt is empty"), greedy=True) == {
        "index": 0, "prompt": "", "error": "the prompt is empty",
    }  # fmt: skip
