"""Events of services to keys, and what one reconcile that fails leaves of the others."""

import pytest

from support.metadata import meta
from tandem.errors import Refused
from tandem.process.events import LIST_SILENT_SECONDS, Backoffs, EventSource, is_new, note
from tandem.process.operator import Operator
from tandem.process.reconcile import Key
from tandem.process.watches import Sighting
from tandem.settings import LeaseSettings, Settings


def test_what_was_seen_is_forgotten_with_the_object() -> None:
    seen: dict[str, Sighting] = {}
    assert note(seen, {"type": None, "object": {"metadata": meta("svc", "3")}}) == Key("ns", "svc")
    assert seen == {"uid-svc": Sighting("3", Key("ns", "svc"))}
    assert note(seen, {"type": "DELETED", "object": {"metadata": meta("svc", "4")}}) == Key("ns", "svc")
    assert seen == {}


def test_backoffs_never_end_and_can_be_used_again() -> None:
    backoffs = Backoffs()
    for _ in range(2):
        delays = [delay for _, delay in zip(range(1000), backoffs, strict=False)]
        assert len(delays) == 1000
        assert delays[0] <= 0.5
        assert max(delays) <= 10


async def test_kopfs_list_has_ended_when_a_change_came_or_nothing_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = 1000.0
    monkeypatch.setattr("tandem.process.events.time.monotonic", lambda: clock)
    monkeypatch.setattr(EventSource, "alive", True)
    monkeypatch.setattr(EventSource, "watching", True)
    source = EventSource(lambda *_: None)
    source.heard_at = clock
    assert not source.follows, "it lists"
    clock += LIST_SILENT_SECONDS
    assert source.follows, "silent: of no services there is nothing to come"
    source.heard_at = clock
    assert not source.follows, "it listed on"
    source._streams = True
    assert source.follows, "a change came"


class ForbiddingApi:
    """Refuses every request."""

    async def get(self, *_: object) -> None:
        raise Refused(403, "forbidden")


async def test_a_service_that_may_not_be_read_is_no_defect(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """Its namespace was deleted, and the rights in it with it."""
    alone = settings.model_copy(update={"lease": LeaseSettings(enabled=False)})
    operator = Operator(ForbiddingApi(), alone)  # type: ignore[arg-type]  # a fake of the part that is used
    operator._leadership.acquired.set()
    operator._sole_operator.ours.set()
    await operator._handle(Key("gone", "svc"))
    assert [(r.levelname, r.exc_info) for r in caplog.records if r.name == "tandem.process.operator"] == [
        ("WARNING", None)
    ]
    assert "gone/svc again in" in caplog.text


@pytest.mark.parametrize(
    ("type_", "generation", "status", "new"),
    [
        ("ADDED", 1, {}, True),  # the API server's default was not set yet
        ("ADDED", 1, {"observedGeneration": -1}, True),  # just applied
        (None, 1, {"observedGeneration": -1}, True),  # applied while the operator was down: in kopf's first list
        (None, 3, {"observedGeneration": 3}, False),  # one of ten thousand that a restarted operator lists
        ("MODIFIED", 4, {"observedGeneration": 3}, True),  # its spec was changed
        ("MODIFIED", 4, {"observedGeneration": 4}, False),  # the operator's own status
        ("DELETED", 4, {"observedGeneration": 3}, False),  # the garbage collector does the rest
    ],
)
def test_a_service_is_new_until_its_status_speaks_of_its_spec(
    type_: str | None, generation: int, status: dict[str, int], new: bool
) -> None:
    event = {"type": type_, "object": {"metadata": {"generation": generation}, "status": status}}
    assert is_new(event) is new
