"""What services keep in the cache volume, and the Job that removes the rest."""

import json
from typing import Any

import pytest

from tandem import names
from tandem.cache import UnknownReferences, kept, prune_job, pull_secrets
from tandem.cli.cache import PruneFailed, prune, report
from tandem.cluster.client import Api
from tandem.cluster.kinds import CACHE_CLAIM, Kind
from tandem.settings import Settings

from .conftest import QUICKSTART, parse
from .test_plan import GOOD, World
from .test_stages import HUB, fetched


def configmaps(world: World) -> list[dict[str, Any]]:
    return [obj for (kind, _), obj in world.objects.items() if kind == "ConfigMap"]


def test_every_revision_and_every_download_counts(settings: Settings) -> None:
    world = World(settings)
    hub = parse(QUICKSTART, **HUB)
    world.step(hub)
    keys = ["a" * 32, "b" * 32]
    for name, key in zip(world.jobs(), keys, strict=True):
        world.finish(name, fetched(f"models/{key}"))
    world.step(hub)
    assert kept(configmaps(world)) == {f"models/{key}" for key in keys}
    world.pods = []
    world.finish_preflight(GOOD)
    world.step(hub)
    downloads = [name for kind, name in world.objects if kind == "ConfigMap" and f"-{names.FETCH}-" in name]
    for name in downloads:
        del world.objects["ConfigMap", name]
    assert kept(configmaps(world)) == {f"models/{key}" for key in keys}, "the revision alone remembers"


def test_models_in_images_and_claims_are_not_in_the_cache(settings: Settings) -> None:
    world = World(settings)
    world.step(parse(QUICKSTART))
    assert kept(configmaps(world)) == set()


def test_a_revision_that_cannot_be_read_stops_everything() -> None:
    labels = {names.LABEL_COMPONENT: names.REVISION}
    strange = {"metadata": {"name": "svc-1", "labels": labels}, "data": {"record.json": '{"renderer": "v9"}'}}
    with pytest.raises(UnknownReferences, match="ConfigMap svc-1 is of another version"):
        kept([strange])


def test_the_image_is_pulled_as_the_services_are(settings: Settings) -> None:
    assert pull_secrets([]) == []
    world = World(settings)
    for names_of_secrets in (["b", "a"], ["a"], []):
        pulls = [{"name": name} for name in names_of_secrets]
        world.step(parse(QUICKSTART, podTemplate={"spec": {"imagePullSecrets": pulls}}))
    found = pull_secrets(configmaps(world))
    assert found == [{"name": "a"}, {"name": "b"}]
    job = prune_job("ns", "tandem-prune-1", "claim", "fetcher:1", [], found, young=60, dry_run=False)
    assert job["spec"]["template"]["spec"]["imagePullSecrets"] == found


def test_the_job() -> None:
    job = prune_job("ns", "tandem-prune-1", "claim", "fetcher:1", {"models/b", "models/a"}, young=60, dry_run=True)
    pod = job["spec"]["template"]["spec"]
    assert pod["containers"][0]["command"] == [
        *("python3", "-m", "tandem_fetcher", "prune", "--cache", "/cache"),
        *(
            "--young",
            "60",
            "--termination-log",
            "/dev/termination-log",
            "--dry-run",
            "--keep",
            "models/a",
            "--keep",
            "models/b",
        ),
    ]
    assert pod["volumes"] == [{"name": "cache", "persistentVolumeClaim": {"claimName": "claim"}}]
    assert "imagePullSecrets" not in pod


def test_the_report() -> None:
    found = json.loads('{"removed": ["models/a"], "folders": 1, "bytes": 1500000000}')
    assert report(found, dry_run=False) == "models/a\nremoved 1.50 GB in 1 folders"
    assert report(found, dry_run=True).endswith("would remove 1.50 GB in 1 folders")


class NoClaim:
    """An API server whose namespaces have no claims; nothing else may be asked of it."""

    async def __aenter__(self) -> "NoClaim":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def get(self, kind: Kind, namespace: str, name: str) -> None:
        assert (kind, namespace, name) == (CACHE_CLAIM, "team-a", "cache")


async def test_without_a_claim_no_job_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def connect() -> NoClaim:
        return NoClaim()

    monkeypatch.setattr(Api, "connect", connect)
    with pytest.raises(PruneFailed, match="no PersistentVolumeClaim cache in namespace team-a"):
        await prune("team-a", "cache", "image", young=0, dry_run=True)
