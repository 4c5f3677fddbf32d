"""The programs that build images: Docker and Podman, which are alike, and buildah, which needs no service."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from builder import mounts, progress
from builder.errors import BuildError
from builder.inputs import REPOSITORY

WHEELS = "/wheels"
_BUILDAH_SETTINGS = Path(__file__).with_name("containers.conf")
_BUILDAH_NETWORK = Path("/run/tandem-images-network")  # as in the settings


@dataclass(frozen=True)
class Build:
    """One build. ``base`` and ``wheels`` are None where the Containerfile's bases and the package index serve.

    ``bases``: the build arguments that name a base.
    """

    context: Path
    containerfile: str
    ref: str
    base: str | None
    wheels: Path | None
    bases: tuple[str, ...] = ("BASE",)

    def arguments(self) -> list[str]:
        """Return the part of the command line that all three programs share."""
        base = [word for name in self.bases for word in ("--build-arg", f"{name}={self.base}") if self.base]
        # With its own folder of wheels pip asks no index.
        offline = ["--build-arg", "PIP_NO_INDEX=1", "--build-arg", f"PIP_FIND_LINKS={WHEELS}"]
        mount = ["--volume", f"{self.wheels}:{WHEELS}:ro", *offline] if self.wheels else []
        where = ["--file", str(self.context / self.containerfile), "--tag", self.ref, str(self.context)]
        return [*base, *mount, *where]


class Engine(Protocol):
    """What the build tool asks of a program that builds images."""

    @property
    def name(self) -> str:
        """The program."""

    @property
    def local_base(self) -> bool:
        """Whether it builds on a Debian base of our own unless told otherwise."""

    @property
    def offline_wheels(self) -> bool:
        """Whether a folder of wheels can be mounted into a build."""

    def has(self, ref: str) -> bool:
        """Tell whether the image is in the engine's store."""

    def import_base(self, rootfs: Path, ref: str, log: Path) -> None:
        """Make an image of a root file system's tar."""

    def build(self, build: Build, log: Path) -> None:
        """Build and tag an image."""

    def save(self, ref: str, archive: Path, log: Path) -> None:
        """Write the image as a docker archive, which `ctr images import` and `docker load` read."""

    def remove(self, ref: str) -> None:
        """Forget an image; one that is not there is no error."""

    def clean(self) -> None:
        """Remove all that this tool made in the engine."""


@dataclass(frozen=True)
class DockerLike:
    """Docker or Podman, with the store that the user has."""

    name: str
    local_base: bool = False

    @property
    def offline_wheels(self) -> bool:
        """Docker's builds take no volumes; they download by themselves."""
        return self.name == "podman"

    def has(self, ref: str) -> bool:
        """See Engine."""
        return _quiet([self.name, "image", "inspect", ref])

    def import_base(self, rootfs: Path, ref: str, log: Path) -> None:
        """See Engine."""
        progress.run([self.name, "import", str(rootfs), ref], log)

    def build(self, build: Build, log: Path) -> None:
        """See Engine."""
        progress.run([self.name, "build", *build.arguments()], log)

    def save(self, ref: str, archive: Path, log: Path) -> None:
        """See Engine."""
        progress.run([self.name, "save", "--output", str(archive), ref], log)

    def remove(self, ref: str) -> None:
        """See Engine."""
        _quiet([self.name, "image", "rm", ref])

    def clean(self) -> None:
        """See Engine."""
        list_ours = [self.name, "image", "ls", "--format", "{{.Repository}}:{{.Tag}}"]
        listed = subprocess.run(list_ours, capture_output=True, text=True, check=False).stdout.split()
        for ref in listed:
            if ref.startswith(f"{REPOSITORY}/"):
                self.remove(ref)


@dataclass(frozen=True)
class Buildah:
    """buildah as root, without a service, in a store of its own below the cache."""

    storage: Path
    driver: str
    name: str = "buildah"
    local_base: bool = True
    offline_wheels: bool = True

    @property
    def run_state(self) -> Path:
        """Where buildah notes what is mounted: gone after a reboot, as the mounts are."""
        return Path("/run") / f"tandem-images-{hashlib.sha256(bytes(self.storage)).hexdigest()[:8]}"

    def has(self, ref: str) -> bool:
        """See Engine."""
        return _quiet(self.command("inspect", "--type", "image", ref), self.env())

    def import_base(self, rootfs: Path, ref: str, log: Path) -> None:
        """See Engine."""
        self._drop_leftovers()
        container = "tandem-base"
        for step in (
            ["from", "--name", container, "scratch"],
            ["add", "--quiet", container, str(rootfs), "/"],
            ["commit", "--quiet", "--rm", container, ref],
        ):
            progress.run(self.command(*step), log, self.env())

    def build(self, build: Build, log: Path) -> None:
        """See Engine."""
        self._drop_leftovers()
        pull = ["--pull-never"] if build.base else []
        progress.run(self.command("bud", "--layers", *pull, *build.arguments()), log, self.env())

    def save(self, ref: str, archive: Path, log: Path) -> None:
        """See Engine."""
        progress.run(self.command("push", "--quiet", ref, f"docker-archive:{archive}:{ref}"), log, self.env())

    def remove(self, ref: str) -> None:
        """See Engine."""
        _quiet(self.command("rmi", ref), self.env())

    def clean(self) -> None:
        """See Engine."""
        for folder in (self.storage, self.run_state, _BUILDAH_NETWORK):
            mounts.remove_tree(folder)

    def _drop_leftovers(self) -> None:
        """Remove what a killed build left in the store; the cache's lock is held, so nobody works with it."""
        _quiet(self.command("rm", "--all"), self.env())

    def command(self, *words: str) -> list[str]:
        """Return the command line of a buildah call on this store."""
        # The driver as a flag: as a variable buildah takes it for a wish, and quietly begins with another.
        where = ["--root", str(self.storage), "--runroot", str(self.run_state)]
        return ["buildah", "--storage-driver", self.driver, *where, *words]

    def env(self) -> Mapping[str, str]:
        """Return the environment of every call."""
        # chroot: runs where a container runtime may not make namespaces.
        return {**os.environ, "BUILDAH_ISOLATION": "chroot", "CONTAINERS_CONF": str(_BUILDAH_SETTINGS)}


_NAMES = ("docker", "podman", "buildah")


def choose(cache: Path, wanted: str | None = None) -> Engine:
    """Return the first engine that works: Docker, Podman, buildah; or the wanted one.

    Raises BuildError, saying what each one lacks.
    """
    if wanted not in (None, *_NAMES):
        raise BuildError(f"no engine is named {wanted!r}: write {', '.join(_NAMES)}")
    names = [wanted] if wanted else list(_NAMES)
    lacks = {name: _lack(name) for name in names}
    for name, lack in lacks.items():
        if lack is None:
            return _engine(cache, name)
    reasons = [f"   {name}: {lack}" for name, lack in lacks.items()]
    advice = "as root, `python -m cluster deps` installs buildah and debootstrap"
    raise BuildError("\n".join(["no program here can build images:", *reasons, f"   {advice}"]))


def working(cache: Path) -> list[Engine]:
    """Return every engine that works here."""
    return [_engine(cache, name) for name in _NAMES if _lack(name) is None]


def _engine(cache: Path, name: str) -> Engine:
    return _buildah(cache / "storage") if name == "buildah" else DockerLike(name)


def _lack(name: str) -> str | None:
    if shutil.which(name) is None:
        return "is not installed"
    if name == "buildah":
        return None if os.geteuid() == 0 else "needs root"
    return None if _quiet([name, "info"]) else f"`{name} info` fails: its service does not answer"


def _buildah(storage: Path) -> Buildah:
    """Return buildah with overlay layers where the cache's file system allows them, else with full copies."""
    storage.parent.mkdir(parents=True, exist_ok=True)
    overlay = Buildah(storage / "overlay", "overlay")
    if _quiet(overlay.command("images"), overlay.env()):
        return overlay
    return Buildah(storage / "vfs", "vfs")


def _quiet(command: Sequence[str], env: Mapping[str, str] | None = None) -> bool:
    """Run a quick command for its exit status alone."""
    return subprocess.run(command, env=env, capture_output=True, check=False).returncode == 0
