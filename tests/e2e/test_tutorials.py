"""The tutorials' commands do what the pages show, when they are copied one after the other."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.console import Step, marked, matches, run

from .conftest import REPOSITORY, Site

TUTORIALS = REPOSITORY / "docs/tutorials"
NAMESPACE = "tutorial"
SECONDS = 240


@pytest.fixture(scope="module")
def shell(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Variables of a reader's shell: a kubeconfig whose namespace is his own, the commands in PATH, a home."""
    home = tmp_path_factory.mktemp("home")
    site.run("create", "namespace", NAMESPACE)
    config = yaml.safe_load(site.cluster.kubeconfig.read_text())
    for context in config["contexts"]:
        context["context"]["namespace"] = NAMESPACE
    (home / "kubeconfig").write_text(yaml.safe_dump(config))
    folders = [str(Path(sys.executable).parent), str(site.cluster.kubectl.binary.parent), os.environ["PATH"]]
    people = [f"GIT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")]
    author = dict.fromkeys(people, "reader@example.com")
    places = {"HOME": str(home), "KUBECONFIG": str(home / "kubeconfig"), "PATH": os.pathsep.join(folders)}
    yield places | author
    site.run("delete", "namespace", NAMESPACE, "--wait=false")


def steps_of(name: str) -> list[Step]:
    """The commands of a tutorial."""
    return marked((TUTORIALS / f"{name}.md").read_text(), name)


FIRST = steps_of("first-service")
TOGETHER = {
    # Autoscaling goes on with the first service before it is removed.
    "first-service, autoscaling": [*FIRST[:-2], *steps_of("autoscaling"), *FIRST[-2:]],
    "ngram": steps_of("ngram"),
    "gitops": steps_of("gitops"),
}


@pytest.mark.parametrize("steps", TOGETHER.values(), ids=TOGETHER)
def test_the_commands_do_what_the_page_shows(shell: dict[str, str], steps: list[Step]) -> None:
    results = run(steps, REPOSITORY, shell, SECONDS)
    for result in results:
        print(f"$ {result.step.command}\n{result.printed}")
        assert result.status == 0, result.step.command
        assert matches(result.step.shown, result.printed), result.step.shown
    assert len(results) >= len(steps)
