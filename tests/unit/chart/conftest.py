"""The chart as Helm renders it."""

import functools
import json
import os
import pickle
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import binaries
from support import images

CHART = Path(__file__).parents[3] / "charts" / "tandem"
IMAGES = "images.yaml"

Object = dict[str, Any]
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Helm:
    """The pinned helm, without a cluster and without the configuration of whoever runs the tests."""

    binary: Path
    home: Path

    def run(self, *arguments: str, values: Values | None = None) -> subprocess.CompletedProcess[str]:
        """`helm <arguments>`, with `values` as its values file, over values that name the images."""
        environment = {name: text for name, text in os.environ.items() if not name.startswith(("HELM_", "KUBE"))}
        environment |= {f"HELM_{kind}_HOME": str(self.home / kind) for kind in ("CACHE", "CONFIG", "DATA")}
        environment["GOGC"] = "off"  # it ends before that would pay
        over = ["-f", str(self.home / IMAGES), "-f", "-"] if values is not None else []
        command = [str(self.binary), *arguments, *over]
        text = json.dumps(values) if values is not None else None
        return subprocess.run(command, input=text, env=environment, capture_output=True, text=True, check=False)

    def template(self, values: Values | None = None, release: str = "tandem") -> list[Object]:
        """The objects that the chart makes in namespace `tandem-system`."""
        objects: list[Object] = pickle.loads(_rendered(self, json.dumps(values or {}), release))
        return objects

    def refusal(self, values: Values) -> str:
        """What Helm says of values that the chart does not take."""
        done = self.run("template", "tandem", str(CHART), values=values)
        assert done.returncode != 0, f"taken: {values}"
        return done.stderr


@functools.cache  # rendering is pure, and starting helm takes a third of a second
def _rendered(helm: Helm, values: str, release: str) -> bytes:
    """The objects, pickled: each test gets its own, in a tenth of the time that parsing takes."""
    arguments = ("template", release, str(CHART), "-n", "tandem-system")
    done = helm.run(*arguments, values=json.loads(values))
    assert done.returncode == 0, done.stderr
    return pickle.dumps([found for found in yaml.load_all(done.stdout, yaml.CSafeLoader) if found])


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm, built when it is missing (a few minutes, once)."""
    home = tmp_path_factory.mktemp("helm")
    (home / IMAGES).write_text(json.dumps(images.NEEDED), encoding="utf-8")
    return Helm(binaries.ensure(["helm"], print)["helm"], home)


def only(objects: list[Object], kind: str, name: str = "") -> Object:
    """The one object of that kind, and name when given."""
    (found,) = [o for o in objects if o["kind"] == kind and name in ("", o["metadata"]["name"])]
    return found


def kinds(objects: list[Object]) -> list[str]:
    """Kinds of the objects, sorted, one for each."""
    return sorted(found["kind"] for found in objects)


NAMESPACED = {"namespaces": ["team-a", "team-b"]}
ALONE = {"metricsServer": {"enabled": False}}
"""The operator without the metrics server, which has tests of its own."""


def notes(helm: Helm, values: Values) -> str:
    arguments = ("install", "tandem", str(CHART), "--dry-run=client", "-n", "tandem-system")
    return helm.run(*arguments, values=values).stdout.split("NOTES:")[1]
