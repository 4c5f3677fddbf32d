"""What services keep in the cache volume, and the Job that removes the rest."""

import itertools
import json
from pathlib import Path

import pytest
import yaml

from support import images
from support.services import QUICKSTART, parse
from support.world import GOOD, HUB, World, fetched
from tandem import names
from tandem.children.prune import prune_command, prune_job, prune_pod
from tandem.cli.cache import PruneFailed, prune, report
from tandem.cluster import parse as parsed
from tandem.cluster.client import Api
from tandem.rollout.prune import UnknownReferences, common_fields, kept
from tandem.settings import Settings


def kept_in(world: World, claim: str = "") -> set[str]:
    observed = world.observed()
    return kept(observed.revisions, observed.results, claim=claim)


def test_every_revision_and_every_download_counts(settings: Settings) -> None:
    world = World(settings)
    hub = parse(QUICKSTART, **HUB)
    world.step(hub)
    keys = ["a" * 32, "b" * 32]
    for name, key in zip(world.jobs(), keys, strict=True):
        world.finish(name, fetched(f"models/{key}"))
    world.step(hub)
    assert kept_in(world) == {f"models/{key}" for key in keys}
    world.pods = []
    world.finish_preflight(GOOD)
    world.step(hub)
    downloads = [name for kind, name in world.objects if kind == "ConfigMap" and f"-{names.FETCH}-" in name]
    for name in downloads:
        del world.objects["ConfigMap", name]
    assert kept_in(world) == {f"models/{key}" for key in keys}, "the revision alone remembers"


def test_models_in_images_and_claims_are_not_in_the_cache(settings: Settings) -> None:
    world = World(settings)
    world.step(parse(QUICKSTART))
    assert kept_in(world) == set()


def test_a_revision_that_cannot_be_read_stops_everything() -> None:
    labels = {names.LABEL_COMPONENT: names.REVISION}
    strange = {
        "kind": "ConfigMap",
        "metadata": {"name": "svc-1", "labels": labels},
        "data": {"record.json": '{"renderer": "v9"}'},
    }
    with pytest.raises(UnknownReferences, match="ConfigMap svc-1 is of another version"):
        kept(parsed.revisions([strange]), [])


def test_a_download_that_cannot_be_read_stops_everything() -> None:
    labels = {names.LABEL_COMPONENT: names.result(names.FETCH)}
    strange = {"kind": "ConfigMap", "metadata": {"name": "svc-fetch-1", "labels": labels}, "data": {}}
    with pytest.raises(UnknownReferences, match="ConfigMap svc-fetch-1 is of another version"):
        kept([], parsed.results([strange]))


def test_the_image_is_pulled_as_the_services_are(settings: Settings) -> None:
    assert "imagePullSecrets" not in common_fields([], "claim")
    world = World(settings)
    for names_of_secrets in (["b", "a"], ["a"], []):
        pulls = [{"name": name} for name in names_of_secrets]
        world.step(parse(QUICKSTART, podTemplate={"spec": {"imagePullSecrets": pulls}}))
    found = common_fields(world.observed().revisions, "claim")
    assert prune_pod("claim", "fetcher:1", [], found)["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]


def test_the_job() -> None:
    command = prune_command({"models/b", "models/a"}, young=60, dry_run=True)
    job = prune_job("ns", "tandem-prune-1", prune_pod("claim", "fetcher:1", command, common_fields([], "claim")))
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
    assert report(found, dry_run=False) == "models/a\nremoved 1.50 GB in 1 folder"
    assert report(found, dry_run=True).endswith("would remove 1.50 GB in 1 folder")

    left = {"models/theirs": "Unmarked", f"models/{KEY}": "NoLocks"}
    lines = report({**found, "left": left, "leftFolders": 5}, dry_run=False).splitlines()
    assert lines[1].startswith("models/theirs: not removed: not marked by Tandem")
    assert "has no locks" in lines[2]
    assert lines[3].startswith("3 more folders: not removed")


KEY = "0123456789abcdef" * 2
# What the spec names, the claim that is pruned, and what stays of it.
CLAIMS: list[tuple[str, str, set[str]]] = [
    (f"pvc://tandem-cache/models/{KEY}", "tandem-cache", {f"models/{KEY}"}),
    (f"pvc://tandem-cache/models/{KEY}/original", "tandem-cache", {f"models/{KEY}"}),
    (f"pvc://tandem-cache//models//{KEY}/", "tandem-cache", {f"models/{KEY}"}),
    ("pvc://tandem-cache/models", "tandem-cache", {"models"}),
    ("pvc://tandem-cache", "tandem-cache", {"."}),
    (f"pvc://tandem-cache/models/{KEY}", "mine", set()),
    (f"file:///models/{KEY}", "tandem-cache", set()),
]


@pytest.mark.parametrize(("uri", "claim", "wanted"), CLAIMS, ids=[row[0] + " of " + row[1] for row in CLAIMS])
def test_what_a_service_mounts_of_the_claim_is_referred_to(
    settings: Settings, uri: str, claim: str, wanted: set[str]
) -> None:
    service = parse(QUICKSTART, target__model={"uri": uri})
    assert kept([], [], [service.spec], claim) == wanted
    world = World(settings)
    world.step(service)
    assert kept_in(world, claim) == wanted, "a revision that may come back"


KUBECTL = """#!/bin/bash
cd {folder}
echo "$@" >> calls
case $1 in
create) cat > created; cat created;;
get) [ -e "$2" ] && cat "$2" || ([ "$2" = job ] || echo '{{"items": []}}');;
*) exit 1;;
esac
"""


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what `kubectl get KIND` answers, what was created, and the calls; nothing else is in PATH."""
    (tmp_path / "kubectl").write_text(KUBECTL.format(folder=tmp_path))
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("tandem.cli.cache.POLL_SECONDS", 0.01)

    async def connect() -> Api:
        raise AssertionError("kubectl alone knows as whom")

    monkeypatch.setattr(Api, "connect", connect)
    return tmp_path


async def test_without_a_claim_no_job_waits_for_it(kubectl: Path) -> None:
    (kubectl / "persistentvolumeclaim").write_text("")
    with pytest.raises(PruneFailed, match="no PersistentVolumeClaim cache in namespace team-a"):
        await prune("team-a", "cache", "image", young=0, dry_run=True)
    assert not (kubectl / "created").exists()


async def test_the_image_is_the_operators(kubectl: Path) -> None:
    (kubectl / "persistentvolumeclaim").write_text('{"metadata": {"name": "cache"}}')
    with pytest.raises(PruneFailed, match="which name the fetcher's image: write --image"):
        await prune(None, "cache", None, young=0, dry_run=True)
    data = {"settings.yaml": yaml.safe_dump(images.SETTINGS)}
    settings = {"metadata": {"name": "tandem-operator-settings", "namespace": "tandem-system"}, "data": data}
    (kubectl / "configmaps").write_text(json.dumps({"items": [settings]}))
    with pytest.raises(PruneFailed, match="was deleted before it ended"):
        await prune(None, "cache", None, young=0, dry_run=True)
    job = json.loads((kubectl / "created").read_text())
    assert job["spec"]["template"]["spec"]["containers"][0]["image"] == images.SETTINGS["fetcherImage"]


@pytest.mark.parametrize(("namespace", "place"), [("team-a", ["--namespace", "team-a"]), (None, [])])
async def test_it_is_the_user_of_kubectl_who_prunes(kubectl: Path, namespace: str | None, place: list[str]) -> None:
    service = yaml.safe_load(QUICKSTART)
    service["spec"]["target"]["model"]["uri"] = f"pvc://cache/models/{KEY}"
    done = {"name": "prune", "state": {"terminated": {"message": '{"removed": [], "folders": 0, "bytes": 0}'}}}
    answers = {
        "persistentvolumeclaim": {"metadata": {"name": "cache"}},
        "speculativeinferenceservices.serving.tandem.dev": {"items": [service]},
        "job": {"status": {"conditions": [{"type": "Complete", "status": "True"}]}},
        "pods": {"items": [{"status": {"containerStatuses": [done]}}]},
    }
    for name, answer in answers.items():
        (kubectl / name).write_text(json.dumps(answer))
    found = await prune(namespace, "cache", "image", young=0, dry_run=True)
    assert found["folders"] == 0
    job = json.loads((kubectl / "created").read_text())
    assert job["metadata"].get("namespace") == namespace
    assert job["spec"]["template"]["spec"]["containers"][0]["command"][-2:] == ["--keep", f"models/{KEY}"]
    for call in (kubectl / "calls").read_text().splitlines():
        words = call.split()
        assert [*itertools.pairwise(words)].count(("--namespace", "team-a")) == bool(place), call
