"""Which revisions are rendered for a decision, and that all who look at them share them unchanged."""

import copy
from collections import Counter
from collections.abc import Callable

import pytest

from support.services import QUICKSTART, parse
from support.world import BAD, GOOD, NOW, World, bring_up
from tandem.api.types import ServiceStatus, SpeculativeInferenceService
from tandem.conditions.ready import status
from tandem.conditions.situation import Situation
from tandem.render import Record, Revision, render
from tandem.rollout import choose, known
from tandem.rollout.decide import Decision, decide
from tandem.rollout.known import known_revisions
from tandem.rollout.plan import plan
from tandem.settings import Settings

EDITED = {"target__model__uri": "file:///other", "rollout": {"strategy": "Replace"}}


def shown(service: SpeculativeInferenceService, **fields: str) -> SpeculativeInferenceService:
    """The service with that status."""
    return service.model_copy(update={"status": ServiceStatus.model_validate(fields)})


def failed(world: World, service: SpeculativeInferenceService) -> str:
    """The revision of a spec whose check fails."""
    world.step(service)
    world.finish_preflight(BAD)
    decision, _ = world.step(service)
    assert decision.revision
    return decision.revision.digest


def test_those_of_the_spec_and_those_that_serve_or_served_are_known(settings: Settings) -> None:
    world, service = World(settings), parse(QUICKSTART)
    first = bring_up(world, service).serves
    second, third = (failed(world, parse(QUICKSTART, target__model__uri=f"file:///{n}")) for n in range(2))
    assert [stored.digest for stored in world.observed().revisions] == [third, second, first]
    edited = parse(QUICKSTART, target__model__uri="file:///0")

    found = known_revisions(edited, world.observed())
    assert list(found.all) == [second, first], "the newest first; the third is neither wanted nor has it served"
    assert list(found.of_spec) == [second]

    served = known_revisions(shown(edited, fallbackRevision=third), world.observed())
    assert list(served.all) == [third, second, first], "one that served may serve again"


def reconciled(world: World, service: SpeculativeInferenceService) -> Decision:
    """What a reconcile computes."""
    observed = world.observed()
    decision = decide(service, world.settings, observed)
    plan(service, decision, observed, world.settings)
    status(Situation(service, decision, observed, NOW))
    return decision


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Digests of what was rendered since the last call."""
    seen = list[str]()

    def noted(record: Record) -> Revision:
        revision = render(record)
        seen.append(revision.digest)
        return revision

    def taken() -> list[str]:
        found = sorted(seen)
        seen.clear()
        return found

    for module in (known, choose):
        monkeypatch.setattr(module, "render", noted)
    return taken


def test_a_reconcile_renders_each_revision_once(settings: Settings, rendered: Callable[[], list[str]]) -> None:
    world, service = World(settings), parse(QUICKSTART)
    first = bring_up(world, service).serves
    rendered()
    reconciled(world, service)
    assert rendered() == [first]

    edited = shown(parse(QUICKSTART, **EDITED), currentRevision=first)
    world.step(edited)
    rendered()
    decision = reconciled(world, edited)
    assert decision.revision
    second = decision.revision.digest
    # One that has not passed may be healed by today's settings: what they make of the spec is looked at, too.
    assert Counter(rendered()) == {first: 1, second: 2}

    world.finish_preflight(GOOD)
    world.step(edited)
    rendered()
    gone_back = shown(edited, currentRevision=first, failedRevision=second)
    assert reconciled(world, gone_back).serves == first
    assert rendered() == sorted([first, second])


def test_nobody_changes_what_all_share(settings: Settings) -> None:
    world, service = World(settings), parse(QUICKSTART)
    first = bring_up(world, service)
    edited = shown(parse(QUICKSTART, **EDITED), currentRevision=first.serves)
    world.step(edited)
    revisions = list(known_revisions(edited, world.observed()).all.values())
    before = copy.deepcopy(revisions)
    assert len(revisions) == 2
    world.finish_preflight(GOOD)
    gone_back = shown(edited, currentRevision=first.serves, failedRevision=revisions[0].digest)
    for each in (edited, edited, service, gone_back):
        reconciled(world, each)
        world.step(each)
    assert revisions == before
    assert known_revisions(edited, world.observed()).all[first.serves] is revisions[1], "kept, not rendered anew"
