"""OCI layouts: complete, the same each time, one for all platforms."""

import gzip
import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from builder.errors import BuildError
from release import oci
from support import docker_archives

pytestmark = pytest.mark.nightly

LAYERS = [{"etc/a": "one"}, {"etc/b": "two"}]
LABELS = {"org.opencontainers.image.version": "1.2.3"}


def layout(folder: Path, name: str, architecture: str = "amd64") -> Path:
    folder.mkdir(exist_ok=True)
    archive = docker_archives.write(folder / f"{name}.tar", LAYERS, architecture)
    oci.from_archive(archive, folder / name, LABELS)
    return folder / name


def blob(layout: Path, digest: str) -> bytes:
    content = (layout / "blobs" / "sha256" / digest.removeprefix("sha256:")).read_bytes()
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == digest
    return content


def test_a_layout_has_what_the_archive_has(tmp_path: Path) -> None:
    made = layout(tmp_path, "a")
    (entry,) = oci.manifests(made)
    manifest = json.loads(blob(made, entry["digest"]))
    config = json.loads(blob(made, manifest["config"]["digest"]))
    layers = [gzip.decompress(blob(made, layer["digest"])) for layer in manifest["layers"]]
    assert layers == [docker_archives.tar(files) for files in LAYERS]
    assert [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers] == config["rootfs"]["diff_ids"]
    assert manifest["annotations"] == LABELS
    assert oci.platform(entry) == "linux/amd64"
    assert json.loads((made / "oci-layout").read_bytes()) == {"imageLayoutVersion": "1.0.0"}


def test_compressed_layers_stay_as_they_are(tmp_path: Path) -> None:
    archive = docker_archives.write(tmp_path / "a.tar", LAYERS, compressed=True)
    oci.from_archive(archive, tmp_path / "a", LABELS)
    (entry,) = oci.manifests(tmp_path / "a")
    layers = [
        blob(tmp_path / "a", layer["digest"]) for layer in json.loads(blob(tmp_path / "a", entry["digest"]))["layers"]
    ]
    assert [gzip.decompress(layer) for layer in layers] == [docker_archives.tar(files) for files in LAYERS]


def test_layers_of_earlier_layouts_are_not_compressed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = layout(tmp_path, "a")
    archive = docker_archives.write(tmp_path / "b.tar", [LAYERS[0], {"etc/c": "three"}])
    oci.from_archive(archive, tmp_path / "alone", LABELS)
    compressed: list[str] = []
    add = oci._add_layer

    def noted(made: Path, tar: tarfile.TarFile, name: str) -> oci.Descriptor:
        compressed.append(name)
        return add(made, tar, name)

    monkeypatch.setattr(oci, "_add_layer", noted)
    oci.from_archive(archive, tmp_path / "b", LABELS, [first])
    assert compressed == ["1.tar"]
    assert oci.digest(tmp_path / "b") == oci.digest(tmp_path / "alone")
    (entry,) = oci.manifests(tmp_path / "b")
    assert [tar.getnames() for tar in oci.layers(tmp_path / "b", entry)] == [["etc/a"], ["etc/c"]]


def test_the_digest_follows_from_the_content(tmp_path: Path) -> None:
    assert oci.digest(layout(tmp_path, "a")) == oci.digest(layout(tmp_path, "b"))
    assert oci.digest(layout(tmp_path, "c", "arm64")) != oci.digest(tmp_path / "a")


def test_layouts_of_two_machines_are_joined(tmp_path: Path) -> None:
    made, other = layout(tmp_path, "a"), layout(tmp_path, "b", "arm64")
    alone = oci.digest(made)
    oci.join(made, other)
    assert [oci.platform(entry) for entry in oci.manifests(made)] == ["linux/amd64", "linux/arm64"]
    assert oci.digest(made) != alone
    for entry in oci.manifests(made):
        assert [tar.getnames() for tar in oci.layers(made, entry)] == [["etc/a"], ["etc/b"]]
    top = (made / "index.json").read_text()
    oci.join(made, other)
    assert (made / "index.json").read_text() == top, "once is enough"


def test_two_images_for_one_platform_are_refused(tmp_path: Path) -> None:
    made = layout(tmp_path, "a")
    other = docker_archives.write(tmp_path / "other.tar", [{"etc/a": "another"}])
    oci.from_archive(other, tmp_path / "other", LABELS)
    with pytest.raises(BuildError, match="both have an image for linux/amd64"):
        oci.join(made, tmp_path / "other")


@pytest.mark.parametrize("content", [b"", b"no tar file", docker_archives.tar({"a": "b"})], ids=len)
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.tar").write_bytes(content)
    with pytest.raises(BuildError, match=r"x\.tar is no docker archive"):
        oci.from_archive(tmp_path / "x.tar", tmp_path / "x", {})
