"""What the user sees: text as it arrives on standard output, or one JSON object a prompt."""

import json
from collections.abc import Sequence
from typing import Protocol

from rich import box
from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from tandem.client.generate.figures import Chunk, PromptResult
from tandem.client.generate.format import comparison_line, completion_line, outcome_json, printable, summary_table

PROMPT_STYLE = "dim"
ACCEPTED_STYLE = "green"
LEGEND = "dim: the prompt; green: guessed by the draft and accepted; else: the target's own\n"
COMPARED = "alone: tokens/s of the target without speculation"
PLAIN_WIDTH = 120
"""Width of tables where there is no terminal to ask, in characters."""


class View(Protocol):
    """Takes a session's events, in the order of the prompts."""

    def begin(self, index: int, count: int, prompt: str) -> None:
        """Prompt `index` of `count` is next."""

    def chunk(self, chunk: Chunk) -> None:
        """More of its completion came, with speculation if there is any."""

    def outcome(self, outcome: PromptResult) -> None:
        """It is done; to compare, once more when the target alone is done too."""

    def summary(self, outcomes: Sequence[PromptResult], compare: bool) -> None:
        """All are done."""

    def close(self) -> None:
        """Nothing more comes, perhaps in the middle of a prompt."""


class Progress:
    """Says on standard error what is waited for: a spinner on a terminal, else a line when it changes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = Status("", console=console)
        self._said = ""

    def __call__(self, message: str) -> None:
        """Show `message` until the next one; an empty one clears it."""
        if message != self._said and not self.spin(message) and message:
            self._console.out(message, highlight=False)
        self._said = message

    def spin(self, message: str) -> bool:
        """Show `message` on a terminal alone; False: there is none."""
        if not self._console.is_terminal:
            return False
        self._status.update(Text(printable(message)))
        (self._status.start if message else self._status.stop)()
        return True

    def close(self) -> None:
        """Clear what is shown."""
        self._status.stop()


class TextView:
    """The prompt, its completion as it comes, its figures; a table at the end.

    On a terminal the prompt is dim, and text from accepted draft tokens green. Elsewhere it is plain, and
    control characters of the model's are left as they are.
    """

    def __init__(self, console: Console, progress: Progress, greedy: bool) -> None:
        self._console = console
        self._progress = progress
        self._greedy = greedy
        self._count = 1
        self._prompt = ""
        self._pending = False
        self._column_zero = True

    def begin(self, index: int, count: int, prompt: str) -> None:
        """Wait for the first chunk with the prompt, so that progress has the line for itself."""
        if index == 0 and self._console.is_terminal:
            self._write(LEGEND, PROMPT_STYLE)
        if count > 1:
            self._write(f"\n[{index + 1}/{count}]\n", PROMPT_STYLE)
        self._count, self._prompt, self._pending = count, prompt, True
        self._progress.spin(f"prompt {index + 1} of {count}: waiting for the first token")

    def chunk(self, chunk: Chunk) -> None:
        """Write the chunk, its accepted part in another colour."""
        self._show_prompt()
        cut = chunk.draft_text_length
        self._write(chunk.text[:cut], ACCEPTED_STYLE)
        self._write(chunk.text[cut:])

    def outcome(self, outcome: PromptResult) -> None:
        """Write the figures that are new: of the completion, or of the target alone."""
        self._show_prompt()
        self.close()
        if outcome.error:
            self._line(outcome, "error", outcome.error)
        elif outcome.comparison:
            self._line(outcome, "target alone", completion_line(outcome.comparison.alone))
            self._line(outcome, "compared", comparison_line(outcome.comparison, self._greedy))
        elif outcome.completion:
            label = "with speculation" if outcome.completion.speculated else "completion"
            self._line(outcome, label, completion_line(outcome.completion))

    def summary(self, outcomes: Sequence[PromptResult], compare: bool) -> None:
        """Write the table, if there is more than one row to compare."""
        if len(outcomes) < 2:
            return
        header, rows = summary_table(outcomes, compare)
        caption = COMPARED if compare else None
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, caption=caption)
        for name in header:
            table.add_column(name, justify="right")
        for row in rows[:-1]:
            table.add_row(*row)
        table.add_section()
        table.add_row(*rows[-1])
        self._console.print(table)

    def close(self) -> None:
        """End the line."""
        if not self._column_zero:
            self._write("\n")

    def _show_prompt(self) -> None:
        if self._pending:
            self._progress.spin("")
            self._write(self._prompt, PROMPT_STYLE)
            self._pending = False

    def _line(self, outcome: PromptResult, label: str, text: str) -> None:
        number = f"[{outcome.index + 1}] " if self._count > 1 else ""
        self._write(f"{number}{label + ':':<18}{text}\n", PROMPT_STYLE)

    def _write(self, text: str, style: str | None = None) -> None:
        if not text:
            return
        shown = printable(text) if self._console.is_terminal else text
        self._console.out(shown, style=style, highlight=False, end="")
        self._console.file.flush()
        self._column_zero = text.endswith("\n")


class JsonView:
    """One JSON object a prompt, on a line, when all of it is done."""

    def __init__(self, console: Console, greedy: bool, compare: bool) -> None:
        self._console = console
        self._greedy = greedy
        self._compare = compare

    def begin(self, index: int, count: int, prompt: str) -> None:
        """Nothing to say yet."""

    def chunk(self, chunk: Chunk) -> None:
        """Nothing to say yet."""

    def outcome(self, outcome: PromptResult) -> None:
        """Write the object."""
        if outcome.alone or outcome.error or not self._compare:
            self._console.out(json.dumps(outcome_json(outcome, self._greedy)), highlight=False)
            self._console.file.flush()

    def summary(self, outcomes: Sequence[PromptResult], compare: bool) -> None:
        """Scripts make their own."""

    def close(self) -> None:
        """Lines are always whole."""


def stdout_console(no_color: bool) -> Console:
    """Standard output; without colour no escape sequence at all is written."""
    console = Console(force_terminal=False if no_color else None, soft_wrap=True)
    return console if console.is_terminal else Console(force_terminal=False, width=PLAIN_WIDTH)
