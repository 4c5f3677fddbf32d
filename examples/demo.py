"""`make demo`: from nothing to streamed completions on a real Kubernetes.

It runs on the cluster that is given (KUBECONFIG, or CONTEXT=...), else on one of kind or k3d where Docker runs, else
on one that it builds on this machine. Each step is what a user would do by hand, and is skipped when it is done
already: run it again at any time.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from builder import build, cache, engines, inputs
from builder.build import Built, Plan
from builder.errors import BuildError
from cluster import binaries, deps, others
from cluster.core import Cluster
from cluster.errors import ClusterError
from cluster.others import Other

REPOSITORY = Path(__file__).resolve().parents[1]
SYSTEM_NAMESPACE = "tandem-system"
MARK = "demo=tandem"
"""Label of the Helm release, by which the demo knows its own on a cluster that is used for more."""
READY_SECONDS = 600
KUBECONFIGS = REPOSITORY / "build" / "demo"


@dataclass(frozen=True)
class Shown:
    """What the demo of a profile serves; `alone`: a request may go without drafts, so that both can be compared."""

    profile: str
    service: str
    example: Path
    alone: bool

    @property
    def images(self) -> list[str]:
        """Names of the images that it needs; that of the profile has the profile's name."""
        return list(dict.fromkeys((*inputs.DEFAULT, self.profile)))


QUICKSTART = Shown("reference", "quickstart", REPOSITORY / "examples/quickstart.yaml", alone=True)
PROFILES = {
    shown.profile: shown
    for shown in (
        QUICKSTART,
        Shown("vllm-cpu", "quickstart-vllm", REPOSITORY / "examples/vllm-cpu.yaml", alone=False),
    )
}


def say(text: str) -> None:
    """One line of progress."""
    typer.echo(f"   {text}")


@contextmanager
def step(title: str) -> Iterator[None]:
    """Say what begins and how long it took."""
    typer.secho(f">> {title}", bold=True)
    started = time.monotonic()
    yield
    say(f"done in {time.monotonic() - started:.0f} s")


def built_images(shown: Shown = QUICKSTART) -> list[Built]:
    """Build what changed of the images."""
    engine = engines.choose(cache.default().root, None)
    plan = Plan(REPOSITORY, cache.default(), engine.local_base)
    return build.build(plan, engine, inputs.select(shown.images))


def helm_values(images: list[Built]) -> dict[str, object]:
    """Values that make the chart use the images that were just built."""
    refs = {image.name: image.ref for image in images}
    repository, _, tag = refs["operator"].rpartition(":")
    return {
        "image": {"repository": repository, "tag": tag},
        "servingImage": refs["serving"],
        "fetcherImage": refs["fetcher"],
        "profiles": [{"name": name, "image": refs[name]} for name in PROFILES if name in refs],
    }


def helm(cluster: Cluster | Other, *arguments: str, values: object = None) -> str:
    """What helm prints; on a cluster of others the helm in PATH will do."""
    binary = others.tool("helm") if isinstance(cluster, Other) else binaries.ensure(["helm"], say)["helm"]
    command = [str(binary), *arguments, "--namespace", SYSTEM_NAMESPACE, "--kubeconfig", str(cluster.kubeconfig)]
    done = subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"helm {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout


def install(cluster: Cluster | Other, images: list[Built], **values: object) -> None:
    """Install, or upgrade, the chart with more `values`, and wait until the operator is up."""
    chart = ("upgrade", "--install", "tandem", str(REPOSITORY / "charts/tandem"), "--labels", MARK)
    options = ("--create-namespace", "--wait", "--timeout", "3m", "--values", "-")
    helm(cluster, *chart, *options, values=helm_values(images) | values)


def check_free(cluster: Other, shown: Shown = QUICKSTART) -> None:
    """Raises ClusterError where Tandem is installed already, and not by the demo, which would replace it."""
    found = ("list", "--filter", "^tandem$", "--output", "json")
    if json.loads(helm(cluster, *found)) and not json.loads(helm(cluster, *found, "--selector", MARK)):
        raise ClusterError(
            f"the cluster of {cluster.context} has Tandem already: apply {shown.example} there, or choose"
            " another cluster"
        )


def apply(cluster: Cluster | Other, images: list[Built], shown: Shown) -> None:
    """Apply the example; one that serves older images is made anew, since a service keeps what it started with."""
    found = cluster.kubectl.get("deployments", "-l", f"serving.tandem.dev/service={shown.service}")["items"]
    used = {
        container["image"]
        for deployment in found
        for containers in ("initContainers", "containers")
        for container in deployment["spec"]["template"]["spec"][containers]
    }
    if used - {image.ref for image in images}:
        say("the images changed: the service is made anew")
        cluster.kubectl.run("delete", "sis", shown.service)
        cluster.kubectl.run("wait", "--for=delete", f"deployment/{shown.service}-server", "--timeout=60s")
    cluster.kubectl.run("apply", "-f", str(shown.example))


def wait_ready(cluster: Cluster | Other, service: str) -> None:
    """Show the reason of Ready as it changes, until it is True."""
    said, deadline = "", time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        status = cluster.kubectl.get("sis", service).get("status", {})
        ready = next((c for c in status.get("conditions", []) if c["type"] == "Ready"), None)
        text = f"{ready['reason']}: {ready['message']}" if ready else "waiting for the operator"
        if text != said:
            say(text)
            said = text
        if ready and ready["status"] == "True":
            return
        time.sleep(0.5)
    raise ClusterError(
        f"{service} is not Ready after {READY_SECONDS} s; see `kubectl describe sis {service}` and"
        f" `kubectl -n {SYSTEM_NAMESPACE} logs deploy/tandem-operator`"
    )


def generate(cluster: Cluster | Other, shown: Shown = QUICKSTART) -> int:
    """Stream the example prompts, with speculation and, where a request may choose, without."""
    target = [shown.service]
    if isinstance(cluster, Cluster):
        # By the address that pods use, which this cluster's host reaches too: a port-forward would cost as much
        # as a small model's pass. From elsewhere `tandem generate NAME` makes one by itself.
        address = cluster.kubectl.get("service", f"{shown.service}-triton")["spec"]["clusterIP"]
        target = ["--url", f"{address}:8001"]
    command = [sys.executable, "-m", "tandem", "generate", *target, *(["--compare"] if shown.alone else [])]
    command += ["--prompts", str(REPOSITORY / "examples/prompts.jsonl"), "--max-tokens", "96"]
    path = f"{cluster.kubectl.binary.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "PATH": path}
    return subprocess.run(command, env=environment, check=False).returncode


def elsewhere(name: str, context: str, registry: str) -> Other | None:
    """The cluster that is given, or one in Docker; None where this machine has to be one."""
    # A shell that uses the demo's own cluster has its kubeconfig.
    own = os.environ.get("KUBECONFIG") == str(Cluster(name).kubeconfig) and not registry
    if context or (others.wanted() and not own):
        return others.given(KUBECONFIGS, context, registry)
    return None if Cluster(name).status() else others.in_docker(KUBECONFIGS, name, say)


def prepare_other(cluster: Other, shown: Shown) -> list[Built]:
    """Bring the images to a cluster of others, and return them as they are named there."""
    say(f"{cluster.context} ({cluster.server}): Tandem goes into namespace {SYSTEM_NAMESPACE}, with its resource and")
    say(f"rights for the whole cluster; the service {shown.service} into the current namespace")
    cluster.check_takes_images()
    check_free(cluster, shown)
    with step(f"Images: {', '.join(shown.images)}"):
        images = built_images(shown)
    with step("Images into the cluster"):
        refs = cluster.take({image.name: others.Image(image.ref, image.archive) for image in images}, say)
    return [replace(image, ref=refs[image.name]) for image in images]


def prepare_own(cluster: Cluster, shown: Shown) -> list[Built]:
    """Build a Kubernetes on this machine, and return the images that are in it."""
    if absent := [name for name in binaries.STANDARD if binaries.find(name) is None]:
        say(f"no kubeconfig is given, and neither kind nor k3d runs here: {len(absent)} programs of Kubernetes")
        say("are compiled first, once, for 20 minutes of two quiet cores (40 were measured on busy ones)")
    with step("Debian packages for containers and image builds"):
        if missing := deps.missing(deps.NODE_NEEDS + deps.IMAGE_NEEDS):
            say(deps.describe(missing))
            deps.install(missing)
    with step(f"Images: {', '.join(shown.images)}"):
        images = built_images(shown)
    with step("A one-node Kubernetes: API server, controllers, scheduler, kubelet, containerd"):
        cluster.up(["real"])
        for image in images:
            cluster.import_image(image.archive)
    return images


def demo(
    name: str = "tandem",
    context: Annotated[str, typer.Option(help="Context of kubectl's configuration: use that cluster.")] = "",
    registry: Annotated[str, typer.Option(help="Host and path where that cluster pulls images from.")] = "",
    profile: Annotated[str, typer.Option(help=f"What serves: {' or '.join(PROFILES)}.")] = QUICKSTART.profile,
) -> None:
    """Find or start a Kubernetes, build and install Tandem, serve the example pair and stream completions."""
    shown = chosen(profile)
    other = elsewhere(name, context, registry)
    cluster = other or Cluster(name, say=say)
    images = prepare_other(other, shown) if other else prepare_own(Cluster(name, say=say), shown)
    with step("The chart: CRD, rights, operator"):
        install(cluster, images)
    with step(f"examples/{shown.example.name}: a SpeculativeInferenceService"):
        apply(cluster, images, shown)
        wait_ready(cluster, shown.service)
    typer.secho(">> Completions: text from accepted draft tokens is green", bold=True)
    code = generate(cluster, shown)
    if code:
        raise typer.Exit(code)
    typer.secho(">> It is yours now", bold=True)
    kubectl = cluster.kubectl.binary
    for line in (
        f"export KUBECONFIG={cluster.kubeconfig}",
        f"export PATH=$PATH:{kubectl.parent}:{REPOSITORY / '.venv/bin'}",
        f"kubectl get sis,pods                      # kubectl describe sis {shown.service}",
        f"tandem generate {shown.service} -p 'def fibonacci(n):'",
        f"kubectl edit sis {shown.service}                # try maxDraftLen: 2, or a wrong model path",
        *removal(other, shown.service),
    ):
        say(line)


def chosen(profile: str) -> Shown:
    """What a profile's demo is. Raises ClusterError: it has none."""
    if profile not in PROFILES:
        raise ClusterError(f"no demo of profile {profile}: write PROFILE={' or PROFILE='.join(PROFILES)}")
    return PROFILES[profile]


def removal(other: Other | None, service: str = QUICKSTART.service) -> list[str]:
    """The commands that remove what the demo made."""
    if other is None:
        return ["make down                                 # remove all of it"]
    loader, _, name = other.context.partition("-")
    if other.ours:
        delete = {"kind": f"kind delete cluster --name {name}", "k3d": f"k3d cluster delete {name}"}
        return [f"{delete[loader]}          # remove all of it"]
    return [
        f"kubectl delete sis {service} && helm uninstall tandem -n {SYSTEM_NAMESPACE} --wait",
        "kubectl delete crd speculativeinferenceservices.serving.tandem.dev   # and every service of the cluster",
    ]


def main() -> None:
    """Run the demo; an expected error is one message and exit code 1."""
    try:
        typer.run(demo)
    except (ClusterError, BuildError) as error:
        typer.secho(f"error: {error}", fg="red", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
