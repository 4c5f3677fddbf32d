"""Builds images: hashes what goes in, and does only what is not there yet."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from builder import base, inputs, progress, wheels
from builder.cache import UNFINISHED, Cache
from builder.engines import Build, Engine
from builder.inputs import Image


@dataclass(frozen=True)
class Built:
    """An image with its content's tag; ``ready`` when its archive exists."""

    name: str
    ref: str
    archive: Path
    ready: bool

    def as_json(self) -> dict[str, str | bool]:
        """Return the fields as JSON's types."""
        return {"name": self.name, "ref": self.ref, "archive": str(self.archive), "ready": self.ready}


@dataclass(frozen=True)
class Plan:
    """What to build from and with. ``own_base``: the Debian base of debootstrap, not the Containerfile's."""

    root: Path
    cache: Cache
    own_base: bool

    def image(self, image: Image) -> Built:
        """Return where the image stands for the files as they are now; raises BuildError when one is missing."""
        return self.built(image, self.root, inputs.files(self.root, image))

    def built(self, image: Image, folder: Path, paths: Sequence[str]) -> Built:
        """Return where the image of these files of ``folder`` stands."""
        origin = f"debian {base.identity()}" if self.own_base else "public"
        digest = inputs.digest(folder, paths, origin)
        archive = self.cache.archive(image.name, digest)
        return Built(image.name, image.ref(digest), archive, archive.is_file())


def build(plan: Plan, engine: Engine, images: Sequence[Image]) -> list[Built]:
    """Build the images that are not there yet and prune old ones; return all. Raises BuildError."""
    with plan.cache.lock():
        plan.cache.sweep()
        built = [_snapshot_and_build(plan, engine, image) for image in images]
        for image in images:
            _prune(plan.cache, engine, image)
    return built


def _snapshot_and_build(plan: Plan, engine: Engine, image: Image) -> Built:
    with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=plan.cache.root) as folder:
        context = Path(folder)
        paths = inputs.files(plan.root, image)
        inputs.stage(plan.root, paths, context)
        # The copy is hashed, not the checkout, which may change meanwhile: the tag names what is inside.
        built = plan.built(image, context, paths)
        if built.ready:
            progress.say(f">> {built.ref} is there")
            return built
        _build_one(plan, engine, image, context, built)
    return replace(built, ready=True)


def _build_one(plan: Plan, engine: Engine, image: Image, context: Path, built: Built) -> None:
    base_ref = _base(plan.cache, engine) if plan.own_base else None
    wheel_folder = _wheels(plan, image) if engine.offline_wheels and inputs.locks(context, image) else None
    log = plan.cache.log(image.name)
    log.unlink(missing_ok=True)
    with progress.step(f"{built.ref} ({engine.name})"):
        engine.build(
            Build(context, image.containerfile, built.ref, base_ref, wheel_folder, inputs.bases(context, image)), log
        )
    with progress.step(f"{built.archive}"):
        unfinished = built.archive.with_name(UNFINISHED + built.archive.name)
        engine.save(built.ref, unfinished, log)
        unfinished.replace(built.archive)


def _base(cache: Cache, engine: Engine) -> str:
    """Return the reference of the Debian base, made and imported when it is not there."""
    identity = base.identity()
    ref, archive, log = f"{inputs.REPOSITORY}/base:{identity}", cache.base(identity), cache.log("base")
    if engine.has(ref):
        return ref
    if not archive.is_file():
        with progress.step("Debian base (debootstrap, about a minute)"):
            base.make(archive, log)
    with progress.step(f"{ref}"):
        engine.import_base(archive, ref, log)
    return ref


def _wheels(plan: Plan, image: Image) -> Path:
    """Return the folder with an image's wheels, filled when it is not there: one folder serves all but large ones."""
    large = image.name in inputs.LARGE
    relative = {path for each in ([image] if large else inputs.select([])) for path in inputs.locks(plan.root, each)}
    locks = [plan.root / path for path in sorted(relative)]
    folder = wheels.folder(plan.cache.wheels / image.name if large else plan.cache.wheels, locks)
    if not folder.is_dir():
        with progress.step("wheels from the package index, checked against the locks"):
            wheels.fetch(locks, folder, plan.cache.log("wheels"))
    return folder


def _prune(cache: Cache, engine: Engine, image: Image) -> None:
    for archive in cache.outdated(image.name):
        progress.say(f">> {archive.name}: old, removed")
        engine.remove(image.ref(archive.stem.removeprefix(f"{image.name}-")))
        archive.unlink()
