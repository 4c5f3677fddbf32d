"""GitHub's workflows are valid, and run commands that exist."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yaml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def steps(workflow: Path) -> list[dict[str, Any]]:
    document = yaml.safe_load(workflow.read_text(encoding="utf-8"))
    # YAML 1.1 reads the key `on` as true.
    assert document.keys() >= {"name", True, "permissions", "jobs"}
    return [step for job in document["jobs"].values() for step in job.get("steps", [])]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_steps_run_targets_and_variables_that_exist(workflow: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", MAKEFILE, flags=re.MULTILINE))
    for step in steps(workflow):
        assert ("run" in step) != ("uses" in step), step
        for call in re.findall(r"^make ([a-z][^\n]*)", step.get("run", ""), flags=re.MULTILINE):
            words = call.split()
            assert words[0] in targets, call
            given = {word.partition("=")[0] for word in words[1:] if "=" in word}
            assert all(f"$({name})" in MAKEFILE for name in given), call


def test_they_run_the_tests_and_the_release() -> None:
    run = {workflow.stem: [step.get("run", "") for step in steps(workflow)] for workflow in WORKFLOWS}
    assert {"make test", "make nightly"} <= set(run["ci"])
    release = yaml.safe_load((ROOT / ".github/workflows/release.yaml").read_text(encoding="utf-8"))["jobs"]
    assert release["nightly"]["uses"] == "./.github/workflows/ci.yaml", "which runs `make nightly` where it is called"
    assert release["release"]["needs"] == "nightly"
    assert [line.split()[1] for line in run["release"] if line.startswith("make ")] == ["release", "publish"]
