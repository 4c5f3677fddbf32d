"""Tables as a terminal shows them."""

import re
from collections.abc import Sequence
from itertools import pairwise

from rich.console import Console
from rich.table import Table
from rich.text import Text


def only_row(table: Table | Text, width: int) -> dict[str, str]:
    """Of a table with one row: its cells by their headings; without spaces, as a cell may be broken over lines."""
    console = Console(width=width)
    with console.capture() as capture:
        console.print(table)
    header, *lines = (line for line in capture.get().splitlines() if line.strip(" ─"))
    assert all(len(line) <= width for line in lines)
    headings = list(re.finditer(r"\S+", header))
    ends: Sequence[int] = [*(heading.start() for heading in headings), width]
    cells = ["".join(line[start:end] for line in lines).replace(" ", "") for start, end in pairwise(ends)]
    return {heading[0]: cell for heading, cell in zip(headings, cells, strict=True)}
