"""The prose of the pages: short paragraphs, the field's words."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .pages import PAGES, name

GENERATED = {"docs/reference/api.md", "docs/reference/conditions.md"}
WRITTEN = [page for page in PAGES if name(page) not in GENERATED]
MOST_WORDS = 100
"""Of a paragraph or a list item."""
DIALECT = {
    r"\bt(ell|old|ells|elling)\b": "report, show, state",
    r"\bsaid\b": "reported, showed, stated",
    r"\bnobody\b": "no user, no pod, none",
    r"\bbeside\b": "next to, with, in addition to",
    r"\bcomes? to nothing\b": "fail",
    r"\bnews\b": "report",
}
"""Words that say that somebody spoke, where a value is reported, observed or measured; and what to write."""


def paragraphs(text: str) -> Iterator[str]:
    """Paragraphs and list items, without code blocks, tables and headings."""
    text = re.sub(r"^ *```.*?^ *```", "\n", text, flags=re.MULTILINE | re.DOTALL)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*>]|\d+\.) )", text):
        lines = [line for line in block.splitlines() if not line.lstrip().startswith(("|", "#"))]
        if lines:
            yield " ".join(" ".join(lines).split())


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_a_paragraph_holds_one_idea(page: Path) -> None:
    long = {p[:60]: len(p.split()) for p in paragraphs(page.read_text()) if len(p.split()) > MOST_WORDS}
    assert not long, f"{name(page)}: split these paragraphs (words): {long}"


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_pages_use_the_fields_words(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", "", page.read_text(), flags=re.DOTALL)
    found = [
        f"line {number}: {match[0]!r} (write: {instead})"
        for number, line in enumerate(text.splitlines(), 1)
        for word, instead in DIALECT.items()
        for match in re.finditer(word, line, re.IGNORECASE)
    ]
    assert not found, f"{name(page)}: {found}"
