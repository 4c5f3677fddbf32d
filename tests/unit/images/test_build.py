"""The build: only what is not there yet; nothing half-made; old archives go."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from builder import base, engines, inputs, wheels
from builder.build import Plan, build
from builder.cache import UNFINISHED, Cache
from builder.engines import Build
from builder.errors import BuildError
from builder.inputs import Image

IMAGES = Path(__file__).resolve().parents[3] / "images"
SERVING = Image("serving")


@dataclass
class MockEngine:
    """Notes what it was asked for; its archive is the content of the model file that it was given."""

    name: str = "mock"
    local_base: bool = True
    offline_wheels: bool = True
    images: set[str] = field(default_factory=set)
    builds: list[Build] = field(default_factory=list)
    content: str = ""
    broken: str = ""
    edit_meanwhile: Path | None = None

    def has(self, ref: str) -> bool:
        return ref in self.images

    def import_base(self, rootfs: Path, ref: str, log: Path) -> None:
        self.images.add(ref)

    def build(self, build: Build, log: Path) -> None:
        if self.edit_meanwhile:
            self.edit_meanwhile.write_text("edited during the build")
        self.builds.append(build)
        self.content = (build.context / "images/serving/models/model.py").read_text()
        self.images.add(build.ref)

    def save(self, ref: str, archive: Path, log: Path) -> None:
        archive.write_text(self.content[:3] if self.broken else self.content)
        if self.broken:
            raise BuildError(self.broken)

    def remove(self, ref: str) -> None:
        self.images.discard(ref)

    def clean(self) -> None:
        self.images.clear()


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    root, cache = tmp_path / "checkout", Cache(tmp_path / "cache")
    model = root / "images/serving/models/model.py"
    model.parent.mkdir(parents=True)
    model.write_text("first")
    (root / "images/serving/Containerfile").write_text("FROM x\nCOPY images/serving/models /opt/tandem/models\n")
    archive = cache.base(base.identity())
    archive.parent.mkdir(parents=True)
    archive.write_text("a base that was made before")
    return Plan(root, cache, own_base=True)


def edit(plan: Plan, text: str) -> None:
    (plan.root / "images/serving/models/model.py").write_text(text)


def test_a_first_build_makes_the_archive_on_our_base(plan: Plan) -> None:
    engine = MockEngine()
    [built] = build(plan, engine, [SERVING])
    assert built.ready
    assert built.archive.read_text() == "first"
    assert built.ref == f"localhost/tandem/serving:{built.archive.stem.removeprefix('serving-')}"
    assert engine.builds[0].base == f"localhost/tandem/base:{base.identity()}"
    assert engine.builds[0].base in engine.images


def test_the_containerfiles_base_is_taken_where_it_serves(plan: Plan) -> None:
    engine = MockEngine()
    build(Plan(plan.root, plan.cache, own_base=False), engine, [SERVING])
    assert [build.base for build in engine.builds] == [None]


def test_what_is_there_is_not_built_again(plan: Plan) -> None:
    engine = MockEngine()
    first = build(plan, engine, [SERVING])
    assert build(plan, engine, [SERVING]) == first == [plan.image(SERVING)]
    assert len(engine.builds) == 1


def test_an_edit_makes_a_new_image(plan: Plan) -> None:
    engine = MockEngine()
    [before] = build(plan, engine, [SERVING])
    edit(plan, "second")
    [after] = build(plan, engine, [SERVING])
    assert after.ref != before.ref
    assert after.archive.read_text() == "second"


def test_an_edit_during_the_build_is_not_in_the_image_that_the_tag_names(plan: Plan) -> None:
    named_before = plan.image(SERVING).ref
    [built] = build(plan, MockEngine(edit_meanwhile=plan.root / "images/serving/models/model.py"), [SERVING])
    assert (built.ref, built.archive.read_text(), built.ready) == (named_before, "first", True)
    assert plan.image(SERVING).ref != named_before


def test_an_archive_that_was_not_written_to_its_end_does_not_count(plan: Plan) -> None:
    with pytest.raises(BuildError, match="disk full"):
        build(plan, MockEngine(broken="disk full"), [SERVING])
    assert not plan.image(SERVING).ready
    [built] = build(plan, MockEngine(), [SERVING])
    assert built.archive.read_text() == "first"
    assert list(plan.cache.root.glob(f"{UNFINISHED}*")) == []


def test_the_lock_outlives_a_killed_build_until_its_programs_end(tmp_path: Path) -> None:
    marker = tmp_path / "started"
    script = (
        "from pathlib import Path; from builder import progress; from builder.cache import Cache\n"
        f"with Cache(Path({str(tmp_path)!r})).lock():\n"
        f"    progress.run(['sh', '-c', 'touch {marker}; sleep 60'], Path({str(tmp_path / 'log')!r}))\n"
    )
    killed = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(IMAGES)})
    while not marker.exists():
        assert killed.poll() is None
        time.sleep(0.02)
    [orphan] = Path(f"/proc/{killed.pid}/task/{killed.pid}/children").read_text().split()
    killed.kill()
    killed.wait()
    try:
        with (tmp_path / "lock").open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.killpg(int(orphan), signal.SIGKILL)
    with Cache(tmp_path).lock():
        pass


def test_the_wheels_of_large_images_are_fetched_for_these_alone(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are gigabytes, and the others' stay where they are."""
    fetched: dict[str, list[str]] = {}

    def fetch(locks: Sequence[Path], target: Path, log: Path) -> None:
        target.mkdir(parents=True)
        fetched[str(target.parent.relative_to(plan.cache.root))] = [
            str(each.relative_to(plan.root)) for each in locks
        ]

    monkeypatch.setattr(wheels, "fetch", fetch)
    for name in inputs.NAMES:
        folder = plan.root / "images" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "requirements.txt").write_text(name)
        copy = f"images/{name}/requirements.txt"
        (folder / "Containerfile").write_text(f"FROM x\nCOPY {copy} /\nCOPY images/serving/models /opt/models\n")
    build(plan, MockEngine(), [*inputs.select([]), Image("reference-torch")])
    small = sorted(f"images/{name}/requirements.txt" for name in inputs.DEFAULT)
    assert fetched == {"wheels": small, "wheels/reference-torch": ["images/reference-torch/requirements.txt"]}


def test_the_three_newest_archives_stay(plan: Plan) -> None:
    engine = MockEngine()
    made = []
    for number in range(5):
        edit(plan, f"version {number}")
        made += build(plan, engine, [SERVING])
        # A file system's clock may be coarser than this loop.
        os.utime(made[-1].archive, (number, number))
    edit(plan, "version 5")
    made += build(plan, engine, [SERVING])
    assert [built.archive.exists() for built in made] == [False, False, False, True, True, True]
    assert [engine.has(built.ref) for built in made] == [False, False, False, True, True, True]


@pytest.mark.parametrize(
    ("base_ref", "wheels", "expected", "reason"),
    [
        (None, None, [], "plain Docker: the Containerfile's base, the package index"),
        ("localhost/b:1", None, ["--build-arg", "BASE=localhost/b:1"], "a base of our own"),
        (
            None,
            Path("/w"),
            [
                *("--volume", "/w:/wheels:ro"),
                *("--build-arg", "PIP_NO_INDEX=1", "--build-arg", "PIP_FIND_LINKS=/wheels"),
            ],
            "wheels that were fetched before: no network in the build",
        ),
    ],
)
def test_build_arguments(base_ref: str | None, wheels: Path | None, expected: list[str], reason: str) -> None:
    wanted = Build(Path("/c"), "images/x/Containerfile", "r:1", base_ref, wheels)
    end = ["--file", "/c/images/x/Containerfile", "--tag", "r:1", "/c"]
    assert wanted.arguments() == [*expected, *end], reason


def test_a_base_of_our_own_takes_the_place_of_each_that_a_containerfile_names() -> None:
    """None is to be had without a registry."""
    bases = inputs.bases(IMAGES.parent, SERVING)
    wanted = Build(Path("/c"), SERVING.containerfile, "r:1", "localhost/b:1", None, bases)
    given = [word for word in wanted.arguments() if word.endswith("BASE=localhost/b:1")]
    assert given == ["BASE=localhost/b:1"]


def test_an_unknown_engine_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="no engine is named 'kaniko': write docker, podman, buildah"):
        engines.choose(tmp_path, "kaniko")


def test_without_any_engine_the_error_says_what_each_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\nexit 1\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError) as error:
        engines.choose(tmp_path)
    assert str(error.value).splitlines() == [
        "no program here can build images:",
        "   docker: `docker info` fails: its service does not answer",
        "   podman: is not installed",
        "   buildah: is not installed",
        "   as root, `python -m cluster deps` installs buildah and debootstrap",
    ]
