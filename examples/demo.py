"""`make demo`: from nothing to streamed completions on a real Kubernetes on this machine.

Each step is what a user would do by hand, and is skipped when it is done already: run it again at any time.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from builder import build, cache, engines, inputs
from builder.build import Built, Plan
from builder.errors import BuildError
from cluster import binaries, deps
from cluster.core import Cluster
from cluster.errors import ClusterError

REPOSITORY = Path(__file__).resolve().parents[1]
SYSTEM_NAMESPACE = "tandem-system"
SERVICE = "quickstart"
READY_SECONDS = 600


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


def built_images() -> list[Built]:
    """Build what changed of the images."""
    engine = engines.choose(cache.default().root, None)
    plan = Plan(REPOSITORY, cache.default(), engine.local_base)
    return build.build(plan, engine, inputs.select([]))


def helm_values(images: list[Built]) -> dict[str, object]:
    """Values that make the chart use the images that were just built."""
    refs = {image.name: image.ref for image in images}
    repository, _, tag = refs["operator"].rpartition(":")
    return {
        "image": {"repository": repository, "tag": tag},
        "servingImage": refs["serving"],
        "fetcherImage": refs["fetcher"],
        "profiles": [{"name": "reference", "image": refs["reference"]}],
    }


def install(cluster: Cluster, images: list[Built], **values: object) -> None:
    """Install, or upgrade, the chart with more `values`, and wait until the operator is up."""
    helm = binaries.ensure(["helm"], say)["helm"]
    command = [str(helm), "upgrade", "--install", "tandem", str(REPOSITORY / "charts/tandem")]
    command += ["--namespace", SYSTEM_NAMESPACE, "--create-namespace", "--values", "-"]
    command += ["--kubeconfig", str(cluster.kubeconfig), "--wait", "--timeout", "3m"]
    given = json.dumps(helm_values(images) | values)
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"helm could not install the chart: {done.stderr.strip()}")


def apply(cluster: Cluster, images: list[Built]) -> None:
    """Apply the example; one that serves older images is made anew, since a service keeps what it started with."""
    found = cluster.kubectl.get("deployments", "-l", f"serving.tandem.dev/service={SERVICE}")["items"]
    used = {
        container["image"]
        for deployment in found
        for containers in ("initContainers", "containers")
        for container in deployment["spec"]["template"]["spec"][containers]
    }
    if used - {image.ref for image in images}:
        say("the images changed: the service is made anew")
        cluster.kubectl.run("delete", "sis", SERVICE)
        cluster.kubectl.run("wait", "--for=delete", f"deployment/{SERVICE}-server", "--timeout=60s")
    cluster.kubectl.run("apply", "-f", str(REPOSITORY / "examples/quickstart.yaml"))


def wait_ready(cluster: Cluster) -> None:
    """Show the reason of Ready as it changes, until it is True."""
    said, deadline = "", time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        status = cluster.kubectl.get("sis", SERVICE).get("status", {})
        ready = next((c for c in status.get("conditions", []) if c["type"] == "Ready"), None)
        text = f"{ready['reason']}: {ready['message']}" if ready else "waiting for the operator"
        if text != said:
            say(text)
            said = text
        if ready and ready["status"] == "True":
            return
        time.sleep(0.5)
    raise ClusterError(
        f"{SERVICE} is not Ready after {READY_SECONDS} s; see `kubectl describe sis {SERVICE}` and"
        f" `kubectl -n {SYSTEM_NAMESPACE} logs deploy/tandem-operator`"
    )


def generate(cluster: Cluster) -> int:
    """Stream the example prompts, with speculation and without."""
    # By the address that pods use, which this cluster's host reaches too: a port-forward would cost as much
    # as a small model's pass. From elsewhere `tandem generate NAME` makes one by itself.
    address = cluster.kubectl.get("service", f"{SERVICE}-triton")["spec"]["clusterIP"]
    command = [sys.executable, "-m", "tandem", "generate", "--url", f"{address}:8001", "--compare"]
    command += ["--prompts", str(REPOSITORY / "examples/prompts.jsonl"), "--max-tokens", "96"]
    return subprocess.run(command, check=False).returncode


def demo(name: str = "tandem") -> None:
    """Start a Kubernetes, build and install Tandem, serve the example pair and stream completions."""
    cluster = Cluster(name, say=say)
    with step("Debian packages for containers and image builds"):
        if missing := deps.missing(deps.NODE_NEEDS + deps.IMAGE_NEEDS):
            say(deps.describe(missing))
            deps.install(missing)
    with step("Images: operator, serving, reference"):
        images = built_images()
    with step("A one-node Kubernetes: API server, controllers, scheduler, kubelet, containerd"):
        cluster.up(["real"])
        for image in images:
            cluster.import_image(image.archive)
    with step("The chart: CRD, rights, operator"):
        install(cluster, images)
    with step("examples/quickstart.yaml: a SpeculativeInferenceService"):
        apply(cluster, images)
        wait_ready(cluster)
    typer.secho(">> Completions: text from accepted draft tokens is green", bold=True)
    code = generate(cluster)
    if code:
        raise typer.Exit(code)
    typer.secho(">> It is yours now", bold=True)
    kubectl = cluster.kubectl.binary
    for line in (
        f"export KUBECONFIG={cluster.kubeconfig}",
        f"export PATH=$PATH:{kubectl.parent}:{REPOSITORY / '.venv/bin'}",
        f"kubectl get sis,pods                      # kubectl describe sis {SERVICE}",
        f"tandem generate {SERVICE} -p 'def fibonacci(n):'",
        f"kubectl edit sis {SERVICE}                # try maxDraftLen: 2, or a wrong model path",
        "make down                                 # remove all of it",
    ):
        say(line)


def main() -> None:
    """Run the demo; an expected error is one message and exit code 1."""
    try:
        typer.run(demo)
    except (ClusterError, BuildError) as error:
        typer.secho(f"error: {error}", fg="red", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
