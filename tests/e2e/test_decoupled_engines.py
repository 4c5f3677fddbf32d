"""Engines that answer each row of a call by itself, as TensorRT-LLM's where they take many: clients see nothing."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import tritonclient.grpc as triton

from .completions import PROMPTS, stream, text
from .conftest import DECOUPLED, Site

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def url(site: Site) -> Iterator[str]:
    site.apply("decoupled", runtime={"mode": "BLS", "profile": DECOUPLED})
    site.wait_condition("decoupled", "Ready", "True")
    yield site.address("decoupled")
    site.run("delete", "sis", "decoupled")


def test_prompts_at_once_share_calls_and_get_what_the_target_alone_says(
    client: triton.InferenceServerClient, url: str
) -> None:
    alone = [text(stream(client, prompt, 0)) for prompt in PROMPTS]
    with ThreadPoolExecutor(len(PROMPTS)) as threads:
        assert list(threads.map(lambda prompt: complete(url, prompt), PROMPTS)) == alone
    with triton.InferenceServerClient(url) as asked:
        statistics = asked.get_inference_statistics("tensorrt_llm_engine_rounds").model_stats[0]
        assert statistics.inference_count > statistics.execution_count > 0, "several sequences a call"


def complete(url: str, prompt: str) -> str:
    with triton.InferenceServerClient(url) as client:
        return text(stream(client, prompt, 4))
