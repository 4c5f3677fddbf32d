"""The tutorials' commands do what the pages show, when they are copied one after the other."""

import json
from collections.abc import Iterator

import pytest

from support.console import Step, marked

from .conftest import REPOSITORY, Site, wait_for
from .tutorials import follow, reader, steps_of

pytestmark = pytest.mark.nightly

UNINSTALLING = REPOSITORY / "docs/how-to/upgrade.md"
NAMESPACE = "tutorial"


@pytest.fixture(scope="module")
def shell(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """See `reader`."""
    yield reader(site, NAMESPACE, tmp_path_factory.mktemp("home"))
    site.run("delete", "namespace", NAMESPACE, "--wait=false")


FIRST = steps_of("first-service")
TOGETHER = {
    # Autoscaling goes on with the first service before it is removed.
    "first-service, autoscaling": [*FIRST[:-2], *steps_of("autoscaling"), *FIRST[-2:]],
    "ngram": steps_of("ngram"),
    "gitops": steps_of("gitops"),
}


@pytest.mark.parametrize("steps", TOGETHER.values(), ids=TOGETHER)
def test_the_commands_do_what_the_page_shows(shell: dict[str, str], steps: list[Step]) -> None:
    follow(shell, steps)


def test_uninstalling_leaves_nothing_of_tandem(site: Site, shell: dict[str, str]) -> None:
    """Last of all tests on this cluster: see `pytest_collection_modifyitems`. One service serves, one downloads."""
    model = {"uri": "hf://example/target", "revision": "1" * 40}
    site.apply("downloading", target={"model": model}, draft=None, speculation={"decodingType": "None"})
    kinds = {"ClusterRole", "APIService", "CustomResourceDefinition", "PersistentVolumeClaim", "Lease", "Job"}
    wait_for("an object of each kind", lambda: kinds <= {kind for kind, _ in of_tandem(site)})
    follow(shell, marked(UNINSTALLING.read_text(), "uninstall"))
    left = set[tuple[str, str]]()

    def all_gone() -> bool:
        left.clear()
        left.update(of_tandem(site))
        return not left

    try:
        wait_for("what a namespace's deletion leaves to controllers", all_gone)
    finally:
        print(f"left: {sorted(left)}")


def of_tandem(site: Site) -> set[tuple[str, str]]:
    """Kind and name of all objects, of any kind, whose metadata speak of Tandem; Events aside, which expire, and the
    administrator's volume of `test_downloads`, which stays."""
    kinds = site.run("api-resources", "--verbs=list", "--output=name").split()
    listed = ",".join(kind for kind in kinds if kind.split(".")[0] != "events")
    found = json.loads(site.run("get", listed, "--all-namespaces", "--output=json", "--show-managed-fields"))["items"]
    all_of_them = {
        (each["kind"], each["metadata"]["name"]) for each in found if "tandem" in json.dumps(each["metadata"])
    }
    return all_of_them - {("PersistentVolume", "cache")}
