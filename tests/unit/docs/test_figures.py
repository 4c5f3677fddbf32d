"""Figures that several pages show are those of the benchmark's page."""

import re

import pytest

from .pages import ROOT

PAGE = "docs/reference/benchmarks/gpu.md"
ALONE, BLS, LLM_API = "alone", "adaptive", "LLM API, k=4"
TIMES = "\N{MULTIPLICATION SIGN}"
CELL = re.compile(r"([\d,]+)(?: \((\d+\.\d+) x)?")


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def measured(case: str) -> list[tuple[str, str]]:
    """Tokens/s of a case at 1, 4, 16 and 64 streams, and their ratio to the target alone (empty: it is that)."""
    _, _, speed = read(PAGE).partition("## Speed\n")
    row = next(line for line in speed.splitlines() if line.startswith(f"| {case} | "))
    cells = [CELL.match(cell.strip()) for cell in row.split("|")[2:-1]]
    assert len(cells) == 4
    return [(cell[1], cell[2] or "") for cell in cells if cell]


@pytest.mark.parametrize(
    ("row", "case"),
    [
        ("target alone, tokens/s", ALONE),
        ("mode BLS, adaptive draft length", BLS),
        ("mode LLMAPI, 4 draft tokens", LLM_API),
    ],
)
def test_readme_has_the_figures_of_the_gpu(row: str, case: str) -> None:
    shown = [f"{ratio} {TIMES}" if ratio else speed for speed, ratio in measured(case)]
    assert f"| {row} | {' | '.join(shown)} |" in read("README.md")


def test_the_page_on_choosing_has_them() -> None:
    page = read("docs/explanation/choosing.md")
    for streams, (alone, _), *modes in zip((1, 4, 16, 64), *map(measured, (ALONE, BLS, LLM_API)), strict=True):
        shown = " | ".join(f"{speed} ({ratio} {TIMES})" for speed, ratio in modes)
        assert f"| {streams} | {alone} | {shown} |" in page


def test_the_tutorial_of_mode_bls_has_them() -> None:
    (_, one), _, (_, sixteen), (_, most) = measured(BLS)
    page = " ".join(read("docs/tutorials/bls-torch.md").split())
    assert (
        f"{one} times the tokens/s of the target alone at one stream, {sixteen} times at 16, and {most} times at 64"
        in page
    )
