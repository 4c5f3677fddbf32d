"""All policies on one trace, and what is to be said of them. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from bench.autoscale import scalers
from bench.autoscale.scalers import ITL, TTFT, Concurrency, Simple, Tandem, specification
from bench.autoscale.simulate import Course, Scaler, Service, Setting
from bench.autoscale.traces import Requests, Trace

ATTAINMENT, HOURS, CHANGES = 0.99, 1.10, 6.0
SPREADS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
MOST = 16
OURS, ORACLE, PRESENT = "Tandem", "oracle", "oracle of the present"


@dataclass(frozen=True)
class Contender:
    """A policy: what gives the autoscaler its metric, and the draft length (None: adaptive)."""

    name: str
    scaler: Callable[[], Scaler]
    k: int | None = None
    simple: bool = True


def _tandem(k: int | None) -> Callable[[], Scaler]:
    return lambda: Tandem(specification(k, MOST))


CONTENDERS = (
    Contender(OURS, _tandem(None), simple=False),
    Contender("Tandem, fixed k = 4", _tandem(4), k=4, simple=False),
    Contender("Tandem, k = 0", _tandem(0), k=0, simple=False),
    Contender("HPA on queue", lambda: Simple(scalers.queue)),
    Contender("HPA on latency", lambda: Simple(scalers.latency)),
    Contender("acceptance threshold", lambda: Simple(scalers.acceptance)),
    Contender("HPA on concurrency, 80%", lambda: Concurrency(0.8)),
    Contender("HPA on concurrency, 70%", lambda: Concurrency(0.7)),
)


@dataclass(frozen=True)
class Score:
    """What a policy reached: share of requests within both objectives, replicas' hours, changes an hour."""

    name: str
    attainment: float
    hours: float
    changes: float
    simple: bool = False

    def beats(self, other: "Score") -> bool:
        """Whether it keeps the objectives as well with fewer hours, or better with no more. Keeping them better than
        asked for counts for nothing."""
        kept, others = (min(score.attainment, ATTAINMENT) for score in (self, other))
        return (kept > others and self.hours <= other.hours) or (kept >= others and self.hours < other.hours)


@dataclass(frozen=True)
class Outcome:
    """A policy's score and course."""

    score: Score
    course: Course


def compete(trace: Trace, requests: Requests, cold_start: float, seed: int) -> Iterator[Outcome]:
    """The oracles first, then all others, which start with the oracle's replicas."""
    setting = Setting(cold_start=cold_start, most=MOST)
    best, spread = _oracle(trace, requests, setting, seed)
    yield best
    plan = scalers.oracle(trace, spread, 0.0, MOST)
    start = best.course.replicas[0][1]
    setting = replace(setting, start=start)
    yield _outcome(PRESENT, Service(trace, replace(setting, plan=plan), seed).run(requests))
    for each in CONTENDERS:
        course = Service(trace, replace(setting, k=each.k, scaler=each.scaler()), seed).run(requests)
        yield _outcome(each.name, course, each.simple)


def _oracle(trace: Trace, requests: Requests, setting: Setting, seed: int) -> tuple[Outcome, float]:
    """The cheapest plan in hindsight that keeps the objectives, or else the one that keeps them best."""
    found: list[tuple[Outcome, float]] = []
    for spread in SPREADS:
        plan = scalers.oracle(trace, spread, setting.cold_start + 60.0, MOST)
        course = Service(trace, replace(setting, start=plan(0.0), plan=plan), seed).run(requests)
        found.append((_outcome(ORACLE, course), spread))
        if found[-1][0].score.attainment >= ATTAINMENT:
            return found[-1]
    return max(found, key=lambda each: each[0].score.attainment)


def _outcome(name: str, course: Course, simple: bool = False) -> Outcome:
    return Outcome(
        Score(name, course.attainment(TTFT, ITL), course.hours, course.changes_an_hour, simple=simple), course
    )


def row(score: Score, oracle: Score) -> list[str]:
    """A line of the table."""
    return [
        score.name,
        f"{100 * score.attainment:.2f}",
        f"{score.hours:.1f}",
        f"{score.hours / oracle.hours:.2f}",
        f"{score.changes:.1f}",
    ]


HEADER = ("policy", "within objectives, %", "replica hours", "of the oracle's", "changes an hour")


def verdict(scores: Sequence[Score], steady: bool = True) -> list[str]:
    """Which goals our policy misses, in words; `steady`: few changes are one of them."""
    by_name = {score.name: score for score in scores}
    ours, oracle = by_name[OURS], by_name[ORACLE]
    missed = []
    if oracle.attainment >= ATTAINMENT > ours.attainment:
        missed.append(
            f"{100 * ours.attainment:.1f}% of the requests within the objectives instead of 99%"
            f" (without foresight: {100 * by_name[PRESENT].attainment:.1f}%)"
        )
    if ours.hours > HOURS * oracle.hours:
        missed.append(f"{ours.hours / oracle.hours:.2f} of the oracle's hours instead of {HOURS:.2f}")
    if steady and ours.changes > CHANGES:
        missed.append(f"{ours.changes:.1f} changes an hour instead of {CHANGES:g}")
    missed += [f"{score.name} is better" for score in scores if score.simple and score.beats(ours)]
    return missed
