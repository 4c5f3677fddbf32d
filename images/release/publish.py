"""Copies a release's images and chart to its registry, as they are."""

from __future__ import annotations

import json
from pathlib import Path

from builder import progress
from builder.errors import BuildError
from release import chart, oci, signature, tools
from release.make import IMAGES

_NEVER_CHANGES = "a published version never changes, so make the next one"


def publish(folder: Path) -> str:
    """Push the release in ``folder`` to the registry that it was made for; returns the chart's reference.

    The chart goes last: what it names is there. A version that is published already is not changed: pushing the same
    again is no error, another one is. Raises BuildError.
    """
    _check(folder)
    about = json.loads((folder / IMAGES).read_text(encoding="utf-8"))
    version, registry = about["version"], about["registry"]
    for name in about["images"]:
        layout = folder / "images" / name
        _push(layout, f"{registry}/{name}:{version}", oci.digest(layout))
    _push_chart(folder / f"{chart.NAME}-{version}.tgz", f"{registry}/charts/{chart.NAME}:{version}")
    return f"oci://{registry}/charts/{chart.NAME}"


def _check(folder: Path) -> None:
    if not (folder / signature.SUMS).is_file():
        raise BuildError(f"{folder} is no release: make it first, by `make release VERSION=...`")
    lines = (folder / signature.SUMS).read_text(encoding="utf-8").splitlines()
    listed = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    found = signature.sums(folder)
    changed = sorted(name for name in listed.keys() | found.keys() if listed.get(name) != found.get(name))
    if changed:
        raise BuildError(f"{folder} is not as it was made: {', '.join(changed[:3])} differ from {signature.SUMS}")


def _push(layout: Path, ref: str, digest: str) -> None:
    there = _published(ref)
    if there == digest:
        progress.say(f">> {ref} is there")
        return
    if there:
        raise BuildError(f"{ref} is published as {there}, not as {digest}: {_NEVER_CHANGES}")
    with progress.step(ref):
        tools.crane("push", layout, ref)
    if (found := _published(ref)) != digest:
        raise BuildError(f"{ref} is {found or 'missing'} after the push, not {digest}: the registry rewrites images")


def _push_chart(archive: Path, ref: str) -> None:
    if _published(ref):
        (layer,) = json.loads(tools.crane("manifest", ref))["layers"]
        if layer["digest"] != f"sha256:{signature.sha256(archive)}":
            raise BuildError(f"{ref} is published as another chart: {_NEVER_CHANGES}")
        progress.say(f">> {ref} is there")
        return
    plain = ["--plain-http"] if tools.on_loopback(ref) else []
    with progress.step(ref):
        tools.helm("push", archive, f"oci://{ref.rpartition('/')[0]}", *plain)


def _published(ref: str) -> str:
    """Return the digest of a tag in its registry; empty where it has none, or does not show it."""
    try:
        return tools.crane("digest", ref).strip()
    except BuildError:
        return ""
