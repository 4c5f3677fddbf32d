"""Base images by digest."""

from pathlib import Path

import pytest

import tandem
from builder import build, engines, inputs
from builder.engines import DockerLike, Engine
from builder.errors import BuildError
from release import bases, cli

pytestmark = pytest.mark.nightly

REPOSITORY = Path(__file__).parents[3]
OLD, NEW = "sha256:" + "1" * 64, "sha256:" + "2" * 64


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The Containerfiles of the repository."""
    for image in inputs.select(list(inputs.NAMES)):
        (tmp_path / image.containerfile).parent.mkdir(parents=True)
        (tmp_path / image.containerfile).write_text((REPOSITORY / image.containerfile).read_text())
    return tmp_path


@pytest.mark.parametrize("name", inputs.NAMES)
def test_a_base_without_a_digest_is_refused_until_it_is_pinned(root: Path, name: str) -> None:
    images = inputs.select([name])
    file = root / images[0].containerfile
    tags = file.read_text()
    bases.pin(root, images, lambda _: NEW)
    pinned = file.read_text()
    bases.check(root, images)
    assert pinned.count(f"@{NEW}") == len(inputs.bases(root, images[0])) > 0
    file.write_text(pinned.replace(f"@{NEW}", ""))
    assert file.read_text() == without_digests(tags), "nothing else was changed"
    with pytest.raises(BuildError, match=r"run `make bases`"):
        bases.check(root, images)


@pytest.mark.parametrize(
    ("local_base", "unpinned", "built"),
    [(False, False, False), (False, True, True), (True, False, True)],
    ids=["refused", "unless one wants it", "or the base is our own"],
)
def test_a_release_wants_digests(
    root: Path, monkeypatch: pytest.MonkeyPatch, local_base: bool, unpinned: bool, built: bool
) -> None:
    bases.pin(root, inputs.select([]), lambda _: NEW)
    file = root / "images/fetcher/Containerfile"
    file.write_text(without_digests(file.read_text()))

    class Began(Exception):
        pass

    def begin(*_: object) -> None:
        raise Began

    def choose(*_: object) -> Engine:
        return DockerLike("docker", local_base)

    monkeypatch.setattr(cli, "ROOT", root)
    monkeypatch.setattr(cli, "source", lambda: None)
    monkeypatch.setattr(engines, "choose", choose)
    monkeypatch.setattr(build, "build", begin)
    with pytest.raises(Began if built else BuildError):
        cli.make_(
            tandem.__version__,
            images="operator fetcher",
            join="",
            plugins="",
            downloads="",
            key=None,
            unpinned=unpinned,
        )


def without_digests(text: str) -> str:
    """The same without digests, which a release's commit has."""
    return bases._BASE.sub(r"\1\2", text)


def test_a_newer_digest_replaces_the_older_and_each_tag_is_asked_for_once(root: Path) -> None:
    asked = []

    def digest(tag: str) -> str:
        asked.append(tag)
        return NEW if len(asked) > 1 else OLD

    images = inputs.select(list(inputs.NAMES))
    (older,) = bases.pin(root, images, digest)
    (newer,) = bases.pin(root, images, digest)
    assert (older, newer) == (f"{asked[0]}@{OLD}", f"{asked[0]}@{NEW}")
    assert len(asked) == 2
    for image in images:
        text = (root / image.containerfile).read_text()
        assert f"ARG BASE={newer}\n" in text
        assert OLD not in text
