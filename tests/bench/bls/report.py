"""Figures to tables: what was measured beside what is ideal, as markdown."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.bls import client
from bench.bls.client import Load
from bench.bls.in_flight import Pair
from bench.bls.measure import Point
from bench.bls.simulate import Job, Outcome, Window, Workload

PROCESSES = ("bls", "server", "engines", "client")


@dataclass(frozen=True)
class Run:
    """A measured point beside the ideal for the very same requests."""

    load: Load
    point: Point
    ideal: Outcome


def workload(load: Load, alphas: Sequence[float]) -> Workload:
    """What a load's client sends, for the simulator."""
    chosen, first = client.choose(load), client.lengths(load)
    jobs = [Job(prompt.key, prompt.length, load.max_tokens) for prompt in chosen]
    begun = [Job(job.key, job.length, length) for job, length in zip(jobs, first, strict=False)]
    return Workload(begun, jobs[load.streams :], alphas, Window(load.warm_up, load.seconds))


def first_round(pair: Pair, load: Load, schedule: str) -> float:
    """Seconds from a request to its first tokens in the cost model: prefill and one round with its cohort."""
    rows = load.streams if schedule == "lock-step" else -(-load.streams // 2)
    chosen = client.choose(load)
    prompt = statistics.fmean(prompt.length for prompt in chosen) - 1
    rows = min(rows, pair.target_limits.fit(int(prompt)))
    prefill = prompt * (pair.draft.per_prefill_token + pair.target.per_prefill_token) * 1e-3
    k = load.draft_len or 0
    return prefill + k * pair.draft.step(rows) + pair.target.step(rows, rows * k)


HEADER = (
    "streams",
    "ideal",
    "best schedule",
    "measured",
    "of ideal",
    "target only",
    "engine alone",
    "of engine alone",
    "speed-up",
    "TTFT ms",
    "of first round",
    "BLS µs",
    "server µs",
    "engines µs",
    "client µs",
    "BLS MB",
)


def row(pair: Pair, runs: Sequence[Run], alone: Sequence[Run], engine: Sequence[Run]) -> list[str]:
    """One load's line: medians over its runs with speculation, without, and of the target called directly."""
    speed, base = _median(r.point.speed for r in runs), _median(r.point.speed for r in alone)
    direct = _median(r.point.speed for r in engine)
    schedule = max(runs, key=lambda r: r.ideal.speed).ideal.schedule
    rounds = [r.point.result.ttft_mean / first_round(pair, r.load, r.ideal.schedule) for r in runs]
    return [
        str(runs[0].load.streams),
        f"{_median(r.ideal.speed for r in runs):.0f}",
        schedule,
        f"{speed:.0f}",
        f"{_median(r.point.speed / r.ideal.speed for r in runs):.2f}",
        f"{base:.0f} ({_median(r.point.speed / r.ideal.speed for r in alone):.2f} of ideal)",
        f"{direct:.0f}",
        f"{_median(own.point.speed / its.point.speed for own, its in zip(runs, engine, strict=True)):.2f}",
        f"{speed / base:.2f}",
        f"{_median(r.point.result.ttft_mean for r in runs) * 1e3:.1f}",
        f"{_median(rounds):.2f}",
        *(f"{_median(r.point.per_chunk(name) for r in runs) * 1e6:.0f}" for name in PROCESSES),
        f"{max(r.point.rss for r in (*runs, *alone)) / 1e6:.0f}",
    ]


FLOOR_HEADER = (
    "streams",
    "ideal",
    "bare",
    "of ideal, bare",
    "BLS",
    "of ideal, BLS",
    "of bare",
    "bare TTFT ms",
    "BLS TTFT ms",
    "bare µs",
    "BLS µs",
    "times bare",
)


def floor_row(runs: Sequence[Run], bare: Sequence[Run]) -> list[str]:
    """One load's line: medians of the BLS's runs beside those of the bare one's, for the same requests."""

    def speeds(of: Sequence[Run]) -> tuple[float, str, str]:
        speed = _median(r.point.speed for r in of)
        return speed, f"{speed:.0f}", f"{_median(r.point.speed / r.ideal.speed for r in of):.2f}"

    (own, *own_cells), (least, *least_cells) = speeds(runs), speeds(bare)
    ttfts = [_median(r.point.result.ttft_mean for r in of) * 1e3 for of in (bare, runs)]
    costs = [_median(r.point.per_chunk("bls") for r in of) * 1e6 for of in (bare, runs)]
    return [
        str(runs[0].load.streams),
        f"{_median(r.ideal.speed for r in runs):.0f}",
        *least_cells,
        *own_cells,
        f"{own / least:.2f}",
        *(f"{ttft:.1f}" for ttft in ttfts),
        *(f"{cost:.0f}" for cost in costs),
        f"{costs[1] / costs[0]:.2f}",
    ]


DIRECT_HEADER = ("streams", "engine", "BLS", "of engine", "engine TTFT ms", "BLS TTFT ms", "BLS µs", "server µs")


def direct_row(runs: Sequence[Run], direct: Sequence[Run]) -> list[str]:
    """The row of one load: medians of the target alone, of its engine, and of the ratios of each pair."""
    ratios = [own.point.speed / engine.point.speed for own, engine in zip(runs, direct, strict=True)]
    return [
        str(runs[0].load.streams),
        *(f"{_median(r.point.speed for r in of):.0f}" for of in (direct, runs)),
        f"{_median(ratios):.3f}",
        *(f"{_median(r.point.result.ttft_mean for r in of) * 1e3:.1f}" for of in (direct, runs)),
        *(
            f"{1e6 * _median(r.point.cpu[name] / r.point.result.tokens for r in runs):.0f}"
            for name in ("bls", "server")
        ),
    ]


def stage_rows(points: Sequence[Point]) -> list[list[str]]:
    """A row a stage: µs of CPU a step and sequence, and of each of its calls, at each load; last the rest."""
    stages = [stage for stage in points[0].stages if any(point.stages[stage][1] for point in points)]
    known = [[stage, *(cell for point in points for cell in _stage_cells(point, stage))] for stage in stages]
    held = [sum(seconds for seconds, _ in point.stages.values()) for point in points]
    rest = [1e6 * (point.cpu["bls"] - sum_) / point.result.chunks for point, sum_ in zip(points, held, strict=True)]
    alls = [1e6 * point.per_chunk("bls") for point in points]
    return [
        *known,
        [
            "the rest: Triton's stub before and after, threads",
            *(cell for value in rest for cell in (f"{value:.0f}", "")),
        ],
        ["all", *(cell for value in alls for cell in (f"{value:.0f}", ""))],
    ]


def _stage_cells(point: Point, stage: str) -> list[str]:
    seconds, calls = point.stages[stage]
    return [f"{1e6 * seconds / point.result.chunks:.1f}", f"{1e6 * seconds / calls:.0f}" if calls else ""]


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A markdown table."""
    lines = [header, ["---:"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


TITLE = "# The speculative BLS, measured\n\nWritten by the commands that each section names; see [bls.md](bls.md).\n"


def write_section(path: Path, title: str, text: str) -> None:
    """Put a section into a document, in the place of the one with the same title if there is one."""
    document = path.read_text() if path.exists() else TITLE
    head, *sections = document.split("\n## ")
    kept = [section.strip() for section in sections if not section.startswith(f"{title}\n")]
    place = [i for i, section in enumerate(sections) if section.startswith(f"{title}\n")]
    kept.insert(place[0] if place else len(kept), f"{title}\n\n{text.strip()}")
    path.write_text("\n\n## ".join([head.strip(), *kept]) + "\n")


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


def adaptive_header(fixed: Sequence[int]) -> list[str]:
    """Columns of the adaptive matrix."""
    return ["acceptance", "streams", *(f"k = {k}" for k in fixed), "adaptive", "of best fixed", "of target only"]


def adaptive_cells(speeds: dict[int | None, float]) -> list[str]:
    """A line of the adaptive matrix: tokens/s by draft length, None the adaptive one."""
    own = speeds[None]
    fixed = {k: speed for k, speed in speeds.items() if k is not None}
    cells = [f"{speed:.0f}" for speed in (*fixed.values(), own)]
    alone = f"{own / fixed[0]:.3f}" if 0 in fixed else "-"
    return [*cells, f"{own / max(fixed.values()):.3f}", alone]
