"""The comparison that proves the watches alive, and which watch it finds dead."""

import itertools
from collections.abc import Callable
from typing import Any, cast

import pytest

from support.metadata import OWNED, meta
from tandem import names
from tandem.cluster.kinds import DISRUPTION_BUDGET, POD, SERVICES_KIND, Kind
from tandem.errors import Forbidden, Refused, Transient
from tandem.process.health import Health
from tandem.process.reconcile import Key
from tandem.process.resync import (
    FIRST_RESTART_SECONDS,
    LAST_RESTART_SECONDS,
    OVERDUE_SECONDS,
    QUIET_SECONDS,
    Restarts,
    Resync,
    listable,
)
from tandem.process.watches import Sighting

KEY = Key("ns", "svc")


class Clock:
    now = 10_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("tandem.process.resync.time.monotonic", made)
    return made


class FakePicture:
    """A watch that told `seen` long ago, and whose first list has ended."""

    def __init__(self, kind: Kind = POD, namespace: str | None = None) -> None:
        self.kind, self.namespace = kind, namespace
        self.seen: dict[str, Sighting] = {}
        self.lists, self.follows, self.heard_at = False, True, 0.0

    async def restart(self) -> None:
        """Not called here."""


class Source(FakePicture):
    """kopf, which watches the services of `scopes`."""

    def __init__(self, *scopes: str | None) -> None:
        super().__init__(SERVICES_KIND)
        self.scopes = scopes or (None,)
        self.alive = self.watching = True


class FakeApi:
    """Lists `items` as pods and `services`, nothing of other kinds."""

    def __init__(self, *items: dict[str, Any]) -> None:
        self.items, self.services = list(items), list[dict[str, Any]]()
        self.down = False
        self.forbidden: set[object] = set()
        self.meanwhile: Callable[[], None] = lambda: None

    async def list_at(
        self, kind: Kind, namespace: str | None, selector: str, take: Callable[[dict[str, Any]], Any], accept: str
    ) -> tuple[list[Any], str]:
        await self.exists(kind, namespace)
        if kind is POD:
            self.meanwhile()
        found = {POD: self.items, SERVICES_KIND: self.services}.get(kind, [])
        return [take({"metadata": item}) for item in found], "1"

    async def exists(self, kind: Kind, namespace: str | None) -> None:
        if self.down:
            raise Transient("away")
        if namespace in self.forbidden:
            raise Refused(403, f"cannot list {kind.plural} in {namespace}")
        if kind in self.forbidden:
            raise Forbidden("tandem", "list", kind.plural, kind.group_version[0], None)


class Compared:
    """A comparison and its parts."""

    def __init__(self, *items: dict[str, Any]) -> None:
        self.api, self.source, self.pods = FakeApi(*items), Source(), FakePicture()
        self.budgets = FakePicture(DISRUPTION_BUDGET)
        self.resync = Resync(
            self.api,  # type: ignore[arg-type]  # fakes of the parts that are used
            self.source,  # type: ignore[arg-type]
            [self.budgets, self.pods],
            [None],
        )

    async def __call__(self) -> tuple[set[Key], list[str]]:
        """Services with missed changes, and the kinds whose watches are dead."""
        found = await self.resync.compare()
        return found.keys, [picture.kind.kind for picture in found.dead]


async def test_reported_changes_are_not_missed() -> None:
    compared = Compared(meta("p", "7", **OWNED))
    compared.pods.seen = {"uid-p": Sighting("7", KEY, "whatever")}
    assert await compared() == (set(), [])


async def test_a_missed_change_is_reconciled_and_twice_missed_is_a_dead_watch() -> None:
    compared = Compared(meta("p", "7", **OWNED))
    assert await compared() == ({KEY}, [])
    assert await compared() == ({KEY}, ["Pod"]), "and no other"
    compared.pods.seen = {"uid-p": Sighting("7", KEY)}
    assert await compared() == (set(), [])


async def test_a_missed_change_of_the_label_concerns_both_services() -> None:
    compared = Compared(meta("p", "8", **{names.LABEL_SERVICE: "other"}))
    compared.pods.seen = {"uid-p": Sighting("7", KEY)}
    assert await compared() == ({KEY, Key("ns", "other")}, [])


async def test_a_missed_deletion_is_reconciled_and_twice_missed_is_a_dead_watch() -> None:
    """kopf lists anew where its resourceVersion is too old, and says nothing of what went meanwhile."""
    compared = Compared(meta("p", "7", **OWNED))
    compared.pods.seen = {"uid-p": Sighting("7", KEY)}
    compared.api.items = []
    assert await compared() == ({KEY}, [])
    assert await compared() == ({KEY}, ["Pod"]), "or it would be held for ever"
    compared.pods.seen = {}
    assert await compared() == (set(), [])


async def test_what_is_missed_while_the_first_list_goes_on_shows_no_dead_watch() -> None:
    compared = Compared(meta("p", "7", **OWNED))
    compared.pods.lists, compared.pods.follows = True, False
    for _ in range(5):
        assert await compared() == (set(), []), "nor anything that this list does not tell"
    compared.pods.lists = False
    assert await compared() == ({KEY}, []), "its watch fails"
    compared.pods.follows = True
    assert await compared() == ({KEY}, ["Pod"])


async def test_what_is_missed_while_others_of_its_kind_come_may_be_on_its_way(clock: Clock) -> None:
    compared = Compared(meta("p", "7", **OWNED))
    began = clock.now
    while clock.now - began < OVERDUE_SECONDS:
        compared.pods.heard_at = clock.now - QUIET_SECONDS + 1
        assert await compared() == ({KEY}, []), f"after {clock.now - began} s"
        clock.now += 50
    compared.pods.heard_at = clock.now
    assert await compared() == ({KEY}, ["Pod"]), "for so long it is lost"


async def test_what_was_missed_is_dead_once_its_kind_is_quiet(clock: Clock) -> None:
    compared = Compared(meta("p", "7", **OWNED))
    compared.pods.heard_at = clock.now
    await compared()
    assert await compared() == ({KEY}, [])
    clock.now += QUIET_SECONDS
    assert await compared() == ({KEY}, ["Pod"])


async def test_what_is_made_or_told_while_the_comparison_lists_is_not_gone() -> None:
    compared = Compared()
    compared.pods.seen = {"uid-p": Sighting("7", KEY)}

    def meanwhile() -> None:
        compared.pods.seen.pop("uid-p", None)
        compared.pods.seen["uid-new"] = Sighting("9", KEY)

    compared.api.meanwhile = meanwhile
    assert await compared() == (set(), [])


async def test_what_the_watch_reports_while_the_comparison_lists_is_newer_than_the_list() -> None:
    """A list of thousands takes seconds, in which a busy service changes."""
    compared = Compared(meta("p", "7", **OWNED))
    compared.pods.seen = {"uid-p": Sighting("7", KEY)}
    compared.api.meanwhile = lambda: compared.pods.seen.update({"uid-p": Sighting("8", KEY)})
    assert await compared() == (set(), [])


async def test_a_kind_that_may_not_be_listed_is_not_gone_and_leaves_the_others_compared() -> None:
    compared = Compared(meta("p", "7", **OWNED))
    compared.source.seen = {"uid-svc": Sighting("1", Key("ns", "other"))}
    compared.api.services = [meta("other")]
    compared.budgets.seen = {"uid-b": Sighting("7", KEY)}
    compared.source.seen = {"uid-other": Sighting("1", Key("ns", "other"))}
    assert await compared() == ({KEY}, [])
    compared.api.forbidden = {DISRUPTION_BUDGET}
    compared.budgets.seen = {"uid-b": Sighting("7", KEY)}
    keys, dead = await compared()
    assert (keys, dead) == ({KEY, Key("ns", "other")}, ["Pod"]), "all services tell of the right that is missing"
    assert "tandem may not list poddisruptionbudgets.policy in all namespaces" in compared.resync.forbidden
    assert compared.resync.problem == "", "it works on"
    compared.pods.seen = {"uid-p": Sighting("7", KEY)}
    assert await compared() == (set(), []), "once"
    compared.api.forbidden, compared.budgets.seen = set(), {}
    assert await compared() == ({Key("ns", "other")}, []), "and that it is back"
    assert compared.resync.forbidden == ""


async def test_an_operator_that_lacks_a_right_is_ready_and_names_it() -> None:
    compared = Compared()
    compared.api.forbidden = {DISRUPTION_BUDGET}
    await compared()

    class Acquired:
        acquired = type("Event", (), {"is_set": staticmethod(lambda: True)})

    class Api:
        answered_at = 1e12

    class Ours:
        problem = ""

    api, leadership, claim = cast(Any, (Api(), Acquired(), Ours()))
    health = Health(api, leadership, compared.source, compared.resync, 60, 0.0, claim)  # type: ignore[arg-type]
    assert health.not_ready() == ""
    assert health.ready().startswith("ok: leader, but tandem may not list poddisruptionbudgets.policy")


# (kopf runs, it watches services) at each comparison, whether that shows a dead watch, why
WATCHING = [
    ([(True, True), (True, True)], [False, False], "all is watched"),
    (
        [(True, False), (True, False)],
        [False, True],
        "kopf looked for a kind before it was there",
    ),
    ([(True, False), (True, True), (True, False)], [False, False, False], "kopf was about to watch it"),
    ([(True, False), (False, False), (True, False)], [False, False, False], "the watches are being started again"),
]


@pytest.mark.parametrize(("states", "dead", "why"), WATCHING)
async def test_services_that_are_listed_and_not_watched_twice_in_a_row_are_a_dead_watch(
    states: list[tuple[bool, bool]], dead: list[bool], why: str
) -> None:
    compared, found = Compared(), []
    for compared.source.alive, compared.source.watching in states:
        found.append(bool((await compared())[1]))
    assert found == dead, why


async def test_an_object_that_changes_all_the_time_is_no_dead_watch() -> None:
    compared = Compared(meta("p", "7", **OWNED))
    await compared()
    compared.api.items = [meta("p", "8", **OWNED)]
    assert await compared() == ({KEY}, [])


async def test_an_api_server_that_is_away_is_a_problem_and_no_dead_watch() -> None:
    compared = Compared()
    compared.api.down = True
    assert await compared() == (set(), [])
    assert "away" in compared.resync.problem
    assert not compared.resync.compared_at
    compared.api.down = False
    await compared()
    assert compared.resync.problem == ""
    assert compared.resync.compared_at


async def test_a_namespace_that_is_gone_leaves_the_others_served(caplog: pytest.LogCaptureFixture) -> None:
    api, source = FakeApi(), Source("there")
    api.services, api.forbidden = [meta("svc")], {"gone"}
    assert await listable(api, ["gone", "there"]) == ["there"]  # type: ignore[arg-type]
    pictures = [FakePicture(POD, "gone"), FakePicture(POD, "there")]
    compared = Resync(api, source, pictures, ["gone", "there"])  # type: ignore[arg-type]
    source.seen = {"uid-away": Sighting("7", Key("gone", "away"))}
    assert (await compared.compare()).keys == {KEY, Key("gone", "away")}, "rights went; what is missed is found"
    assert "in gone" in compared.problem
    caplog.clear()
    await compared.compare()
    assert caplog.text == "", "it is said once"
    source.seen |= {"uid-svc": Sighting("1", KEY)}
    api.forbidden = set()
    api.services = [meta("svc")]
    assert (await compared.compare()).dead == [source], "it is back, and nobody watches it"
    assert compared.problem == ""


async def test_where_nothing_can_be_listed_nothing_is_watched() -> None:
    api = FakeApi()
    api.forbidden = {"a", "b"}
    with pytest.raises(Refused, match="in a"):
        await listable(api, ["a", "b"])  # type: ignore[arg-type]
    compared = Resync(api, Source("a", "b"), [], ["a", "b"])  # type: ignore[arg-type]
    assert await compared.compare() == (set(), [])
    assert not compared.compared_at


def test_a_watch_that_a_new_list_does_not_mend_is_started_again_ever_more_rarely() -> None:
    restarts, started, now = Restarts(), list[float](), 0.0
    while now < 2 * 3600:
        if restarts.allowed("pods", now):
            started.append(now)
        now += 5
    gaps = [later - before for before, later in itertools.pairwise(started)]
    assert gaps[0] <= 1.25 * FIRST_RESTART_SECONDS + 5
    assert all(gap <= 1.25 * LAST_RESTART_SECONDS + 5 for gap in gaps)
    assert gaps[-1] >= 0.75 * LAST_RESTART_SECONDS
    assert len(started) <= 16, "not every 10 s"
    assert restarts.allowed("jobs", now), "each by itself"
    assert restarts.allowed("pods", now + 3 * LAST_RESTART_SECONDS)
    assert restarts.allowed("pods", now + 3 * LAST_RESTART_SECONDS + 1.5 * FIRST_RESTART_SECONDS), "it was well"
