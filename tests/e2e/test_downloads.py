"""Models downloaded by real Jobs on a real kubelet, from a server in the cluster that speaks the Hub's protocol."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as triton

from builder.build import Built

from .completions import PROMPTS, stream, text
from .conftest import REPOSITORY, Site, wait_for
from .hub import Hub, volume

FETCHED = "fetched"
SIZE = (REPOSITORY / "images/reference/pair/target/model.safetensors").stat().st_size


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the cache volume is."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def hub(site: Site, images: list[Built], disk: Path) -> Iterator[Hub]:
    (image,) = (built.ref for built in images if built.name == "reference")
    made = Hub(site, image)
    site.run("apply", "-f", "-", stdin=json.dumps(volume(site, disk)))
    made.secret("hub")
    made.secret("outsider", "hf_outsider")
    yield made
    site.run("delete", "sis", FETCHED, "--ignore-not-found")
    site.run("delete", "--ignore-not-found", "secret/hub", "secret/outsider")
    made.remove()


def model(name: str, secret: str = "hub") -> dict[str, Any]:
    return {"model": {"uri": f"hf://pair/{name}", "secretName": secret}}


def bring_up(site: Site) -> None:
    """The service whose models come from the Hub: it stays for the module's tests."""
    site.apply(FETCHED, target=model("target"), draft=model("draft"))
    site.wait_condition(FETCHED, "Ready", "True")


def fetching(site: Site, name: str) -> list[dict[str, Any]]:
    pods = site.items("pods", site.label(name, "fetch"))
    return [pod for pod in pods if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]]


def test_a_corrupted_file_is_refused_by_name_until_the_job_is_deleted(site: Site, hub: Hub, another: str) -> None:
    hub.fault(corrupt=["model.safetensors"])
    site.apply(another, draft=model("draft"))
    found = site.wait_condition(another, "ModelsReady", "False")
    assert found["reason"] == "ChecksumMismatch"
    assert "model.safetensors" in found["message"]
    assert site.server_pods(another) == {}
    hub.fault(corrupt=[])
    site.run("delete", "jobs", "-l", site.label(another, "fetch"))
    site.wait_condition(another, "ModelsReady", "True")


def test_a_download_that_is_killed_goes_on_and_is_served(site: Site, hub: Hub) -> None:
    """The node's own files say the same as the Hub's, so the quickstart's completions are the standard."""
    hub.fault(bytes_per_second=SIZE / 240)  # the operator looks every 15 s, and a pod may not answer it at once
    site.apply(FETCHED, target=model("target"), draft=model("draft"))

    def progress() -> bool:
        message = str(site.conditions(FETCHED).get("ModelsReady", {}).get("message", ""))
        # So much that what is lost on the way to a process that is killed is less.
        begun = hub.sent().get("pair/target/model.safetensors", 0) > SIZE / 10
        return begun and "Fetching: " in message and "(0 %)" not in message

    wait_for("the progress in the condition", progress)
    before = hub.sent()["pair/target/model.safetensors"]
    assert before < SIZE
    for pod in fetching(site, FETCHED):
        site.run("delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force")
    hub.fault(bytes_per_second=0)
    site.wait_condition(FETCHED, "Ready", "True")
    sent = hub.sent()["pair/target/model.safetensors"]
    assert SIZE <= sent < SIZE + before, "what was there was not fetched again"
    assert not site.items("jobs", site.label(FETCHED)), "done, and its verdict kept"
    texts = []
    for name in (FETCHED, "quickstart"):
        with triton.InferenceServerClient(site.address(name)) as client:
            texts.append(text(stream(client, PROMPTS[0], 4)))
    assert texts[0] == texts[1]


def test_another_service_of_the_same_models_fetches_nothing(site: Site, hub: Hub, another: str) -> None:
    bring_up(site)
    sent = hub.sent()
    site.apply(another, target=model("target"), draft=model("draft"))
    site.wait_condition(another, "ModelsReady", "True")
    assert hub.sent() == sent


def test_a_volume_that_is_emptied_is_filled_again(site: Site, hub: Hub, disk: Path) -> None:
    """A server that starts without its models says so; nobody else knows."""
    bring_up(site)
    shutil.rmtree(disk / "models")
    assert site.conditions(FETCHED)["Ready"]["status"] == "True", "what runs has them in memory"
    hub.fault(bytes_per_second=SIZE / 20)  # or it may be over before it is seen
    site.run("delete", "pods", "-l", site.label(FETCHED, "server"), "--wait=false")
    found = site.wait_condition(FETCHED, "ModelsReady", "False")
    hub.fault(bytes_per_second=0)
    assert found["reason"] == "GoneFromCache"
    site.wait_condition(FETCHED, "Ready", "True")
    assert list(disk.glob("models/*/.complete"))


def test_a_model_that_is_not_there_is_refused_with_what_to_do(site: Site, hub: Hub, another: str) -> None:
    site.apply(another, target=model("nothing", "outsider"), draft=model("draft"))
    found = site.wait_condition(another, "ModelsReady", "False")
    assert found["reason"] == "ModelNotFound"
    assert "pair/nothing" in found["message"]
    assert site.conditions(another)["Stalled"]["reason"] == "ModelNotFound"
    assert site.server_pods(another) == {}


def prune(site: Site, images: list[Built], *options: str) -> str:
    (image,) = (built.ref for built in images if built.name == "fetcher")
    command = [sys.executable, "-m", "tandem", "cache", "prune", "--image", image, *options]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kubectl").symlink_to(site.cluster.kubectl.binary)
        path = f"{folder}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "KUBECONFIG": str(site.cluster.kubeconfig), "PATH": path}
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def test_what_no_service_refers_to_goes_when_asked_for(
    site: Site, hub: Hub, images: list[Built], another: str
) -> None:
    """The draft is referred to, the target is not any more."""
    bring_up(site)
    site.run("delete", "sis", FETCHED)
    site.apply(another, draft=model("draft"))
    site.wait_condition(another, "ModelsReady", "True")
    assert "removed 0.00 GB in 0 folders" in prune(site, images), "an hour of grace"
    told = prune(site, images, "--young", "0", "--dry-run").splitlines()
    assert len(told) == 2, "the target's folder, and the sum"
    assert told[0].startswith("models/")
    assert prune(site, images, "--young", "0").splitlines()[0] == told[0]
    assert "in 0 folders" in prune(site, images, "--young", "0")
    assert site.conditions(another)["ModelsReady"]["status"] == "True"
