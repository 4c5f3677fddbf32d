"""A release of small images, without the kubectl plugin, which takes a minute."""

from pathlib import Path

import pytest

from release import provenance
from release.make import Order, make
from support import docker_archives

NAMES = ("operator", "serving", "reference", "fetcher")
SOURCE = provenance.Source("https://example.com/tandem", "0" * 40, {"images/a/requirements.txt": "ab"})


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of version 1.2.3 for registry.example/tandem."""
    folder = tmp_path_factory.mktemp("release")
    archives = {name: docker_archives.write(folder / f"{name}.tar", [{"name": name}]) for name in NAMES}
    make(Order("1.2.3", "registry.example/tandem", plugins=()), archives, SOURCE, folder / "1.2.3")
    return folder / "1.2.3"
