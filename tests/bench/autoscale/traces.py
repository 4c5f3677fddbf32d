"""Traffic over time: how many requests come, how long they are, how well the draft guesses. Pure."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

HOUR = 3600.0
OUTPUT_TOKENS = 600.0
PROMPT_TOKENS = 500.0
# Spread of the lengths (standard deviation of their logarithm).
SPREAD = 0.6


@dataclass(frozen=True)
class Moment:
    """The traffic at a time."""

    rate: float
    """Requests a second."""
    acceptance: float = 0.8
    """Probability that a draft token is accepted, at each position."""
    context: float = 1.0
    """Prompts are so many times as long as usual, and a sequence costs as much more in each step."""


@dataclass(frozen=True)
class Trace:
    """Traffic for `seconds`."""

    name: str
    seconds: float
    about: str
    at: Callable[[float], Moment]


@dataclass(frozen=True)
class Requests:
    """What comes: arrival times (s, ascending), prompt and output tokens."""

    at: Array
    prompt: Array
    output: Array


def requests(trace: Trace, seed: int) -> Requests:
    """A Poisson process at the trace's rate; lengths are log-normal."""
    rng = np.random.default_rng(seed)
    times: list[Array] = []
    prompts: list[Array] = []
    for begin in np.arange(0.0, trace.seconds, 5.0):
        moment = trace.at(begin + 2.5)
        count = rng.poisson(moment.rate * 5.0)
        times.append(np.sort(rng.uniform(begin, begin + 5.0, count)))
        prompts.append(_lengths(rng, PROMPT_TOKENS * moment.context, count))
    at = np.concatenate(times)
    return Requests(at, np.concatenate(prompts), _lengths(rng, OUTPUT_TOKENS, len(at)))


def _lengths(rng: np.random.Generator, mean: float, count: int) -> Array:
    return np.maximum(8.0, rng.lognormal(math.log(mean) - SPREAD**2 / 2, SPREAD, count))


def _ramp(t: float, steps: list[tuple[float, float]], value: float) -> float:
    """Piecewise linear through (time, value), constant outside."""
    return float(np.interp(t, [s[0] for s in steps], [s[1] for s in steps])) if steps else value


# One replica makes about 1.8 requests a second at an acceptance of 0.8.
def diurnal() -> Trace:
    """A day."""
    about = "A day: 2 requests/s at night, 14 at its peak, with swells of some minutes on top."

    def at(t: float) -> Moment:
        day = 0.5 - 0.5 * math.cos(2 * math.pi * t / (24 * HOUR))
        swell = 0.06 * math.sin(2 * math.pi * t / 1500) + 0.04 * math.sin(2 * math.pi * t / 4100)
        return Moment(rate=(2.0 + 12.0 * day) * (1 + swell))

    return Trace("diurnal", 24 * HOUR, about, at)


def burst() -> Trace:
    """Traffic that doubles at once."""
    about = "Three bursts of ten minutes from 5 to 10 requests/s, each within a minute."
    steps: list[tuple[float, float]] = [(0, 5.0)]
    for begin in (1800.0, 5400.0, 8400.0):
        steps += [(begin, 5.0), (begin + 60, 10.0), (begin + 660, 10.0), (begin + 720, 5.0)]
    return Trace("burst", 3 * HOUR, about, lambda t: Moment(rate=_ramp(t, steps, 5.0)))


def collapse() -> Trace:
    """The draft guesses badly for a while."""
    about = "Acceptance falls from 0.8 to 0.2 within five minutes and stays so for 45 minutes; 8 requests/s."
    steps = [(2400.0, 0.8), (2700.0, 0.2), (5400.0, 0.2), (5700.0, 0.8)]
    return Trace("acceptance collapse", 2.5 * HOUR, about, lambda t: Moment(8.0, acceptance=_ramp(t, steps, 0.8)))


def context() -> Trace:
    """Prompts become long for a while: steps and prefills take longer."""
    about = "Prompts become four times as long within ten minutes and stay so for 40 minutes; 8 requests/s."
    steps = [(2400.0, 1.0), (3000.0, 4.0), (5400.0, 4.0), (6000.0, 1.0)]
    return Trace("context shift", 2.5 * HOUR, about, lambda t: Moment(8.0, context=_ramp(t, steps, 1.0)))


TRACES: dict[str, Callable[[], Trace]] = {
    "diurnal": diurnal,
    "burst": burst,
    "collapse": collapse,
    "context": context,
}
