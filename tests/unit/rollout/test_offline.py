"""All children of a new service, as `tandem render` shows them and the operator applies them."""

import pytest

from support.services import QUICKSTART, parse
from support.world import GOOD, HUB, World, fetched
from tandem import names
from tandem.accept import Refusal
from tandem.api.wire import Object
from tandem.children.desired import Desired
from tandem.rollout.offline import desired_of
from tandem.settings import Settings

ENGINES = {"runtime": {"mode": "BLS", "profile": "trtllm-26.07"}}
BUILT = GOOD.replace("ModelsReady", "EnginesReady")


def offline(settings: Settings, **changes: object) -> Desired:
    desired = desired_of(parse(QUICKSTART, **changes), settings)
    assert isinstance(desired, Desired)
    return desired


def components(jobs: tuple[Object, ...]) -> list[str]:
    return [job["metadata"]["labels"][names.LABEL_COMPONENT] for job in jobs]


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, [names.PREFLIGHT]),
        (HUB, [names.FETCH, names.FETCH, names.PREFLIGHT]),
        ({**HUB, **ENGINES}, [names.FETCH, names.FETCH, names.BUILD, names.BUILD, names.PREFLIGHT]),
    ],
    ids=["mounted models", "downloads", "engines"],
)
def test_the_jobs_of_all_tasks(settings: Settings, changes: dict[str, object], wanted: list[str]) -> None:
    desired = offline(settings, **changes)
    assert components(desired.jobs) == wanted
    assert desired.results == ()
    assert bool(desired.cache_claim) is (changes != {})
    assert desired.workload


def test_it_is_what_is_applied_from_nothing_to_servers(settings: Settings) -> None:
    """But for the names of content, which is not known before it is there."""
    world, service, applied = World(settings), parse(QUICKSTART, **HUB), set[tuple[str, str]]()
    for _ in range(4):
        decision, _ = world.step(service)
        applied |= {(child["kind"], child["metadata"]["name"]) for child in decision.desired.in_order}
        for number, name in enumerate(world.jobs()):
            world.finish(name, fetched(f"models/{number}{'a' * 31}") if f"-{names.FETCH}-" in name else GOOD)
    shown = {(child["kind"], child["metadata"]["name"]) for child in offline(settings, **HUB).in_order}
    fixed = {each for each in shown if each in applied}
    assert {kind for kind, _ in shown - fixed} == {"ConfigMap", "Job"}, "the revision, and its preflight"
    assert len(shown - fixed) == 2
    assert {kind for kind, _ in applied} == {kind for kind, _ in shown}


def test_what_the_operator_would_refuse_is_refused(settings: Settings) -> None:
    refused = desired_of(parse(QUICKSTART, runtime__profile="nope"), settings)
    assert isinstance(refused, Refusal)
    assert refused.reason == "UnknownProfile"
    one_node = {"storage": {"cache": {"accessModes": ["ReadWriteOnce"]}}, "replicas": 2}
    refused = desired_of(parse(QUICKSTART, **HUB, **one_node), settings)
    assert isinstance(refused, Refusal)
    assert refused.reason == "CacheNotShareable"
