"""vLLM on the real kubelet, as its tutorial leads there: from a checkpoint of a Hub to an OpenAI client's answer, and
acceptance in the status."""

import json
from collections.abc import Iterator

import pytest
import tritonclient.grpc as triton

from builder import build as builder
from builder import cache, engines, inputs
from builder.build import Built, Plan

from .completions import stream, text
from .conftest import REPOSITORY, Site, wait_for
from .hub import Hub, volume
from .tutorials import follow, reader, steps_of

pytestmark = pytest.mark.nightly  # its image takes 4 minutes of a processor to build, and this 2 more

NAMESPACE = "vllm"
ASKED = "def fibonacci(n):"
"""The prompt of the page's `curl`, whose answer is as long as those of `completions`."""
KINDS = "sis,pods,deployments,services,configmaps,serviceaccounts,jobs"


@pytest.fixture(scope="module")
def image(site: Site) -> None:
    """The image, built where its files have changed, and loaded into the node."""
    engine = engines.choose(cache.default().root)
    plan = Plan(REPOSITORY, cache.default(), engine.local_base)
    (built,) = builder.build(plan, engine, inputs.select(["vllm-cpu"]))
    site.cluster.import_image(built.archive)


@pytest.fixture(scope="module")
def shell(
    site: Site, images: list[Built], image: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """A reader's, whose Hub has the pair."""
    places = reader(site, NAMESPACE, tmp_path_factory.mktemp("home"))
    site.run("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    cached = volume(site, tmp_path_factory.mktemp("cache"), NAMESPACE)
    site.run("apply", "-f", "-", stdin=json.dumps(cached))
    (reference,) = (built.ref for built in images if built.name == "reference")
    hub = Hub(site, reference)
    yield places | {"TARGET": "pair/target", "DRAFT": "pair/draft", "HF_ENDPOINT": hub.url, "HF_TOKEN": ""}
    hub.remove()
    site.run("delete", "namespace", NAMESPACE, "--wait=false")
    site.run("delete", "pv", cached["metadata"]["name"], "--wait=false")


def test_from_a_checkpoint_to_answers_and_acceptance(
    site: Site, shell: dict[str, str], client: triton.InferenceServerClient
) -> None:
    """What the client gets is what the target says, by another engine; nothing of the service is left."""
    results = follow(shell, steps_of("vllm"))
    (answer,) = (json.loads(each.printed) for each in results if each.step.command.startswith("curl"))
    assert answer["choices"][0]["text"] == text(stream(client, ASKED, 0))
    wait_for("everything of it to be gone", lambda: not site.items(KINDS, site.label("small"), NAMESPACE))
