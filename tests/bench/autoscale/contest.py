"""All policies on one trace, over several seeds, and what is to be said of them. Pure."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from statistics import median

from bench.autoscale import scalers, traces
from bench.autoscale.scalers import ITL, TTFT, Concurrency, Simple, Tandem, specification
from bench.autoscale.simulate import Course, Scaler, Service, Setting
from bench.autoscale.traces import Trace

ATTAINMENT, HOURS, CHANGES = 0.99, 1.10, 6.0
SPREADS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
MOST = 16
PATIENCE = 0.9 * TTFT
OURS, ORACLE, PRESENT, CONSTANT = "Tandem", "oracle", "oracle of the present", "constant replicas"
BOUND = f"{PRESENT}, queue timeout {PATIENCE:g} s"
# By their patience. Who starts no replica before a burst comes does no better than BOUND, but by more in reserve.
WITHOUT_FORESIGHT = {PRESENT: None, BOUND: PATIENCE}


@dataclass(frozen=True)
class Contender:
    """A policy: what gives the autoscaler its metric, and the draft length (None: adaptive)."""

    name: str
    scaler: Callable[[], Scaler]
    k: int | None = None
    simple: bool = True
    least: int = 1
    """minReplicas."""
    patience: float | None = None
    """The queue timeout (s): requests that waited for so long are refused; None: none is."""
    only: str | None = None
    """The trace that it is for; None: all."""


def _tandem(k: int | None = None) -> Callable[[], Scaler]:
    return lambda: Tandem(specification(k, MOST))


def _reserve(least: int, patience: float | None = None) -> Contender:
    name = f"Tandem, minReplicas {least}" + (f", queue timeout {patience:g} s" if patience else "")
    return Contender(name, _tandem(), simple=False, least=least, patience=patience, only="burst")


CONTENDERS = (
    Contender(OURS, _tandem(), simple=False),
    Contender("Tandem, fixed k = 4", _tandem(4), k=4, simple=False),
    Contender("Tandem, k = 0", _tandem(0), k=0, simple=False),
    *(_reserve(least) for least in (5, 6, 7)),
    Contender(f"Tandem, queue timeout {PATIENCE:g} s", _tandem(), simple=False, patience=PATIENCE),
    _reserve(5, PATIENCE),
    Contender("HPA on queue", lambda: Simple(scalers.queue)),
    Contender("HPA on latency", lambda: Simple(scalers.latency)),
    Contender("acceptance threshold", lambda: Simple(scalers.acceptance)),
    Contender("HPA on concurrency, 80%", lambda: Concurrency(0.8)),
    Contender("HPA on concurrency, 70%", lambda: Concurrency(0.7)),
)


@dataclass(frozen=True)
class Score:
    """What a run reached: share of requests within both objectives, replicas' hours, changes an hour."""

    attainment: float
    hours: float
    changes: float


@dataclass(frozen=True)
class Outcome:
    """A run's score and the replicas wanted by time."""

    score: Score
    replicas: list[tuple[float, int]]


@dataclass(frozen=True)
class Result:
    """A policy's scores, one a seed; what stands for them is their median."""

    name: str
    scores: tuple[Score, ...]
    simple: bool = False

    @property
    def attainment(self) -> float:
        """Share of requests within both objectives."""
        return median(score.attainment for score in self.scores)

    @property
    def worst(self) -> float:
        """The lowest attainment."""
        return min(score.attainment for score in self.scores)

    @property
    def hours(self) -> float:
        """Replicas' hours."""
        return median(score.hours for score in self.scores)

    @property
    def changes(self) -> float:
        """Changes of the number of replicas an hour."""
        return median(score.changes for score in self.scores)

    def of(self, oracle: "Result") -> float:
        """Hours over the oracle's of the same seed."""
        return median(ours.hours / its.hours for ours, its in zip(self.scores, oracle.scores, strict=True))

    def beats(self, other: "Result") -> bool:
        """Whether it keeps the objectives as well with fewer hours, or better with no more. Keeping them better than
        asked for counts for nothing."""
        kept, others = (min(result.attainment, ATTAINMENT) for result in (self, other))
        return (kept > others and self.hours <= other.hours) or (kept >= others and self.hours < other.hours)


@dataclass(frozen=True)
class Game:
    """A trace with the traffic of one seed."""

    trace: str
    seed: int
    cold_start: float


@dataclass(frozen=True)
class Hindsight:
    """The oracle's outcome in a game, and the reserve that it chose (standard deviations of the sequences)."""

    outcome: Outcome
    spread: float


def compete(games: Sequence[Game], executor: Executor) -> Iterator[tuple[Result, Outcome]]:
    """Each policy's result over games of one trace, with its outcome in the first one: the oracles first, then all
    others, which start with the oracle's replicas."""
    best = list(executor.map(hindsight, games))
    yield _result(ORACLE, [each.outcome for each in best])
    names = [each.name for each in CONTENDERS if each.only in (None, games[0].trace)]
    runs = {
        name: [executor.submit(play, game, found, name) for game, found in zip(games, best, strict=True)]
        for name in (*WITHOUT_FORESIGHT, *names, CONSTANT)
    }
    simple = {each.name for each in CONTENDERS if each.simple} | {CONSTANT}
    for name, outcomes in runs.items():
        yield _result(name, [each.result() for each in outcomes], name in simple)


def _result(name: str, outcomes: Sequence[Outcome], simple: bool = False) -> tuple[Result, Outcome]:
    return Result(name, tuple(outcome.score for outcome in outcomes), simple), outcomes[0]


def hindsight(game: Game) -> Hindsight:
    """The cheapest plan in hindsight that keeps the objectives, or else the one that keeps them best."""
    trace, found = traces.TRACES[game.trace](), []
    for spread in SPREADS:
        plan = scalers.oracle(trace, spread, game.cold_start + 60.0, MOST)
        setting = Setting(cold_start=game.cold_start, most=MOST, start=plan(0.0), plan=plan)
        found.append(Hindsight(_run(game, trace, setting), spread))
        if found[-1].outcome.score.attainment >= ATTAINMENT:
            return found[-1]
    return max(found, key=lambda each: each.outcome.score.attainment)


def play(game: Game, oracle: Hindsight, name: str) -> Outcome:
    """A policy's outcome."""
    trace, start = traces.TRACES[game.trace](), oracle.outcome.replicas[0][1]
    setting = Setting(cold_start=game.cold_start, most=MOST, start=start)
    if name in WITHOUT_FORESIGHT:
        plan = scalers.oracle(trace, oracle.spread, 0.0, MOST)
        return _run(game, trace, replace(setting, plan=plan, patience=WITHOUT_FORESIGHT[name]))
    if name == CONSTANT:
        return _constant(game, trace, setting, max(count for _, count in oracle.outcome.replicas))
    each = next(each for each in CONTENDERS if each.name == name)
    start = max(start, each.least)
    setting = replace(setting, k=each.k, start=start, least=each.least, patience=each.patience, scaler=each.scaler())
    return _run(game, trace, setting)


def _constant(game: Game, trace: Trace, setting: Setting, peak: int) -> Outcome:
    """The fewest replicas that keep the objectives all the time; looked for from the oracle's most."""

    def run(count: int) -> Outcome:
        return _run(game, trace, replace(setting, start=count, plan=lambda now: count))

    count, found = peak, run(peak)
    while found.score.attainment < ATTAINMENT and count < MOST:
        count, found = count + 1, run(count + 1)
    while count <= peak and count > 1 and (fewer := run(count - 1)).score.attainment >= ATTAINMENT:
        count, found = count - 1, fewer
    return found


def _run(game: Game, trace: Trace, setting: Setting) -> Outcome:
    course: Course = Service(trace, setting, game.seed).run(traces.requests(trace, game.seed))
    score = Score(course.attainment(TTFT, ITL), course.hours, course.changes_an_hour)
    return Outcome(score, course.replicas)


def row(result: Result, oracle: Result) -> list[str]:
    """A line of the table."""
    return [
        result.name,
        f"{100 * result.attainment:.2f}",
        f"{100 * result.worst:.2f}",
        f"{result.hours:.1f}",
        f"{result.of(oracle):.2f}",
        f"{result.changes:.1f}",
    ]


HEADER = ("policy", "within objectives, %", "worst seed, %", "replica hours", "of the oracle's", "changes an hour")


def verdict(results: Sequence[Result], steady: bool = True) -> list[str]:
    """Which goals our policy misses, in words; `steady`: few changes are one of them."""
    by_name = {result.name: result for result in results}
    ours, oracle = by_name[OURS], by_name[ORACLE]
    missed = []
    if oracle.attainment >= ATTAINMENT > ours.attainment:
        missed.append(
            f"{100 * ours.attainment:.1f}% of the requests within the objectives instead of 99%"
            f" (without foresight: {100 * by_name[PRESENT].attainment:.1f}%)"
        )
    if ours.of(oracle) > HOURS:
        missed.append(f"{ours.of(oracle):.2f} of the oracle's hours instead of {HOURS:.2f}")
    if steady and ours.changes > CHANGES:
        missed.append(f"{ours.changes:.1f} changes an hour instead of {CHANGES:g}")
    missed += [f"{result.name} is better" for result in results if result.simple and result.beats(ours)]
    return missed
