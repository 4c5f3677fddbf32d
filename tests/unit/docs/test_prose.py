"""The prose of README, docs/ and the READMEs of folders: short paragraphs, the field's words."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GENERATED = {"docs/api.md", "docs/conditions.md"}
PAGES = sorted(
    str(page.relative_to(ROOT))
    for pattern in ("README.md", "docs/*.md", "charts/*/README.md", "examples/README.md", "images/**/README.md")
    for page in ROOT.glob(pattern)
    if str(page.relative_to(ROOT)) not in GENERATED
)
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


@pytest.mark.parametrize("page", PAGES)
def test_a_paragraph_holds_one_idea(page: str) -> None:
    long = {p[:60]: len(p.split()) for p in paragraphs((ROOT / page).read_text()) if len(p.split()) > MOST_WORDS}
    assert not long, f"{page}: split these paragraphs (words): {long}"


@pytest.mark.parametrize("page", PAGES)
def test_pages_use_the_fields_words(page: str) -> None:
    text = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", "", (ROOT / page).read_text(), flags=re.DOTALL)
    found = [
        f"line {number}: {match[0]!r} (write: {instead})"
        for number, line in enumerate(text.splitlines(), 1)
        for word, instead in DIALECT.items()
        for match in re.finditer(word, line, re.IGNORECASE)
    ]
    assert not found, f"{page}: {found}"
