"""Models that cannot be served: a condition says why, no pod is made of them, and what runs serves on."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as triton
from tokenizers import Tokenizer, trainers

from builder import build, cache, engines
from builder.build import Built, Plan
from builder.inputs import Image

from .completions import PROMPTS, stream, text
from .conftest import REPOSITORY, Site

DRAFT = REPOSITORY / "images/reference/pair/draft"
# What a user would write who has models of his own.
CONTAINERFILE = "FROM {reference}\nCOPY models /opt/other\n"


def other_tokenizer() -> Tokenizer:
    """A tokenizer of the pair's kind, trained on other text: other merges, so other ids."""
    made = Tokenizer.from_file(str(DRAFT / "tokenizer.json"))
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=["<|endoftext|>"], show_progress=False)
    made.train_from_iterator(PROMPTS, trainer)
    return made


def write_models(folder: Path) -> None:
    """A copy of the draft with another tokenizer."""
    shutil.copytree(DRAFT, folder / "other-tokenizer")
    other_tokenizer().save(str(folder / "other-tokenizer/tokenizer.json"))


@pytest.fixture(scope="session")
def image(site: Site, images: list[Built], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image on top of the reference image, with that model, loaded into the node."""
    root, made = tmp_path_factory.mktemp("root"), Image("e2e-models")
    write_models(root / "models")
    (reference,) = (image.ref for image in images if image.name == "reference")
    (root / made.containerfile).parent.mkdir(parents=True)
    (root / made.containerfile).write_text(CONTAINERFILE.format(reference=reference))
    engine = engines.choose(cache.default().root)
    (built,) = build.build(Plan(root, cache.default(), own_base=False), engine, [made])
    site.cluster.import_image(built.archive)
    yield built.ref
    engine.remove(built.ref)
    built.archive.unlink()


@dataclass(frozen=True)
class Bad:
    """A model, and what the conditions say of it."""

    role: str
    path: str
    condition: str
    reason: str
    words: tuple[str, ...]

    def spec(self, image: str) -> dict[str, Any]:
        runtime = {"mode": "BLS", "profile": "reference", "image": image}
        return {"runtime": runtime, self.role: {"model": {"uri": f"file://{self.path}"}}}

    def check(self, site: Site, service: str) -> None:
        """Wait until the service is Stalled; every condition tells the truth and what to do."""
        stalled = site.wait_condition(service, "Stalled", "True")
        conditions = site.conditions(service)
        found = conditions[self.condition]
        assert (found["status"], found["reason"]) == ("False", self.reason)
        assert all(word in found["message"] for word in self.words), found["message"]
        assert conditions["Ready"]["status"] == "False"
        assert stalled["message"] == conditions["Ready"]["message"] == found["message"]


PAIR = Bad(
    role="draft",
    path="/opt/other/other-tokenizer",
    condition="PairCompatible",
    reason="TokenizerDiffers",
    words=("tokens differ, e.g.", "choose a draft model of the target's own family"),
)
"""Draft tokens would mean other words to the target."""
MISSING = Bad(
    role="target",
    path="/no/such/model",
    condition="ModelsReady",
    reason="ModelInvalid",
    words=("/no/such/model is missing", "check the model's uri"),
)


def test_a_new_service_gets_one_preflight_and_no_pod(site: Site, image: str, another: str) -> None:
    pods_made = site.pods_made()
    site.apply(another, **MISSING.spec(image))
    MISSING.check(site, another)
    site.wait_reconciled(another)
    MISSING.check(site, another)
    assert not site.items("deployments,replicasets,jobs", site.label(another))
    assert (pods_made("job-controller"), pods_made("replicaset-controller")) == (1, 0)


def test_the_running_pods_serve_on_and_editing_back_heals(
    site: Site, client: triton.InferenceServerClient, image: str
) -> None:
    pods, pods_made = site.server_pods("quickstart"), site.pods_made()
    site.apply(**PAIR.spec(image))
    PAIR.check(site, "quickstart")
    assert site.conditions("quickstart")["Available"]["status"] == "True"
    assert text(stream(client, PROMPTS[0], 4))
    site.wait_reconciled("quickstart")
    site.apply()
    site.wait_condition("quickstart", "Ready", "True")
    assert site.server_pods("quickstart") == pods
    assert (pods_made("job-controller"), pods_made("replicaset-controller")) == (1, 0)
