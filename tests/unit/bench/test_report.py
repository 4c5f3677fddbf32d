"""The benchmark's report: figures from runs, sections of a document."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.bls import report
from bench.bls.client import Load, Result
from bench.bls.in_flight import Costs, Pair, StepLimits
from bench.bls.measure import Point
from bench.bls.report import Run
from bench.bls.simulate import Outcome

pytestmark = pytest.mark.nightly

PAIR = Pair(Costs(2.0), Costs(12.0))


def run(tokens: int, ideal: float, load: Load, ttft: float = 0.03, bls: float = 0.02) -> Run:
    result = Result(2.0, tokens, 100, 10, 0, ttft, ttft, 0.01)
    cpu = {"bls": bls, "server": 0.03, "engines": 0.003, "client": 0.01}
    return Run(load, Point(result, cpu, 50_000_000, {}, {}, {}), Outcome("lock-step", ideal, 0.02, 0.02))


def test_row_is_of_medians() -> None:
    loads = [Load(16, seed=seed, draft_len=4) for seed in range(3)]
    runs = [
        run(tokens, ideal, load)
        for tokens, ideal, load in zip((2000, 4000, 3000), (2000, 2500, 2000), loads, strict=True)
    ]
    alone = [run(1000, 1000, load, ttft=0.01) for load in loads]
    engine = [run(2000, 1000, load) for load in loads]
    cells = dict(zip(report.HEADER, report.row(PAIR, runs, alone, engine), strict=True))
    assert cells == {
        "streams": "16",
        "ideal": "2000",
        "best schedule": "lock-step",
        "measured": "1500",
        "of ideal": "0.75",
        "target only": "500 (0.50 of ideal)",
        "engine alone": "1000",
        "of engine alone": "1.50",
        "speed-up": "3.00",
        "TTFT ms": "30.0",
        "of first round": "1.25",  # 4 x 2.8 + 12.8 ms
        "BLS µs": "200",
        "server µs": "300",
        "engines µs": "30",
        "client µs": "100",
        "BLS MB": "50",
    }


def test_stages_and_what_no_stage_has() -> None:
    points = []
    for stages in ({"texts": (0.004, 200), "sending": (0.001, 50), "metrics": (0.0, 0)}, {"texts": (0.02, 100)}):
        point = run(2000, 2000, Load(4)).point
        points.append(replace(point, stages={"sending": (0.0, 0), "metrics": (0.0, 0), **stages}))
    assert report.stage_rows(points) == [
        ["sending", "10.0", "20", "0.0", ""],
        ["texts", "40.0", "20", "200.0", "200"],
        ["the rest: Triton's stub before and after, threads", "150", "", "0", ""],
        ["all", "200", "", "200", ""],
    ]


def test_floor_stands_beside_the_bls() -> None:
    loads = [Load(4, seed=seed, draft_len=4) for seed in range(3)]
    own = [run(tokens, 2000, load) for tokens, load in zip((2000, 4000, 3000), loads, strict=True)]
    bare = [run(2400, 2000, load, ttft=0.02, bls=0.01) for load in loads]
    assert dict(zip(report.FLOOR_HEADER, report.floor_row(own, bare), strict=True)) == {
        "streams": "4",
        "ideal": "2000",
        "bare": "1200",
        "of ideal, bare": "0.60",
        "BLS": "1500",
        "of ideal, BLS": "0.75",
        "of bare": "1.25",
        "bare TTFT ms": "20.0",
        "BLS TTFT ms": "30.0",
        "bare µs": "100",
        "BLS µs": "200",
        "times bare": "2.00",
    }


def test_first_round_counts_half_the_streams_in_two_cohorts() -> None:
    load = Load(32, draft_len=4)
    assert report.first_round(PAIR, load, "two cohorts") == pytest.approx((4 * 2.8 + 12.8) * 1e-3)
    assert report.first_round(PAIR, load, "lock-step") == pytest.approx((4 * 3.6 + 13.6) * 1e-3)


def test_first_round_has_no_more_rows_than_the_engines_batch() -> None:
    pair = replace(PAIR, target_limits=StepLimits(rows=8))
    assert report.first_round(pair, Load(32, draft_len=4), "4 cohorts") == pytest.approx((4 * 2.4 + 12.4) * 1e-3)


def test_adaptive_is_compared_with_the_best_fixed_length() -> None:
    speeds: dict[int | None, float] = {0: 100.0, 4: 200.0, None: 190.0}
    assert report.adaptive_cells(speeds) == ["100", "200", "190", "0.950", "1.900"]


def test_a_section_is_replaced_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "figures.md"
    for title, text in [("One", "old"), ("Two", "second"), ("One", "new\n")]:
        report.write_section(path, title, text)
    assert path.read_text() == f"{report.TITLE.strip()}\n\n## One\n\nnew\n\n## Two\n\nsecond\n"
