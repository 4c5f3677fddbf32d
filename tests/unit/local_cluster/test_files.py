"""Files that running programs watch, and image archives."""

from __future__ import annotations

import io
import json
import stat
import tarfile
from pathlib import Path

import pytest

from cluster import files, images
from cluster.errors import ClusterError

pytestmark = pytest.mark.nightly


def test_a_file_is_not_touched_when_it_is_as_it_should_be(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file"
    files.write(path, "one")
    before = path.stat()
    files.write(path, b"one")
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    files.write(path, "two")
    assert path.read_text() == "two"
    assert list(path.parent.iterdir()) == [path]


def test_a_secret_is_never_readable_by_others(tmp_path: Path) -> None:
    files.write(tmp_path / "key", "secret", mode=0o600)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_a_scratch_image_has_the_program_its_entry_point_and_its_name(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF")
    archive = tmp_path / "image.tar"
    images.write_scratch_image(program, "localhost/a/b:v1", archive)
    assert images.names(archive) == ["localhost/a/b:v1"]
    with tarfile.open(archive) as opened:
        manifest = json.load(_member(opened, "manifest.json"))[0]
        config = json.load(_member(opened, manifest["Config"]))
        with tarfile.open(fileobj=_member(opened, manifest["Layers"][0])) as layer:
            assert _member(layer, "program").read() == b"\x7fELF"
            assert layer.getmember("program").mode == 0o755
    assert config["config"]["Entrypoint"] == ["/program"]
    assert config["config"]["User"] == "65535:65535", "a cluster that forbids root must run it"


def _member(archive: tarfile.TarFile, name: str) -> io.BytesIO:
    content = archive.extractfile(name)
    assert content is not None
    return io.BytesIO(content.read())


OCI = {"manifests": [{"annotations": {"org.opencontainers.image.ref.name": "localhost/x:1"}}, {}]}
ARCHIVES = [
    pytest.param("manifest.json", [{"RepoTags": ["a:1", "a:2"]}, {"RepoTags": None}], ["a:1", "a:2"], id="docker"),
    pytest.param("index.json", OCI, ["localhost/x:1"], id="OCI"),
    pytest.param("index.json", {"manifests": [{}]}, [], id="an image without a name"),
]


@pytest.mark.parametrize(("member", "content", "expected"), ARCHIVES)
def test_names_in_archives(tmp_path: Path, member: str, content: object, expected: list[str]) -> None:
    assert images.names(_archive(tmp_path, member, content)) == expected


def test_other_archives_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="not an image archive"):
        images.names(_archive(tmp_path, "readme.txt", "hello"))
    with pytest.raises(ClusterError, match="build the image first"):
        images.names(tmp_path / "missing.tar")


def _archive(folder: Path, member: str, content: object) -> Path:
    data = json.dumps(content).encode()
    entry = tarfile.TarInfo(member)
    entry.size = len(data)
    with tarfile.open(folder / "archive.tar", "w") as archive:
        archive.addfile(entry, io.BytesIO(data))
    return folder / "archive.tar"
