"""Writing files that running programs watch."""

from __future__ import annotations

from pathlib import Path


def write(path: Path, content: str | bytes, mode: int = 0o644) -> None:
    """Make ``path`` hold ``content``: at once and whole, and only when it does not already.

    Several of Kubernetes' programs watch their files: kube-proxy ends when its configuration is written again,
    and the kubelet complains of certificates that it reads half-written.
    """
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)
    partial.touch(mode=mode)
    partial.write_bytes(data)
    partial.replace(path)
