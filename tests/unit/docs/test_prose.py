"""The prose of the pages: short paragraphs, the field's words, plain English."""

import re
from collections.abc import Iterator, Mapping, Sequence
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
TRULY_ALONE = (
    r"(?<!target )(?<!target's )(?<!\| )(?<!\*)(?<!÷ )(?<!leave it )(?<!leaves it )(?<!leave them )(?<!leaves them )"
)
"""The target alone is a case of the benchmarks, and a label of their tables."""
MANNERISMS = {
    rf"{TRULY_ALONE}\balone\b": "only, before what it limits",
    r"\b(he|his|him|himself|herself)\b": "the user, the client, the call; it, its",
    r"\bwho (joined|asked|waited|left)\b": "a call that joined",
    r"\bthat it has\b": "its",
    r"\b(is|are|was|were) to be\b": "must be, will be; or who does it",
    r"\bwhat (the|a|an) [^.,;:|()]{1,60} does not (report|show|have|give)\b": "values that it does not report",
    r"(?-i:\b(So|Nor|Neither) (is|are|does|do|did|has|have|can|will)\b)": "the subject first: it does, too",
    r"\bnor (is|are|does|do|did|has|have|can|will)\b": "and it does not, either",
    r"\bnone can\b": "name it: a new Job cannot",
    r"\blikewise\b": "also, in the same way, the same",
    r"\bamong them\b": "including",
    r"\bthe ones\b": "those; or name them",
    r"\bbut for\b": "except, except for",
    r"\bbut what\b": "only",
    r"\bnothing but\b": "only",
    r"\bso many\b": "this many; or the number",
    r"\ball the same\b": "still, nevertheless",
    r"\banew\b": "again, new",
    r"\bfor ever\b": "forever",
    r"\bas far as\b": "if, as much as",
    r"\bserves? on\b": "keeps serving",
    r"\bgoes on\b": "continues",
    r"\b(warned of|looked at|waited for|asked for|thought of|cared for)[.;]": "who does it: the operator checks them",
    r"\b(where|there|here)(in|by|of)\b": "in it, by it, of it",
}
"""Turns that make a reader stop, and what to write. What they have in common: the subject is late, missing or a
pronoun, or the word is not the usual one."""


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


def found(page: str, patterns: Mapping[str, str]) -> list[str]:
    """Where the prose of a page, without its code and the addresses of its links, has one of these."""
    code = re.compile(r"```.*?```|`[^`]*`|\]\([^)]*\)", re.DOTALL)
    text = code.sub(lambda match: "\n" * match[0].count("\n"), page)
    return [
        f"line {text.count(chr(10), 0, match.start()) + 1}: {' '.join(match[0].split())!r} (write: {instead})"
        for pattern, instead in patterns.items()
        for match in re.finditer(pattern.replace(" ", r"\s"), text, re.IGNORECASE)
    ]


@pytest.mark.parametrize("patterns", [DIALECT, MANNERISMS], ids=["the field's words", "plain English"])
@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_pages_use_the_usual_words(page: Path, patterns: Mapping[str, str]) -> None:
    faults = found(page.read_text(), patterns)
    assert not faults, f"{name(page)}: {faults}"


@pytest.mark.parametrize(
    ("prose", "instead"),
    [
        ("let trusted clients\nalone connect", ["only"]),
        ("who joined tries again by himself", ["the user", "a call"]),
        ("others are kept, those from before the marks among them", ["including"]),
        ("none can while an old one has its name", ["name it"]),
        ("What the engine does not report is absent", ["values"]),
        ("an engine that is to be built", ["must be"]),
        ("So do the log and the page", ["the subject first"]),
        ("the target\nalone, `alone`; leave it alone; so do the others", []),
        ("```\nalone\n```", []),
    ],
)
def test_mannerisms_are_found(prose: str, instead: Sequence[str]) -> None:
    faults = found(prose, MANNERISMS)
    assert len(faults) == len(instead)
    assert all(any(f"(write: {each}" in fault for fault in faults) for each in instead)
