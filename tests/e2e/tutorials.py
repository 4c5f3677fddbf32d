"""The commands of a tutorial, run as a reader copies them."""

import os
import sys
from pathlib import Path

import yaml

from cluster import binaries
from support.console import Result, Step, marked, matches, run

from .conftest import REPOSITORY, Site

TUTORIALS = REPOSITORY / "docs/tutorials"
SECONDS = 900


def reader(site: Site, namespace: str, home: Path) -> dict[str, str]:
    """Variables of a reader's shell: a kubeconfig with a namespace of its own, the commands in PATH, a home."""
    site.run("create", "namespace", namespace)
    config = yaml.safe_load(site.cluster.kubeconfig.read_text())
    for context in config["contexts"]:
        context["context"]["namespace"] = namespace
    (home / "kubeconfig").write_text(yaml.safe_dump(config))
    commands = [Path(sys.executable), site.cluster.kubectl.binary, binaries.ensure(["helm"], print)["helm"]]
    folders = [*(str(command.parent) for command in commands), os.environ["PATH"]]
    people = [f"GIT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")]
    author = dict.fromkeys(people, "reader@example.com")
    places = {"HOME": str(home), "KUBECONFIG": str(home / "kubeconfig"), "PATH": os.pathsep.join(folders)}
    return places | author


def steps_of(name: str) -> list[Step]:
    """The commands of a tutorial."""
    return marked((TUTORIALS / f"{name}.md").read_text(), name)


def follow(shell: dict[str, str], steps: list[Step]) -> list[Result]:
    """Run the commands, and compare what they print with what the page shows; return all results."""
    results = run(steps, REPOSITORY, shell, SECONDS)
    for result in results:
        print(f"$ {result.step.command}\n{result.printed}")
        assert result.status == 0, result.step.command
        assert matches(result.step.shown, result.printed), result.step.shown
    assert len(results) >= len(steps)
    return results
