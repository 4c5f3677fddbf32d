"""Events to keys, and the comparison that proves the watches alive."""

from typing import Any

import pytest

from tandem import names
from tandem.cluster.kinds import CONFIGMAP, HORIZONTAL_POD_AUTOSCALER, POD, SERVICES_KIND, WATCHED, Kind
from tandem.errors import Refused, Transient
from tandem.handlers import Backoffs, Seen, note, service_key
from tandem.operator import Operator
from tandem.reconcile import Key
from tandem.resync import Resync, listable
from tandem.settings import LeaseSettings, Settings


def meta(name: str, version: str = "1", **labels: str) -> dict[str, Any]:
    return {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": version, "labels": labels}


OWNED = {names.LABEL_SERVICE: "svc"}


@pytest.mark.parametrize(
    ("kind", "metadata", "key", "reason"),
    [
        (SERVICES_KIND, meta("svc"), Key("ns", "svc"), "the service itself"),
        (POD, meta("p", "1", **OWNED), Key("ns", "svc"), "a child names its service by a label"),
        (CONFIGMAP, meta("c"), None, "somebody else's object"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_service_key(kind: Kind, metadata: dict[str, Any], key: Key | None, reason: str) -> None:
    assert service_key(kind, metadata) == key, reason


def test_what_was_seen_is_forgotten_with_the_object() -> None:
    seen: Seen = {}
    assert note(seen, {}, POD, {"type": None, "object": {"metadata": meta("p", "3", **OWNED)}}) == Key("ns", "svc")
    assert seen == {("Pod", "uid-p"): ("3", Key("ns", "svc"))}
    note(seen, {}, POD, {"type": "DELETED", "object": {"metadata": meta("p", "4", **OWNED)}})
    assert seen == {}


def autoscaler(version: str, active: str = "True", value: str = "1", **spec: Any) -> dict[str, Any]:
    conditions = [{"type": "ScalingActive", "status": active, "reason": "r", "lastTransitionTime": version}]
    status = {"conditions": conditions, "currentMetrics": [{"value": value}]}
    return {"metadata": meta("h", version, **OWNED), "spec": {"maxReplicas": 4, **spec}, "status": status}


HPA_EVENTS = [
    ("the first that is heard of it", autoscaler("1"), True),
    ("only its figure changed", autoscaler("2", value="2"), False),
    ("it has no figures any more", autoscaler("3", active="False"), True),
    ("nor now", autoscaler("4", active="False", value="3"), False),
    ("somebody edited it", autoscaler("5", active="False", maxReplicas=9), True),
]


def test_an_autoscaler_that_only_counts_concerns_nobody() -> None:
    seen: Seen = {}
    said: dict[tuple[str, str], str] = {}
    for reason, obj, told in HPA_EVENTS:
        key = note(seen, said, HORIZONTAL_POD_AUTOSCALER, {"type": "MODIFIED", "object": obj})
        assert (key is not None) is told, reason
        assert seen["HorizontalPodAutoscaler", "uid-h"][0] == obj["metadata"]["resourceVersion"], "or it were untold"
    note(seen, said, HORIZONTAL_POD_AUTOSCALER, {"type": "DELETED", "object": autoscaler("6")})
    assert not seen
    assert not said


def test_backoffs_never_end_and_can_be_used_again() -> None:
    backoffs = Backoffs()
    for _ in range(2):
        delays = [delay for _, delay in zip(range(1000), backoffs, strict=False)]
        assert len(delays) == 1000
        assert delays[0] <= 0.5
        assert max(delays) <= 10


class Source:
    """An event source that told `seen`, and watches `scopes`."""

    def __init__(self, *scopes: str | None) -> None:
        self.seen: Seen = {}
        self.scopes = scopes or (None,)
        self.alive = self.watching = True


class FakeApi:
    """Lists `items` as pods, nothing of other kinds."""

    def __init__(self, *items: dict[str, Any]) -> None:
        self.items = list(items)
        self.down = False
        self.forbidden: set[str] = set()

    async def list_metadata(self, kind: Kind, namespace: str | None, *_: object) -> list[dict[str, Any]]:
        if self.down:
            raise Transient("away")
        if namespace in self.forbidden:
            raise Refused(403, f"cannot list {kind.plural} in {namespace}")
        return [{"metadata": item} for item in self.items] if kind is POD else []


def resync(api: FakeApi, source: Source, *scopes: str) -> Resync:
    return Resync(api, source, scopes or [None])  # type: ignore[arg-type]  # a fake of the part that is used


async def test_told_changes_are_no_news() -> None:
    source = Source()
    source.seen = {("Pod", "uid-p"): ("7", Key("ns", "svc"))}
    assert await resync(FakeApi(meta("p", "7", **OWNED)), source).compare() == (set(), False)


async def test_an_untold_change_is_reconciled_and_twice_untold_is_a_dead_watch() -> None:
    api, source = FakeApi(meta("p", "7", **OWNED)), Source()
    compared = resync(api, source)
    assert await compared.compare() == ({Key("ns", "svc")}, False)
    assert await compared.compare() == ({Key("ns", "svc")}, True)
    source.seen = {("Pod", "uid-p"): ("7", Key("ns", "svc"))}
    assert await compared.compare() == (set(), False)


async def test_an_untold_deletion_is_reconciled_and_twice_untold_is_a_dead_watch() -> None:
    """kopf lists anew where its resourceVersion is too old, and says nothing of what went meanwhile."""
    api, source = FakeApi(meta("p", "7", **OWNED)), Source()
    compared = resync(api, source)
    await compared.compare()
    source.seen = {("Pod", "uid-p"): ("7", Key("ns", "svc"))}
    api.items = []
    assert await compared.compare() == ({Key("ns", "svc")}, False)
    assert await compared.compare() == ({Key("ns", "svc")}, True), "or it would be held for ever"
    source.seen = {}
    assert await compared.compare() == (set(), False)


async def test_what_is_made_or_told_while_the_comparison_lists_is_not_gone() -> None:
    api, source = FakeApi(), Source()
    source.seen = {("Pod", "uid-p"): ("7", Key("ns", "svc"))}
    listing = api.list_metadata

    async def meanwhile(kind: Kind, namespace: str | None, *others: object) -> list[dict[str, Any]]:
        source.seen.pop(("Pod", "uid-p"), None)
        source.seen["Pod", "uid-new"] = ("9", Key("ns", "svc"))
        return await listing(kind, namespace, *others)

    api.list_metadata = meanwhile  # type: ignore[method-assign]
    assert await resync(api, source).compare() == (set(), False)


async def test_what_could_not_be_listed_is_not_gone() -> None:
    api, source = FakeApi(), Source("ns", "there")
    source.seen = {("Pod", "uid-p"): ("7", Key("ns", "svc"))}
    api.forbidden = {"ns"}
    assert await resync(api, source, "ns", "there").compare() == (set(), False)


# (kopf runs, it watches all kinds) at each comparison, whether that shows a dead watch, why
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
async def test_a_kind_that_is_listed_and_not_watched_twice_in_a_row_is_a_dead_watch(
    states: list[tuple[bool, bool]], dead: list[bool], why: str
) -> None:
    source = Source()
    compared, found = resync(FakeApi(), source), []
    for source.alive, source.watching in states:
        found.append((await compared.compare())[1])
    assert found == dead, why


async def test_an_object_that_changes_all_the_time_is_no_dead_watch() -> None:
    api, source = FakeApi(meta("p", "7", **OWNED)), Source()
    compared = resync(api, source)
    await compared.compare()
    api.items = [meta("p", "8", **OWNED)]
    assert await compared.compare() == ({Key("ns", "svc")}, False)


async def test_an_api_server_that_is_away_is_a_problem_and_no_dead_watch() -> None:
    api = FakeApi()
    api.down = True
    compared = resync(api, Source())
    assert await compared.compare() == (set(), False)
    assert "away" in compared.problem
    assert not compared.compared_at
    api.down = False
    await compared.compare()
    assert compared.problem == ""
    assert compared.compared_at


async def test_a_namespace_that_is_gone_leaves_the_others_served(caplog: pytest.LogCaptureFixture) -> None:
    api, source = FakeApi(meta("p", "7", **OWNED)), Source("there")
    api.forbidden = {"gone"}
    assert await listable(api, ["gone", "there"]) == ["there"]  # type: ignore[arg-type]
    compared = resync(api, source, "gone", "there")
    assert await compared.compare() == ({Key("ns", "svc")}, False), "what is untold there is found"
    assert "in gone" in compared.problem
    caplog.clear()
    await compared.compare()
    assert caplog.text == "", "it is said once"
    source.seen = {("Pod", "uid-p"): ("7", Key("ns", "svc"))}
    api.forbidden = set()
    assert await compared.compare() == (set(), True), "it is back, and nobody watches it"
    assert compared.problem == ""
    source.scopes = ("gone", "there")
    assert await compared.compare() == (set(), False)


async def test_where_nothing_can_be_listed_nothing_is_watched() -> None:
    api = FakeApi()
    api.forbidden = {"a", "b"}
    with pytest.raises(Refused, match="in a"):
        await listable(api, ["a", "b"])  # type: ignore[arg-type]
    compared = resync(api, Source("a", "b"), "a", "b")
    assert await compared.compare() == (set(), False)
    assert not compared.compared_at


class ForbiddingApi:
    """Refuses every request."""

    async def get(self, *_: object) -> None:
        raise Refused(403, "forbidden")


async def test_a_service_that_may_not_be_read_is_no_defect(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """Its namespace was deleted, and the rights in it with it."""
    alone = settings.model_copy(update={"lease": LeaseSettings(enabled=False)})
    operator = Operator(ForbiddingApi(), alone)  # type: ignore[arg-type]
    operator._leadership.acquired.set()
    await operator._handle(Key("gone", "svc"))
    assert [(r.levelname, r.exc_info) for r in caplog.records if r.name == "tandem.operator"] == [("WARNING", None)]
    assert "gone/svc again in" in caplog.text


def test_everything_that_is_applied_is_watched() -> None:
    assert {kind.kind for kind in WATCHED} >= {"SpeculativeInferenceService", "Deployment", "Pod", "ConfigMap"}
