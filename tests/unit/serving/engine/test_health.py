"""What an engine's calls say of it: a row a story, with the verdict and why."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest

from tandem_serving.engine import failure
from tandem_serving.engine.health import (
    AGAIN,
    CANARIES,
    CANARY,
    NEW,
    SILENCE,
    EngineHealth,
    EngineVerdict,
    one_line,
)

KIND = "decoding"
Event = tuple[float, str, str]
"""When, what, of which call; `ok` and `bad` are a call and its end at once."""


class Story(NamedTuple):
    name: str
    events: Sequence[Event]
    reason: str
    why: str


def play(events: Sequence[Event], until: float, health: EngineHealth | None = None) -> Iterator[EngineVerdict | None]:
    """Look every 0.1 s, with the events between; what is known at each look."""
    health = health or EngineHealth()
    left = sorted(events, key=lambda event: event[0])
    for step in range(int(until * 10) + 1):
        now = step / 10
        while left and left[0][0] <= now:
            at, what, call = left.pop(0)
            tell(health, what, call, at)
        yield health.look(now)


def tell(health: EngineHealth, what: str, call: str, at: float) -> None:
    kind = CANARY if call == CANARY else KIND
    work = 1 + 8192 / 64 if call == "long prompt" else 1
    if what in ("starts", "ok", "bad"):
        health.started(call, work, kind, at)
    if what == "comes":
        health.answered(call, at)
        return
    if what in ("ok", "answers"):
        health.answered(call, at + (0.05 if what == "ok" else 0))
    if what in ("bad", "fails"):
        health.failed(call, f"error of {call}", at)
    if what != "starts":
        health.ended(call)


WELL: list[Event] = [(0.0, "ok", "first"), (0.1, "ok", CANARY)]
DEAD: list[Event] = [(1 + AGAIN * i, "bad", CANARY) for i in range(CANARIES)]
POISONED: list[Event] = [(1 + i / 10, "bad", "poisoned") for i in range(300)]
LONG: list[Event] = [*((0.5 + i / 10, "ok", "other") for i in range(5)), (1.1, "starts", "long prompt")]
STORIES = [
    Story("canaries fail, nothing is answered", [*WELL, *DEAD], "EngineFailing", "dead"),
    Story(
        "requests fail, canaries work",
        [*WELL, *POISONED, *((1.05 + i, "ok", CANARY) for i in range(30))],
        "",
        "one row that always fails is the row's own fault",
    ),
    Story(
        "a request is answered between the canaries that fail",
        [*WELL, *DEAD[:-1], (2.2, "ok", "other"), *((event[0] + 1.5, *event[1:]) for event in DEAD[:-1])],
        "",
        "what is answered was computed",
    ),
    Story(
        "64 rows fail in one moment, then all is well",
        [*WELL, *((1.0, "bad", f"row {i}") for i in range(64)), (1.2, "ok", CANARY)],
        "",
        "a step that failed is few failures, not many",
    ),
    Story("it fails from the start", DEAD, "", "the startup probe judges until it has answered once"),
    Story(
        "canaries never worked",
        [(0.0, "ok", "first"), *DEAD, *((5.0 + i, "bad", CANARY) for i in range(30)), (36.0, "ok", "other")],
        "",
        "this engine may not take them",
    ),
    Story(
        "it fails before a canary ever worked",
        [(0.0, "ok", "first"), (0.9, "bad", "a request"), *DEAD],
        "EngineFailing",
        "requests fail, too",
    ),
    Story(
        "canaries never worked, and a request fails",
        [(0.0, "ok", "first"), *DEAD, *DEAD, (4.0, "bad", "a request"), (4.1, "bad", CANARY), (5.0, "ok", "other")],
        "",
        "canaries are counted from then on",
    ),
    Story("nothing is asked", WELL, "", "silence without a call is none"),
    Story("a call hangs", [*WELL, (1.0, "starts", "a")], "EngineHung", f"no answer for {SILENCE} s"),
    Story("the canary hangs", [*WELL, (4.0, "starts", CANARY)], "EngineHung", "idle"),
    Story(
        "calls come all the time, none is answered",
        [*WELL, *((1.0 + i / 4, "starts", f"call {i}") for i in range(200))],
        "EngineHung",
        "later calls do not lengthen the wait",
    ),
    Story(
        "an answer was lost, others come",
        [*WELL, (1.0, "starts", "lost"), *((2.0 + 3 * i, "ok", CANARY) for i in range(20))],
        "",
        "the engine works",
    ),
    Story(
        "calls fail while others wait",
        [*WELL, (1.0, "starts", "a"), *((2.0 + 3 * i, "bad", "b") for i in range(20))],
        "",
        "an engine that refuses is not hung",
    ),
    Story(
        "a prompt of 8192 tokens takes 40 s where a step takes 0.05 s",
        [*WELL, *LONG, (41.0, "answers", "long prompt"), (41.5, "ok", CANARY)],
        "",
        "it has more to do",
    ),
    Story(
        "the first call of its kind takes 50 s",
        [(0.0, "ok", CANARY), (1.0, "starts", "a"), (51.0, "answers", "a")],
        "",
        "the engine compiles something",
    ),
    Story(
        "the canary's first call hangs",
        [(0.0, "ok", "first"), (1.0, "starts", CANARY), (NEW, "ok", "late")],
        "EngineHung",
        "it is as plain as what was answered: it may not take longer",
    ),
    Story("so it may not for ever", [(0.0, "ok", CANARY), (1.0, "starts", "a")], "EngineHung", f"{NEW} s are enough"),
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_the_verdict(story: Story) -> None:
    last = max(at for at, _, _ in story.events)
    verdicts = list(play(story.events, max(last + 1, 70 if story.reason else 0)))
    assert (verdicts[-1].reason if verdicts[-1] else "") == story.reason, story.why


def parts(of: str, first: float, count: int, every: float = 1.0) -> list[Event]:
    """A call, and its parts `every` so many seconds."""
    return [(first, "starts", of), *((first + every * i, "comes", of) for i in range(1, 1 + count))]


LOSSES: list[tuple[str, list[Event], float | None, str]] = [
    # what happens, the events, when a call is lost, why
    ("others are answered", [(1.0, "starts", "a"), *((2.0 + 3 * i, "ok", "b") for i in range(40))], 61.0, "in turn"),
    ("only one is asked for", [(1.0, "starts", "a")], None, "the engine is silent: it may be hung"),
    ("a long stream goes on", [*parts("b", 0.5, 120), (1.0, "starts", "a")], None, "ours may wait for its room"),
    ("ours goes on, too", [*parts("b", 0.5, 200), *parts("a", 1.0, 200)], None, "well"),
    ("our parts end", [*parts("b", 0.5, 120), *parts("a", 1.0, 10)], 71.0, "it has its place, and others go on"),
    ("a part takes 4 s", [*parts("b", 0.5, 30, 4.0), *parts("a", 1.0, 2, 4.0)], 89.0, "20 times that"),
]


@pytest.mark.parametrize(("what", "events", "at", "why"), LOSSES, ids=[what for what, *_ in LOSSES])
def test_a_call_is_lost_when_later_ones_were_answered(
    what: str, events: list[Event], at: float | None, why: str
) -> None:
    """Looked at until 120 s."""
    health = EngineHealth()
    looks = enumerate(play([*WELL, *events], 120, health))
    lost = next((step / 10 for step, _ in looks if health.lost(step / 10) == ["a"]), None)
    assert lost == (at and pytest.approx(at, abs=0.2)), why


def found(events: Sequence[Event]) -> tuple[float, EngineVerdict]:
    """When it was first known, and what."""
    for step, verdict in enumerate(play(events, 200)):
        if verdict:
            return step / 10, verdict
    raise AssertionError("it was not found")


def test_failing_is_found_in_seconds_and_says_the_canary_s_own_error() -> None:
    at, verdict = found([*WELL, (0.9, "bad", "a request"), *DEAD])
    assert at <= 1 + AGAIN * CANARIES
    assert verdict == EngineVerdict("EngineFailing", f"error of {CANARY}"), "no client's text is in it"


def test_hung_is_found_after_the_silence() -> None:
    at, verdict = found([*WELL, (1.0, "starts", "a"), (2.0, "starts", "b")])
    assert SILENCE + 0.9 <= at <= SILENCE + 1.5
    assert verdict == EngineVerdict("EngineHung", f"no call was answered for {SILENCE:.0f} s, 2 wait")


def test_a_slow_engine_is_given_more_time() -> None:
    """Steps of 2 s: 20 times that; not 10 s."""
    slow = [event for i in range(5) for event in ((0.2 + 3 * i, "starts", "s"), (2.2 + 3 * i, "answers", "s"))]
    at, _ = found([*WELL, *slow, (20.0, "starts", "a")])
    assert 20 + 35 < at < 20 + 45


def test_a_long_call_that_hangs_is_found_all_the_same() -> None:
    """129 steps of 2 s, by what calls took: not 20 times that, which were 86 minutes."""
    slow = [event for i in range(5) for event in ((0.2 + 3 * i, "starts", "s"), (2.2 + 3 * i, "answers", "s"))]
    at = next(
        step / 10
        for step, verdict in enumerate(play([*WELL, *slow, (20.0, "starts", "long prompt")], 1000))
        if verdict
    )
    assert 20 + 129 * 2 * 2 < at < 20 + 129 * 2 * 3 + NEW + 1


def test_what_waited_in_the_engine_s_own_queue_is_not_slow() -> None:
    """A call that took 100 s while others were answered every 0.1 s does not make a hang take 2000 s to be found."""
    busy = [(1 + i / 10, "ok", f"call {i}") for i in range(1000)]
    at, _ = found([*WELL, (1.0, "starts", "queued"), *busy, (101.0, "answers", "queued"), (102.0, "starts", "a")])
    assert at < 102 + SILENCE + 1


def test_a_process_that_stood_still_heard_nothing() -> None:
    health = EngineHealth()
    for event in WELL:
        tell(health, event[1], event[2], event[0])
    health.look(0.9)
    health.started("a", 1, KIND, 1.0)
    assert health.look(61.0) is None, "60 s between two looks"
    health.answered("a", 61.1)
    assert all(health.look(61.1 + i / 10) is None for i in range(300))


def test_signs_from_elsewhere_are_asked_for_in_time_and_believed() -> None:
    """Others may keep the engine at work; see iterations.py."""
    health = EngineHealth()
    for event in WELL:
        tell(health, event[1], event[2], event[0])
    health.started("a", 1, KIND, 1.0)
    looks = [1 + i / 10 for i in range(300)]
    for now in looks:
        if health.suspicious and now < 20:
            health.sign_of_life(now)
        verdict = health.look(now)
        assert verdict is None or now > 20 + SILENCE / 2
    assert verdict is not None, "once they stop"


def due(health: EngineHealth, start: float, seconds: float) -> list[float]:
    """When the canary is due, which is answered as soon as it is sent."""
    times = []
    for step in range(int(seconds * 10)):
        now = start + step / 10
        if health.canary_due(now):
            times.append(now)
            tell(health, "ok", CANARY, now)
    return times


def test_the_canary_asks_when_nobody_does() -> None:
    health = EngineHealth()
    assert due(health, 0, 20) == [], "nothing was answered yet: it may be loading"
    tell(health, "ok", "first", 20.0)
    assert due(health, 20.1, 1) == [20.1], "whether this engine takes it"
    assert due(health, 21.1, 10) == pytest.approx([23.2, 26.3, 29.4])
    for step in range(100):
        tell(health, "ok", "request", 32 + step / 10)
        assert not health.canary_due(32.1 + step / 10), "requests tell"


def test_the_canary_is_never_beside_itself() -> None:
    health = EngineHealth()
    for event in WELL:
        tell(health, event[1], event[2], event[0])
    health.started(CANARY, 1, CANARY, 5.0)
    assert not any(health.canary_due(5 + step / 10) for step in range(1000))


def test_after_a_failure_the_canary_asks_at_once_and_often() -> None:
    health = EngineHealth()
    for event in WELL:
        tell(health, event[1], event[2], event[0])
    tell(health, "bad", "request", 1.0)
    assert health.canary_due(1.0)
    tell(health, "bad", CANARY, 1.0)
    assert not health.canary_due(1.0 + AGAIN / 2)
    assert health.canary_due(1.0 + AGAIN)


def test_the_canary_can_be_switched_off() -> None:
    health = EngineHealth(idle=0)
    tell(health, "ok", "first", 0.0)
    tell(health, "bad", "request", 1.0)
    assert not any(health.canary_due(step / 10) for step in range(1000))


def test_an_engine_that_says_that_it_has_stopped_has() -> None:
    health = EngineHealth()
    health.stopped("the engine has stopped")
    assert health.look(0.0) == EngineVerdict("EngineFailing", "the engine has stopped")
    health = EngineHealth()
    tell(health, "bad", "request", 1.0)
    health.stopped("the engine has stopped")
    assert health.look(1.1) == EngineVerdict("EngineFailing", "error of request"), "its own last error says more"


def test_a_verdict_stays() -> None:
    verdicts = list(play([*WELL, *DEAD, (5.0, "ok", "late")], 10))
    assert verdicts[-1] == EngineVerdict("EngineFailing", f"error of {CANARY}")


def test_messages_are_one_line_and_short() -> None:
    assert one_line("CUDA runtime error\n  in  a\tcall\n") == "CUDA runtime error in a call"
    assert len(one_line("x" * 5000)) == 500


PROMISED = {"EngineHung": 12.0, "EngineFailing": 5.0}
"""Seconds from an engine's end to the verdict, where nobody asks: docs/reference/pods.md."""
UNREADY = 15.0
"""Seconds from there to a pod that gets no requests."""


def verdict_after(breaks: float, then: str, every: float) -> tuple[float, str]:
    """How long after it `breaks` an engine's verdict comes, by looks 0.1 s apart, and which; until then it answers at
    once. A client calls `every` so many seconds; 0: nobody does."""
    health, calls = EngineHealth(), 0
    tell(health, "ok", "first", 0.0)
    for step in range(1, 1000):
        now = step / 10
        how = "ok" if now < breaks else then
        if every and now >= every * (calls + 1):
            calls += 1
            tell(health, how, f"call {calls}", now)
        if health.canary_due(now):
            tell(health, how, CANARY, now)
        if verdict := health.look(now):
            return now - breaks, verdict.reason
    raise AssertionError("it was not found")


@pytest.mark.parametrize("every", [0.0, 0.3, 2.0], ids=["idle", "traffic", "now and then"])
@pytest.mark.parametrize(("then", "reason"), [("starts", "EngineHung"), ("bad", "EngineFailing")])
def test_a_broken_engine_is_found_in_time_whenever_it_breaks(then: str, reason: str, every: float) -> None:
    """At each moment of a canary's period, and a container ends within the rest of the 15 s: the entry point's look
    and clients' second, then a kubelet that looks every second."""
    verdicts = [verdict_after(10 + tenths / 10, then, every) for tenths in range(31)]
    assert {verdict for _, verdict in verdicts} == {reason}
    assert max(seconds for seconds, _ in verdicts) <= PROMISED[reason]
    assert PROMISED[reason] + failure.LOOK_SECONDS + failure.GRACE_SECONDS + 1 < UNREADY
