"""Clusters that other programs made: one by its kubeconfig, or kind's and k3d's, which run where Docker does."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster import binaries, files, shell
from cluster.binaries import Say
from cluster.errors import ClusterError
from cluster.kubeconfig import Kubectl

LOADERS = ("kind", "k3d")
"""Programs that make clusters in Docker and load images into them; their contexts are named PROGRAM-NAME."""


@dataclass(frozen=True)
class Image:
    """A built image: its reference and its docker archive."""

    ref: str
    archive: Path


@dataclass(frozen=True)
class Other:
    """A cluster by a kubeconfig with one context.

    ``registry``: host and path where it pulls images; empty: none. ``ours``: this module made it.
    """

    context: str
    server: str
    kubectl: Kubectl
    registry: str = ""
    ours: bool = False

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig; its only context is the current one."""
        return self.kubectl.kubeconfig

    def take(self, images: Mapping[str, Image], say: Say) -> dict[str, str]:
        """Bring images to where the cluster starts pods from; returns their references there, by name.

        Raises:
            ClusterError: when there is no way, or the program that does it fails.
        """
        self.check_takes_images()
        if self.registry:
            return {name: self._push(image, say) for name, image in images.items()}
        loader, _, name = self.context.partition("-")
        for image in images.values():
            say(f"{loader} loads {image.ref}")
            shell.call(*load_command(loader, name, image))
        return {name: image.ref for name, image in images.items()}

    def check_takes_images(self) -> None:
        """Raise ClusterError where there is no way for images of this machine into the cluster."""
        loader = self.context.partition("-")[0]
        if not self.registry and (loader not in LOADERS or not shutil.which(loader)):
            raise ClusterError(
                f"the cluster of {self.context} starts no image of this machine: write REGISTRY=host/path, where it"
                " can pull and you can push; kind and k3d load images into theirs, with these programs in PATH"
            )

    def _push(self, image: Image, say: Say) -> str:
        ref = f"{self.registry}/{image.ref.rpartition('/')[2]}"
        say(f"pushing {ref}")
        shell.call(str(binaries.ensure(["crane"], say)["crane"]), "push", str(image.archive), ref)
        return ref


def load_command(loader: str, cluster: str, image: Image) -> list[str]:
    """Return the command that loads an image's archive into a cluster of kind or k3d."""
    if loader == "kind":
        return ["kind", "load", "image-archive", str(image.archive), "--name", cluster]
    return ["k3d", "image", "import", str(image.archive), "--cluster", cluster]


def given(folder: Path, context: str = "", registry: str = "") -> Other:
    """Return the cluster of a context of kubectl's configuration, the current one for none.

    What it needs of that configuration is copied into ``folder``. Raises ClusterError when it does not answer.
    """
    kubectl = tool("kubectl")
    chosen = [f"--context={context}"] if context else []
    text = shell.call(str(kubectl), "config", "view", "--minify", "--flatten", "--raw", "-o", "json", *chosen)
    config = json.loads(text)
    name, server = config["current-context"], config["clusters"][0]["cluster"]["server"]
    folder.mkdir(parents=True, exist_ok=True)
    files.write(folder / "kubeconfig", text, mode=0o600)
    other = Other(name, server, Kubectl(kubectl, folder / "kubeconfig"), registry)
    other.kubectl.run("get", "--raw", "/readyz", "--request-timeout=30s")
    return other


def in_docker(folder: Path, name: str, say: Say) -> Other | None:
    """Return the cluster of that name of kind or k3d, made where there is none; None where neither runs here."""
    loader = next((program for program in LOADERS if shutil.which(program)), None)
    if loader is None or not shutil.which("docker") or not shell.succeeds("docker", "info"):
        return None
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / f"{loader}-kubeconfig"
    if name not in shell.call(*_list_command(loader)).split():
        say(f"{loader} makes the cluster {name}")
        shell.call(*_create_command(loader, name, config))
    get = ("kind", "get", "kubeconfig", "--name", name) if loader == "kind" else ("k3d", "kubeconfig", "get", name)
    files.write(config, shell.call(*get), mode=0o600)
    kubectl = Kubectl(tool("kubectl"), config)
    return Other(f"{loader}-{name}", f"{loader}'s, in Docker", kubectl, ours=True)


def _list_command(loader: str) -> list[str]:
    if loader == "kind":
        return ["kind", "get", "clusters"]
    return ["k3d", "cluster", "list", "--no-headers"]


def _create_command(loader: str, name: str, config: Path) -> list[str]:
    """The user's own configuration, and its current context, stay as they are."""
    if loader == "kind":
        return ["kind", "create", "cluster", "--name", name, "--wait", "180s", "--kubeconfig", str(config)]
    return ["k3d", "cluster", "create", name, "--wait", "--timeout", "180s", "--kubeconfig-update-default=false"]


def tool(name: str) -> Path:
    """Return kubectl or helm: the one in PATH, else built from its Go module; raises ClusterError."""
    found = shutil.which(name)
    return Path(found) if found else binaries.ensure([name], print)[name]


def wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Tell whether a kubeconfig is given: by KUBECONFIG. The one in the home folder is not: it was not meant."""
    return bool(environment.get("KUBECONFIG"))
