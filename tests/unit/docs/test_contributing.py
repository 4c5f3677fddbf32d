"""docs/contributing.md is true: its files exist, and what it says fails does."""

import re
from pathlib import Path

import pytest
import typer

from support.commands import names
from tandem.cli import app

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/contributing.md").read_text()
COMMANDS = ROOT / "docs/reference/cli.md"
MOST_FILES = {
    "A decoding type": 5,
    "A field of the resource": 3,
    "A reason": 2,
    "A condition type": 3,
    "A command": 2,
    "An autoscaling source": 3,
    "A profile": 2,
    "An engine of mode LLMAPI": 2,
    "A sampling parameter": 4,
    "A parameter of a model's config.pbtxt": 3,
    "A setting of the operator": 4,
}
"""Hand-written product files that a change touches at most, as its table has them: `or`, `;` and `instead` part
alternatives."""
TOP = ("images/", "charts/", "docs/", "tests/", "examples/", "README")
PLACEHOLDER = re.compile(r"NAME|KIND|^config.pbtxt.j2")


def sections() -> dict[str, str]:
    parts = re.split(r"^### (.+)$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def paths(text: str) -> list[str]:
    quoted = re.findall(r"`([\w./-]+\.(?:py|yaml|j2|md|tpl)|[\w/]+/)…?`", text)
    return [path for path in quoted if not PLACEHOLDER.search(path)]


@pytest.mark.parametrize("change", MOST_FILES)
def test_the_files_of_a_change_exist(change: str) -> None:
    named, folder = paths(sections()[change]), ""
    assert named
    for path in named:
        base = ROOT if path.startswith(TOP) else ROOT / "operator/tandem"
        # A bare file name is in the folder of the path before it.
        places = [base / path, base / folder / path]
        assert any(place.exists() for place in places), f"{change}: {path} does not exist"
        folder = str(Path(path).parent) if "/" in path else folder


@pytest.mark.parametrize(("change", "most"), MOST_FILES.items())
def test_a_change_touches_few_files(change: str, most: int) -> None:
    rows = [line.split("|")[1] for line in sections()[change].splitlines() if re.match(r"\| (?!file|-)", line)]
    # A row of alternatives is one file; else each path that it names is one.
    alternatives = re.compile(r"; | or |instead|where|what reads")
    files = [1 if alternatives.search(row) else max(1, row.count("`") // 2) for row in rows]
    assert 0 < sum(files) <= most


def test_each_make_target_of_the_pages_exists() -> None:
    targets = set(re.findall(r"^([a-z0-9]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for page in ("README.md", "docs/contributing.md"):
        named = set(re.findall(r"(?:^|`)make ([a-z0-9]+)", (ROOT / page).read_text(), flags=re.MULTILINE))
        assert named <= targets, f"{page}: {named - targets}"


def test_each_change_of_the_page_is_counted() -> None:
    assert sections().keys() == MOST_FILES.keys()


@pytest.mark.parametrize("command", names(typer.main.get_group(app)))
def test_each_command_has_a_row(command: str) -> None:
    table = [line for line in COMMANDS.read_text().splitlines() if line.startswith("| `tandem ")]
    assert any(re.match(rf"\| `{command}[` ]", line) for line in table), f"{COMMANDS} lacks a row for {command}"
