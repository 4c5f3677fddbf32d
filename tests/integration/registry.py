"""An OCI registry on this machine, and releases in it."""

import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cluster import binaries
from cluster.ports import free_port
from release import chart, provenance
from release.make import Order, make
from release.publish import publish
from support import docker_archives

from .conftest import wait_for

NAMES = ("operator", "serving", "reference", "fetcher")
SOURCE = provenance.Source("", "0" * 40, {})


@dataclass(frozen=True)
class Published:
    """A release in a registry: its files, and its images."""

    version: str
    folder: Path
    images: chart.Images

    @property
    def chart(self) -> str:
        """The chart's reference."""
        return f"oci://{self.images.registry}/charts/tandem"


@contextmanager
def registry(folder: Path) -> Iterator[str]:
    """Its host and port; what is pushed is in `folder`."""
    address = f"127.0.0.1:{free_port()}"
    crane = binaries.ensure(["crane"], print)["crane"]
    folder.mkdir()
    with (folder.parent / "registry.log").open("wb") as log:
        command: list[str | Path] = [crane, "registry", "serve", "--address", address, "--disk", folder]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_for("the registry", lambda: _answers(address))
        yield address
    finally:
        process.kill()
        process.wait()


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/v2/", timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def release(version: str, address: str, folder: Path) -> Published:
    """Make and publish a release of small images; simulated nodes start none."""
    folder.mkdir(exist_ok=True)
    archives = {
        name: docker_archives.write(folder / f"{name}-{version}.tar", [{"name": f"{name} {version}"}])
        for name in NAMES
    }
    images = make(Order(version, f"{address}/tandem", plugins=()), archives, SOURCE, folder / version)
    publish(folder / version)
    return Published(version, folder / version, images)
