"""Writes a release's folder, from images to signature."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives.asymmetric import ec

from builder import progress
from builder.errors import BuildError
from release import chart, oci, plugin, provenance, sbom, signature, tools

ROOT = Path(__file__).resolve().parents[2]
IMAGES = "images.json"
REGISTRY = "docker.io/tandem"
"""Where the chart of the repository looks for images."""


@dataclass(frozen=True)
class Order:
    """What is asked for."""

    version: str
    registry: str = REGISTRY
    """Host and path where it will be published: the chart has it among its defaults."""
    joined: Sequence[Path] = ()
    """Folders of the same release made on machines of other architectures, whose images are taken in."""
    plugins: Sequence[str] = plugin.PLATFORMS
    """Platforms of the kubectl plugin."""
    downloads: str = ""
    """URL of the folder where the plugin's archives will be; empty: no krew manifest is written."""
    key: ec.EllipticCurvePrivateKey | None = None
    """Signs the checksums."""


def make(order: Order, archives: Mapping[str, Path], source: provenance.Source, folder: Path) -> chart.Images:
    """Write the release of these docker archives, by image, into ``folder``; raises BuildError.

    ``folder`` appears when all is written; one of an earlier try is replaced.
    """
    began = _now()
    unfinished = folder.with_name(f".{folder.name}")
    for old in (unfinished, folder):
        shutil.rmtree(old, ignore_errors=True)
    unfinished.mkdir(parents=True)
    with progress.step("images as OCI layouts"):
        images = _images(order, archives, source, unfinished)
    with progress.step("chart, manifests"):
        _manifests(order, images, unfinished)
    with progress.step("bills of materials"):
        _sboms(order, list(archives), unfinished)
    with progress.step(f"kubectl plugin: {', '.join(order.plugins) or 'for no platform'}"):
        _plugins(order, unfinished)
    _attest(order, images, source, began, unfinished)
    unfinished.replace(folder)
    return images


def _images(order: Order, archives: Mapping[str, Path], source: provenance.Source, folder: Path) -> chart.Images:
    about = {
        "version": order.version,
        "revision": source.commit,
        "source": source.repository,
        "licenses": "Apache-2.0",
    }
    for name, archive in archives.items():
        labels = {"title": f"tandem/{name}", **{key: text for key, text in about.items() if text}}
        layout = folder / "images" / name
        oci.from_archive(archive, layout, {f"org.opencontainers.image.{key}": text for key, text in labels.items()})
        for other in order.joined:
            oci.join(layout, other / "images" / name)
    images = chart.Images(order.registry, {name: oci.digest(folder / "images" / name) for name in archives})
    described = {
        name: {
            "ref": images.ref(name),
            "platforms": [oci.platform(entry) for entry in oci.manifests(folder / "images" / name)],
        }
        for name in archives
    }
    _write_json(folder / IMAGES, {"version": order.version, "registry": order.registry, "images": described})
    return images


def _manifests(order: Order, images: chart.Images, folder: Path) -> None:
    archive = chart.package(images, order.version, folder)
    (folder / "install.yaml").write_text(chart.manifests(archive), encoding="utf-8")
    (folder / "kustomization.yaml").write_text(chart.kustomization(order.version), encoding="utf-8")


def _sboms(order: Order, names: Sequence[str], folder: Path) -> None:
    for name in names:
        layout = folder / "images" / name
        for entry in oci.manifests(layout):
            packages = sbom.of_image(layout, entry, sbom.pinned(ROOT, name))
            path = folder / f"sbom-{name}-{oci.platform(entry).replace('/', '-')}.cdx.json"
            _write_json(path, sbom.document(name, order.version, entry["digest"], packages))


def _plugins(order: Order, folder: Path) -> None:
    sums = {}
    for platform in order.plugins:
        path = plugin.archive(ROOT, platform, folder)
        sums[platform] = signature.sha256(path)
    if order.downloads and sums:
        text = yaml.safe_dump(plugin.manifest(order.version, order.downloads, sums), sort_keys=False)
        (folder / "krew.yaml").write_text(text, encoding="utf-8")


def _attest(order: Order, images: chart.Images, source: provenance.Source, began: str, folder: Path) -> None:
    """Provenance of all files, then their checksums, which cover it, then the signature of these."""
    subjects = signature.sums(folder)
    subjects |= {f"{order.registry}/{name}": digest.partition(":")[2] for name, digest in images.digests.items()}
    parameters = {"VERSION": order.version, "REGISTRY": order.registry}
    statement = provenance.statement(subjects, parameters, source, provenance.builder(), (began, _now()))
    _write_json(folder / "provenance.json", statement)
    signature.write_sums(folder)
    if order.key:
        signature.sign(folder, order.key)


def source(root: Path = ROOT) -> provenance.Source:
    """Return what a release of the checkout ``root`` is made from; raises BuildError where it is no clean commit."""
    if changes := tools.run(["git", "status", "--porcelain"], root).splitlines():
        raise BuildError(
            f"the checkout has {len(changes)} files that are not committed ({changes[0][3:]}, ...): a release is made"
            " of a commit, so commit or remove them"
        )
    commit = tools.run(["git", "rev-parse", "HEAD"], root).strip()
    remotes = tools.run(["git", "remote"], root).split()
    url = tools.run(["git", "remote", "get-url", remotes[0]], root).strip() if remotes else ""
    fixed = sorted([*root.glob("images/*/*requirements.txt"), *root.glob("images/*/Containerfile")])
    sums = {str(path.relative_to(root)): signature.sha256(path) for path in fixed}
    return provenance.Source(url if url.startswith("https://") else "", commit, sums)


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
