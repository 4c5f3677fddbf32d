"""Kubernetes' binaries, built from Go modules whose hashes are committed (go/*/go.sum).

They are cached outside the repository under ``<cache>/tandem/bin/<tool>-<version>-<hash>/``, the hash
being that of the tool's Go module, and built only when missing. A directory named by
``KUBEBUILDER_ASSETS`` (the convention of setup-envtest) is looked into first.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import ClusterError

GO_DIR = Path(__file__).parent / "go"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Tool:
    """One binary: the folder of its Go module below ``go/``, its package, and the module that versions it."""

    name: str
    module: str
    package: str
    versioned_by: str | None = None
    files: tuple[str, ...] = ()
    """Files and folders of the versioning module that go with the binary; they are put beside it."""
    optional: bool = False
    """Built only where it is asked for by name: `make binaries` leaves it out."""


def _kubernetes(name: str) -> Tool:
    return Tool(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}", "k8s.io/kubernetes")


def _flux(name: str) -> Tool:
    module = f"github.com/fluxcd/{name}"
    return Tool(name, "flux", module, module, ("config",), optional=True)


NEXT = ("kube-apiserver", "kube-controller-manager")
"""What there is of the next minor release of Kubernetes, too, as the tool ``NAME-next``."""


def _next(name: str) -> Tool:
    package = f"k8s.io/kubernetes/cmd/{name}"
    return Tool(f"{name}-next", "kubernetes-next", package, "k8s.io/kubernetes", optional=True)


KWOK_STAGES = tuple(
    f"kustomize/stage/{path}.yaml"
    for path in (
        "node/fast/node-initialize",
        "pod/fast/pod-ready",
        "pod/fast/pod-complete",
        "pod/fast/pod-delete",
    )
)
ARGO_CD = "github.com/argoproj/argo-cd/v3"
KEDA = "github.com/kedacore/keda/v2"
TOOLS = {
    tool.name: tool
    for tool in (
        *map(
            _kubernetes,
            (
                "kube-apiserver",
                "kube-controller-manager",
                "kube-scheduler",
                "kubectl",
                "kubelet",
                "kube-proxy",
            ),
        ),
        *map(_next, NEXT),
        Tool("etcd", "etcd", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3"),
        Tool("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok", "sigs.k8s.io/kwok", KWOK_STAGES),
        Tool("coredns", "coredns", "github.com/coredns/coredns", "github.com/coredns/coredns"),
        Tool("helm", "helm", "helm.sh/helm/v4/cmd/helm", "helm.sh/helm/v4"),
        Tool("kube-score", "kube-score", "github.com/zegl/kube-score/cmd/kube-score", "github.com/zegl/kube-score"),
        Tool(
            "crane",
            "crane",
            "github.com/google/go-containerregistry/cmd/crane",
            "github.com/google/go-containerregistry",
        ),
        Tool(
            "fake-gcs-server",
            "fake-gcs-server",
            "github.com/fsouza/fake-gcs-server",
            "github.com/fsouza/fake-gcs-server",
        ),
        Tool("keda-operator", "keda", f"{KEDA}/cmd/operator", KEDA, ("config",), optional=True),
        Tool("keda-adapter", "keda", f"{KEDA}/cmd/adapter", KEDA, optional=True),
        Tool("keda-admission-webhooks", "keda", f"{KEDA}/cmd/webhooks", KEDA, optional=True),
        *map(_flux, ("source-controller", "kustomize-controller", "helm-controller")),
        Tool("argo-cd", "argo-cd", ".", ARGO_CD, ("manifests/crds",), optional=True),
        Tool("pause", "pause", "."),
        Tool("probe", "probe", "."),
        Tool("gitops-health", "gitops-health", "."),
    )
}
STANDARD = tuple(tool.name for tool in TOOLS.values() if not tool.optional)
"""What `make binaries` builds."""


def cache_dir() -> Path:
    """Where built binaries stay: ``$XDG_CACHE_HOME`` (default ``~/.cache``) + ``/tandem/bin``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tandem" / "bin"


def version(tool: Tool) -> str:
    """Return the version of ``tool`` that its go.mod pins (our own programs have ``v0``)."""
    if tool.versioned_by is None:
        return "v0"
    return required_version((GO_DIR / tool.module / "go.mod").read_text(), tool.versioned_by)


def required_version(go_mod: str, module: str) -> str:
    """Return the version that the text of a go.mod requires of ``module``.

    Raises:
        ClusterError: when it does not require that module.
    """
    found = re.search(rf"^(?:require)?\s*{re.escape(module)} (v\S+)", go_mod, re.MULTILINE)
    if found is None:
        raise ClusterError(f"go.mod does not require {module}; run `go mod tidy` in its folder")
    return found.group(1)


def cached_path(tool: Tool) -> Path:
    """Return where the binary of ``tool`` is or will be; a change of its Go module changes it."""
    digest = hashlib.sha256()
    for file in sorted((GO_DIR / tool.module).glob("*")):
        digest.update(file.read_bytes())
    return cache_dir() / f"{tool.name}-{version(tool)}-{digest.hexdigest()[:8]}" / tool.name


def from_assets(name: str) -> Path | None:
    """Return the binary in ``$KUBEBUILDER_ASSETS``, if that is set and has it."""
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    if not folder:
        return None
    path = Path(folder) / name
    return path if os.access(path, os.X_OK) else None


def find(name: str) -> Path | None:
    """Return the binary when it need not be built: from ``$KUBEBUILDER_ASSETS`` or the cache."""
    if path := from_assets(name):
        return path
    path = cached_path(TOOLS[name])
    return path if path.exists() else None


def ensure(names: Iterable[str], say: Say) -> dict[str, Path]:
    """Return the path of each named binary, building those that are missing, one after the other.

    Raises:
        ClusterError: when Go is missing or a build fails; the message has the end of its output.
    """
    names = list(names)
    missing = [name for name in names if find(name) is None]
    for number, name in enumerate(missing, start=1):
        build(TOOLS[name], say, f"[{number}/{len(missing)}] ")
    return {name: find(name) or cached_path(TOOLS[name]) for name in names}


def next_release(say: Say) -> Path:
    """Return a folder for ``KUBEBUILDER_ASSETS`` with what there is of the next minor release of Kubernetes.

    Raises:
        ClusterError: as ``ensure``.
    """
    built = ensure([f"{name}-next" for name in NEXT], say)
    folder = cache_dir() / "next"
    folder.mkdir(exist_ok=True)
    for name in NEXT:
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(built[f"{name}-next"])
    return folder


def build(tool: Tool, say: Say, prefix: str = "") -> Path:
    """Build ``tool`` into the cache unless it is there; safe when several do so at once.

    What is said meanwhile starts with ``prefix``.
    """
    target = cached_path(tool)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.with_name(".lock")):
        if target.exists():
            return target
        say(f"{prefix}building {tool.name} {version(tool)} from Go modules ...")
        started = time.monotonic()
        _go_build(tool, target)
        say(f"{prefix}built {tool.name} in {time.monotonic() - started:.0f} s")
    return target


def _go_build(tool: Tool, target: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise ClusterError(
            f"{tool.name} has to be built, and there is no `go` on the PATH: install Go 1.26 or newer "
            "(https://go.dev/dl), or put the binary into the directory that KUBEBUILDER_ASSETS names"
        )
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{tool.name}.")
    os.close(handle)
    partial = Path(name)
    try:
        _run_go(tool, [go, "build", "-trimpath", "-ldflags", ldflags(tool), "-o", name, tool.package])
        if tool.files:
            source = Path(_run_go(tool, [go, "list", "-m", "-f", "{{.Dir}}", str(tool.versioned_by)]).strip())
            for file in tool.files:
                _put_beside(source / file, target.parent)
        partial.chmod(0o755)
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)


def _put_beside(source: Path, folder: Path) -> None:
    """Copy a file, or a folder as a whole; not its rights, as Go's module cache is read-only."""
    for file in [source] if source.is_file() else [path for path in source.rglob("*") if path.is_file()]:
        copy = folder / file.relative_to(source.parent)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)


def _run_go(tool: Tool, command: list[str]) -> str:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    done = subprocess.run(
        command, cwd=GO_DIR / tool.module, env=environment, text=True, capture_output=True, check=False
    )
    if done.returncode:
        raise ClusterError(f"building {tool.name} failed; the compiler says:\n{done.stderr[-2000:]}")
    return done.stdout


def ldflags(tool: Tool) -> str:
    """Return linker flags: no symbols, and for Kubernetes the version it answers with (not v0.0.0)."""
    if tool.versioned_by != "k8s.io/kubernetes":
        return "-s -w"
    full = version(tool)
    major, minor, _ = full.removeprefix("v").split(".", 2)
    prefix = "-X k8s.io/component-base/version"
    return f"-s -w {prefix}.gitVersion={full} {prefix}.gitMajor={major} {prefix}.gitMinor={minor}"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
