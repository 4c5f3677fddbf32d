"""Small docker archives, as the build tool makes large ones."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def tar(files: Mapping[str, str]) -> bytes:
    """A tar file with these texts."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return made.getvalue()


def write(path: Path, layers: Sequence[Mapping[str, str]], architecture: str = "amd64") -> Path:
    """Write the image of these layers, lowest first, and return `path`."""
    tars = [tar(files) for files in layers]
    diffs = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in tars]
    config = {"architecture": architecture, "os": "linux", "rootfs": {"type": "layers", "diff_ids": diffs}}
    names = [f"{number}.tar" for number in range(len(tars))]
    manifest = [{"Config": "config.json", "RepoTags": ["localhost/tandem/x:1"], "Layers": names}]
    texts = {"config.json": json.dumps(config), "manifest.json": json.dumps(manifest)}
    with tarfile.open(path, "w") as archive:
        for name, content in (*((n, t.encode()) for n, t in texts.items()), *zip(names, tars, strict=True)):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path
