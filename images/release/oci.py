"""OCI image layouts: made from docker archives, joined over platforms, read.

The layout of an image has one entry, an image index with one manifest for each platform. Its digest names the image
whatever the platform, and does not depend on when or where the layout was made.
Formats: https://github.com/opencontainers/image-spec/blob/v1.1.1/image-layout.md.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from builder.errors import BuildError

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 20
Descriptor = dict[str, Any]


def from_archive(archive: Path, layout: Path, annotations: Mapping[str, str]) -> None:
    """Write the image of a docker archive as an OCI layout in the new folder ``layout``.

    Layers that are not compressed are, by gzip without time or name. Raises BuildError when it is no docker archive.
    """
    _blobs(layout).mkdir(parents=True)
    with _opened(archive) as tar:
        described = _json(tar, "manifest.json")[0]
        config = tar.extractfile(described["Config"])
        if config is None:
            raise BuildError(f"{archive} has no image configuration: it is no docker archive")
        text = config.read()
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": _add(layout, text, CONFIG),
            "layers": [_add_layer(layout, tar, name) for name in described["Layers"]],
            "annotations": dict(sorted(annotations.items())),
        }
    image = json.loads(text)
    platform = {key: image[key] for key in ("architecture", "os", "variant") if image.get(key)}
    _write_index(layout, [{**_add(layout, _canonical(manifest), MANIFEST), "platform": platform}])


def join(layout: Path, other: Path) -> None:
    """Add the platforms of the same image in ``other``; raises BuildError where both have one."""
    found, before = {platform(entry): entry for entry in manifests(layout)}, digest(layout)
    for entry in manifests(other):
        name = platform(entry)
        if found.setdefault(name, entry) is not entry and entry["digest"] != found[name]["digest"]:
            raise BuildError(f"{layout} and {other} both have an image for {name}: build one of them for another")
    for blob in _blobs(other).iterdir():
        if not (_blobs(layout) / blob.name).exists():
            shutil.copyfile(blob, _blobs(layout) / blob.name)
    _blob(layout, before).unlink()
    _write_index(layout, [found[name] for name in sorted(found)])


def digest(layout: Path) -> str:
    """Return the image's digest, ``sha256:...``: that of the index over its platforms."""
    text: str = _entry(layout)["digest"]
    return text


def manifests(layout: Path) -> list[Descriptor]:
    """Return the descriptors of the image's manifests, one for each platform."""
    entries: list[Descriptor] = json.loads(_read(layout, digest(layout)))["manifests"]
    return entries


def platform(entry: Descriptor) -> str:
    """Return a descriptor's platform, such as linux/amd64."""
    parts = entry["platform"]
    return "/".join(parts[key] for key in ("os", "architecture", "variant") if key in parts)


def layers(layout: Path, entry: Descriptor) -> Iterator[tarfile.TarFile]:
    """Yield the layers of one platform's image, lowest first."""
    for layer in json.loads(_read(layout, entry["digest"]))["layers"]:
        with tarfile.open(_blob(layout, layer["digest"]), "r:gz") as tar:
            yield tar


def _write_index(layout: Path, entries: list[Descriptor]) -> None:
    """Make ``entries`` the image's platforms."""
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}
    top = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [_add(layout, _canonical(index), INDEX)]}
    (layout / "index.json").write_bytes(_canonical(top))
    (layout / "oci-layout").write_bytes(_canonical({"imageLayoutVersion": "1.0.0"}))


def _entry(layout: Path) -> Descriptor:
    try:
        (entry,) = json.loads((layout / "index.json").read_bytes())["manifests"]
    except (OSError, ValueError, KeyError) as error:
        raise BuildError(f"{layout} is no OCI layout of one image: {error}") from error
    found: Descriptor = entry
    return found


def _add(layout: Path, content: bytes, media_type: str) -> Descriptor:
    name = hashlib.sha256(content).hexdigest()
    (_blobs(layout) / name).write_bytes(content)
    return {"mediaType": media_type, "digest": f"sha256:{name}", "size": len(content)}


def _add_layer(layout: Path, tar: tarfile.TarFile, name: str) -> Descriptor:
    source = tar.extractfile(name)
    if source is None:
        raise BuildError(f"the archive lists the layer {name} and does not have it: build the image again")
    with tempfile.NamedTemporaryFile(dir=_blobs(layout), delete=False) as target:
        if source.read(len(_GZIP)) == _GZIP:
            source.seek(0)
            shutil.copyfileobj(source, target, _CHUNK)
        else:
            source.seek(0)
            with gzip.GzipFile(filename="", mode="wb", fileobj=target, compresslevel=6, mtime=0) as compressed:
                shutil.copyfileobj(source, compressed, _CHUNK)
    path = Path(target.name)
    with path.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()
    path.chmod(0o644)
    path.rename(_blobs(layout) / content)
    return {"mediaType": LAYER, "digest": f"sha256:{content}", "size": (_blobs(layout) / content).stat().st_size}


@contextmanager
def _opened(archive: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(archive) as tar:
            yield tar
    except (tarfile.TarError, KeyError, OSError) as error:
        raise BuildError(f"{archive} is no docker archive: {error}") from error


def _json(tar: tarfile.TarFile, name: str) -> Any:
    file: IO[bytes] | None = tar.extractfile(name)
    return json.loads(file.read()) if file else [{}]


def _canonical(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":"), sort_keys=True).encode()


def _blobs(layout: Path) -> Path:
    return layout / "blobs" / "sha256"


def _blob(layout: Path, name: str) -> Path:
    return _blobs(layout) / name.removeprefix("sha256:")


def _read(layout: Path, name: str) -> bytes:
    return _blob(layout, name).read_bytes()
