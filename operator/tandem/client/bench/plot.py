"""The figures of `tandem bench` as a picture (SVG 1.1). Pure.

Drawn without a library, as one would be among the largest of the operator's image. Points are medians; the vertical
lines through them go from the least to the most of the repeats.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

from tandem.client.bench.figures import Level, Side, verdict

WIDTH, HEIGHT, TOP, LEFT = 300, 180, 40, 60
"""Of a panel's axes, and what is left for titles and numbers; pixels."""
TICKS = 5
SPECULATIVE, ALONE = "#0969da", "#6e7781"
NAMES = {SPECULATIVE: "with speculation", ALONE: "target alone"}
STYLE = (
    "text{font:12px sans-serif;fill:#24292f}.axis{stroke:#d0d7de}.number{text-anchor:end}.middle{text-anchor:middle}"
)


@dataclass(frozen=True)
class Point:
    """Median, least and most of the repeats at a load."""

    middle: float
    low: float
    high: float


Series = Sequence[Point | None]
"""A point for each load; None where a load has no figure."""


@dataclass(frozen=True)
class Panel:
    """Axes whose left end stands at `left`; the vertical one goes from 0 to `top` by `step`."""

    left: int
    loads: Sequence[int]
    top: float
    step: float

    def x(self, number: int) -> float:
        """Where a load stands: all at the same distance."""
        return self.left + WIDTH * (number + 0.5) / len(self.loads)

    def y(self, value: float) -> float:
        """Where a value stands."""
        return TOP + HEIGHT * (1 - value / self.top)


def svg(levels: Sequence[Level]) -> str:
    """Two panels over the loads: tokens/s of both sides, and the speed-up; the verdict below. At least one level."""
    loads = [level.streams for level in levels]
    ours, alone = (
        [_of_side(side) for side in of] for of in zip(*((e.speculative, e.alone) for e in levels), strict=True)
    )
    ratios = [_of_ratios(level) for level in levels]
    width, height = 2 * (LEFT + WIDTH) + 20, TOP + HEIGHT + 90
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f'<style>{STYLE}</style><rect width="100%" height="100%" fill="white"/>',
        *_panel(LEFT, "tokens/s", loads, {SPECULATIVE: ours, ALONE: alone}),
        *_panel(2 * LEFT + WIDTH, "speed-up", loads, {SPECULATIVE: ratios, ALONE: [Point(1, 1, 1)] * len(levels)}),
    ]
    for number, text in enumerate(verdict(levels).split(": ", 1)):
        parts.append(f'<text x="{LEFT}" y="{TOP + HEIGHT + 58 + 16 * number}">{escape(text)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _of_side(side: Side) -> Point:
    return Point(side.tokens_per_second, *side.spread)


def _of_ratios(level: Level) -> Point | None:
    return None if level.speedup is None else Point(level.speedup, min(level.speedups), max(level.speedups))


def _panel(left: int, title: str, loads: Sequence[int], lines: Mapping[str, Series]) -> list[str]:
    """Axes, and lines by their color."""
    highest = max((point.high for line in lines.values() for point in line if point), default=0.0) or 1.0
    step = _step(highest)
    panel = Panel(left, loads, step * ceil(highest / step), step)
    parts = [f'<text x="{left}" y="14">{title}</text>', *_axes(panel)]
    for number, (color, line) in enumerate(lines.items()):
        parts.append(f'<text x="{left + 130 * number}" y="30" style="fill:{color}">{NAMES[color]}</text>')
        parts += _line(panel, color, line)
    return parts


def _axes(panel: Panel) -> list[str]:
    left, below = panel.left, TOP + HEIGHT
    parts = [f'<text class="middle" x="{left + WIDTH / 2}" y="{below + 32}">requests at once</text>']
    for tick in range(round(panel.top / panel.step) + 1):
        value = tick * panel.step
        at = f"{panel.y(value):.1f}"
        parts += [
            f'<line class="axis" x1="{left}" x2="{left + WIDTH}" y1="{at}" y2="{at}"/>',
            f'<text class="number" dy="4" x="{left - 6}" y="{at}">{value:g}</text>',
        ]
    for number, load in enumerate(panel.loads):
        parts.append(f'<text class="middle" x="{panel.x(number):.1f}" y="{below + 16}">{load}</text>')
    return parts


def _line(panel: Panel, color: str, line: Series) -> list[str]:
    known = [(f"{panel.x(number):.1f}", point) for number, point in enumerate(line) if point]
    course = " ".join(f"{at},{panel.y(point.middle):.1f}" for at, point in known)
    parts = [f'<polyline fill="none" stroke="{color}" points="{course}"/>']
    for at, point in known:
        low, middle, high = (f"{panel.y(value):.1f}" for value in (point.low, point.middle, point.high))
        parts.append(f'<line stroke="{color}" x1="{at}" x2="{at}" y1="{low}" y2="{high}"/>')
        parts.append(f'<circle fill="{color}" cx="{at}" cy="{middle}" r="3"/>')
    return parts


def _step(highest: float) -> float:
    """1, 2 or 5 times a power of ten, of which at most TICKS reach the highest value."""
    least = highest / TICKS
    power = 10.0 ** floor(log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)
