"""Figures that several pages show are those of the benchmark's page."""

import math
import re
import statistics

import pytest

from .pages import ROOT

PAGE = "docs/reference/benchmarks/gpu.md"
ALONE, BLS, LLM_API = "alone", "adaptive", "LLM API, k=4"
SECTIONS = {ALONE: "Speed", BLS: "The adaptive length", LLM_API: "Speed"}
"""Where the page has a case's newest figures."""
TIMES = "\N{MULTIPLICATION SIGN}"
SPEEDS = re.compile(r"\| ([\d, ]+)")


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def measured(case: str) -> list[tuple[str, str]]:
    """Tokens/s of a case at 1, 4, 16 and 64 streams, of several windows the mean, and their ratio to the target alone
    in the same run (empty: it is that)."""
    _, _, section = read(PAGE).partition(f"\n## {SECTIONS[case]}\n")
    speeds, alone = ([mean(cell) for cell in SPEEDS.findall(row(section, name))] for name in (case, ALONE))
    ratios = [f"{speed / one:.2f}" for speed, one in zip(speeds, alone, strict=True)]
    return [
        (f"{math.floor(speed + 0.5):,}", "" if case == ALONE else ratio)
        for speed, ratio in zip(speeds, ratios, strict=True)
    ]


def row(section: str, case: str) -> str:
    """Its cells."""
    return next(line for line in section.splitlines() if line.startswith(f"| {case} | ")).removeprefix(f"| {case} ")


def mean(windows: str) -> float:
    return statistics.mean(float(value.replace(",", "")) for value in windows.split(", "))


@pytest.mark.parametrize(
    ("label", "case"),
    [
        ("target alone, tokens/s", ALONE),
        ("mode BLS, adaptive draft length (a later run)", BLS),
        ("mode LLMAPI, 4 draft tokens", LLM_API),
    ],
)
def test_readme_has_the_figures_of_the_gpu(label: str, case: str) -> None:
    shown = [f"{ratio} {TIMES}" if ratio else speed for speed, ratio in measured(case)]
    assert f"| {label} | {' | '.join(shown)} |" in read("README.md")


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
