"""Image archives made and loaded without a registry or a container engine."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

from cluster import files
from cluster.errors import ClusterError

OCI_NAME = "org.opencontainers.image.ref.name"


def write_scratch_image(binary: Path, tag: str, archive: Path) -> None:
    """Write a docker-archive with one static ``binary`` as its only file and entry point.

    Args:
        binary: a program that needs no libraries.
        tag: the image's name, such as ``localhost/tandem/pause:v0``.
        archive: the file to write.
    """
    layer = _tar({binary.name: (binary.read_bytes(), 0o755)})
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": [f"/{binary.name}"], "User": "65535:65535"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [tag], "Layers": [f"{digest}.tar"]}]
    content = {
        "manifest.json": (json.dumps(manifest).encode(), 0o644),
        config_name: (config, 0o644),
        f"{digest}.tar": (layer, 0o644),
    }
    files.write(archive, _tar(content))


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def names(archive: Path) -> list[str]:
    """Return the names of the images in a docker-archive or an OCI archive; none when it says none.

    Raises:
        ClusterError: when the file is no image archive.
    """
    if not archive.exists():
        raise ClusterError(f"there is no image archive {archive}: build the image first")
    with tarfile.open(archive) as opened:
        for member in opened:
            content = opened.extractfile(member)
            if content and member.name == "manifest.json":
                return [tag for entry in json.load(content) for tag in entry["RepoTags"] or []]
            if content and member.name == "index.json":
                entries = [entry.get("annotations", {}) for entry in json.load(content)["manifests"]]
                return [entry[OCI_NAME] for entry in entries if OCI_NAME in entry]
    raise ClusterError(f"{archive} holds neither manifest.json nor index.json: not an image archive")
