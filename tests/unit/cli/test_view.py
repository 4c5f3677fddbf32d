"""What is written, on a terminal and elsewhere."""

import io
import json

import pytest
from rich.console import Console

from tandem.client.generate.figures import Chunk, Completion, PromptResult, Totals
from tandem.client.generate.view import JsonView, Progress, TextView, stdout_console

CHUNKS = [Chunk("acc-own", (1, 2), 1, draft_text_length=3), Chunk("[b]\x1b", (3,), finish_reason="length")]
COMPLETION = Completion("acc-own[b]\x1b", (1, 2, 3), 1.0, 0.5, 2, 1, "length", Totals(4, 1, 1))
ALONE = Completion("acc-own[b]\x1b", (1, 2, 3), 2.0, 0.5, 3, 0, "length", Totals())


def terminal() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=True, color_system="standard", width=100), out


def plain() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=False, width=100), out


def show(console: Console, outcomes: list[PromptResult]) -> None:
    view = TextView(console, Progress(Console(file=io.StringIO(), force_terminal=False)), greedy=True)
    view.begin(0, 1, "p")
    for chunk in CHUNKS:
        view.chunk(chunk)
    for outcome in outcomes:
        view.outcome(outcome)


def test_accepted_text_has_its_own_colour_on_a_terminal() -> None:
    console, out = terminal()
    show(console, [])
    assert "\x1b[2mp\x1b[0m" in out.getvalue(), "the prompt is dim"
    assert "\x1b[32macc\x1b[0m-own[b]␛" in out.getvalue(), "accepted green, the rest as it is, nothing acts"


def test_elsewhere_text_is_exact() -> None:
    console, out = plain()
    show(console, [PromptResult(0, "p", COMPLETION)])
    assert out.getvalue() == (
        "pacc-own[b]\x1b\n"
        "with speculation: 3 tokens in 1.00 s, 3.0 tokens/s, first token 0.500 s, acceptance 25.0%,"
        " mean accepted length 1.50, finish: length\n"
    )


def test_a_comparison_follows_the_completion() -> None:
    console, out = plain()
    show(console, [PromptResult(0, "p", COMPLETION), PromptResult(0, "p", COMPLETION, ALONE)])
    labels = [line.split(":")[0] for line in out.getvalue().splitlines()[1:]]
    assert labels == ["with speculation", "target alone", "compared"]


def test_a_refusal_stands_under_its_prompt() -> None:
    console, out = plain()
    view = TextView(console, Progress(Console(file=io.StringIO(), force_terminal=False)), greedy=True)
    view.begin(1, 2, "p")
    view.outcome(PromptResult(1, "p", error="request refused: no"))
    assert out.getvalue() == "\n[2/2]\np\n[2] error:            request refused: no\n"


def test_a_table_fits_80_columns() -> None:
    out = io.StringIO()
    view = TextView(Console(file=out, width=80), Progress(Console(file=io.StringIO())), greedy=True)
    slow = Completion("", tuple(range(1000)), 2.0, 10.25, 1000, 0, "length", Totals(1, 1))
    view.summary([PromptResult(i, "p", slow, slow) for i in range(100)], True)
    assert "…" not in out.getvalue()
    assert "accepted" in out.getvalue()


def test_a_line_that_was_cut_is_ended() -> None:
    console, out = plain()
    view = TextView(console, Progress(Console(file=io.StringIO(), force_terminal=False)), greedy=True)
    view.begin(0, 1, "p")
    view.chunk(CHUNKS[0])
    view.close()
    view.close()
    assert out.getvalue() == "pacc-own\n"


def test_a_table_needs_two_rows() -> None:
    console, out = plain()
    view = TextView(console, Progress(Console(file=io.StringIO(), force_terminal=False)), greedy=True)
    view.summary([PromptResult(0, "p", COMPLETION)], False)
    assert not out.getvalue()
    view.summary([PromptResult(0, "p", COMPLETION), PromptResult(1, "q", COMPLETION)], False)
    assert [line.split()[0] for line in out.getvalue().splitlines() if line.strip(" ─")] == [
        "prompt", "1", "2", "median",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("compare", "outcomes", "lines"),
    [
        (False, [PromptResult(0, "p", COMPLETION)], 1),
        (True, [PromptResult(0, "p", COMPLETION), PromptResult(0, "p", COMPLETION, ALONE)], 1),
        (True, [PromptResult(0, "p", error="no")], 1),
    ],
    ids=["plain", "compared", "refused"],
)
def test_json_is_one_object_a_prompt(compare: bool, outcomes: list[PromptResult], lines: int) -> None:
    console, out = plain()
    view = JsonView(console, greedy=True, compare=compare)
    for outcome in outcomes:
        view.outcome(outcome)
    records = [json.loads(line) for line in out.getvalue().splitlines()]
    assert len(records) == lines
    assert records[0]["prompt"] == "p"


def test_progress_is_a_line_when_it_changes_where_there_is_no_terminal() -> None:
    console, out = plain()
    progress = Progress(console)
    for message in ["a [b]", "a [b]", "", "c"]:
        progress(message)
    progress.spin("only on a terminal")
    assert out.getvalue() == "a [b]\nc\n"


def test_without_colour_there_is_no_escape_sequence() -> None:
    assert not stdout_console(no_color=True).is_terminal
