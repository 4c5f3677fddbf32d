"""Two instances of the BLS, each a process of its own: one service for its clients, one set of metrics."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import tritonclient.grpc as triton

from triton import bls_client as bls
from triton.bls_client import ids, inputs, stream
from triton.bls_servers import ask_engine
from triton.harness import TritonServer
from triton.stand_in import COUNT_CALLERS, SLOW_TOKENS
from triton.waits import eventually, metric

PROMPTS = [f"def f{i}(" for i in range(32)]
K, INSTANCES = 3, 2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    folder = tmp_path_factory.mktemp("instances")
    made = bls.repository(folder, "stand-in", max_draft_len=8, max_engine_rows=64, bls_instance_count=INSTANCES)
    with TritonServer(made) as running:
        yield running


def told(answers: list[list[bls.Response]], name: str) -> int:
    """The sum of a number in the answers' last chunks."""
    return sum(int(answer[-1][name].item()) for answer in answers)


def test_answers_and_metrics_are_those_of_one(server: TritonServer) -> None:
    alone = [stream(server.grpc_url, inputs(prompt, num_draft_tokens=0)) for prompt in PROMPTS]
    calls = [inputs(prompt, num_draft_tokens=K, stream=True) for prompt in PROMPTS]
    answers: list[list[bls.Response]] = []

    def both_worked() -> bool:
        """Which instance takes a request is Triton's to say: it is asked until each has. Of each
        come its first draft, which it asks for by itself, and its rounds."""
        with ThreadPoolExecutor(len(calls)) as threads:
            more = list(threads.map(lambda call: stream(server.grpc_url, call), calls))
        assert list(map(ids, more)) == list(map(ids, alone))
        answers.extend(more)
        return ask_engine(server, COUNT_CALLERS, "tensorrt_llm_draft_engine") == 2 * INSTANCES

    eventually(both_worked, "both worked", 120)
    said = {
        "tandem_spec_decode_num_draft_tokens_total": told(answers, "total_draft_tokens"),
        "tandem_spec_decode_num_accepted_tokens_total": told(answers, "total_accepted_draft_tokens"),
        "tandem_generation_tokens_total": told([*alone, *answers], "num_output_tokens"),
    }
    eventually(lambda: {name: metric(server, name) for name in said} == said, f"counted: {said}")


def test_sequences_of_all_instances_are_running(server: TritonServer) -> None:
    with ExitStack() as clients:
        for prompt in PROMPTS[:6]:
            call = clients.enter_context(bls.Stream(server.grpc_url))
            call.send(inputs(prompt, max_tokens=1500, num_draft_tokens=K, seed=SLOW_TOKENS, end_id=-1, stream=True))
            call.receive()
        eventually(lambda: metric(server, "tandem_requests_running") == len(PROMPTS[:6]), "all run")
        eventually(lambda: metric(server, "tandem_draft_length") == K, "not the sum of the instances'")
    eventually(lambda: metric(server, "tandem_requests_running") == 0, "none runs")


def test_unary_clients_that_leave_end_their_requests(server: TritonServer) -> None:
    """A stop ends requests of the instance that gets it: it is sent again until that is the right one."""
    long = {"max_tokens": 1500, "num_draft_tokens": K, "seed": SLOW_TOKENS, "end_id": -1}
    with triton.InferenceServerClient(server.grpc_url) as client:
        calls = [
            client.async_infer(
                "tensorrt_llm_bls", bls.infer_inputs(inputs(prompt, **long)), lambda result, error: None
            )
            for prompt in PROMPTS[:6]
        ]
        eventually(lambda: metric(server, "tandem_requests_running") == len(calls), "all run")
        for call in calls:
            call.cancel()
    eventually(lambda: metric(server, "tandem_requests_running") == 0, "none runs")
