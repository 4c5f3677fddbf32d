"""NVIDIA's load generators: what GenAI-Perf 0.0.16 with perf_analyzer 2.60, and AIPerf 0.13, were seen to send.

AIPerf itself runs at the OpenAI endpoint.
"""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import triton_to_np_dtype

from support import environments
from triton import bls_client as bls
from triton.bls_client import PAIR, SECONDS
from triton.harness import REPOSITORY_ROOT, TritonServer
from triton.loop_client import Tensors
from triton.openai_endpoint import NAME, OpenAiEndpoint
from triton.upstream import MAX_TOKENS, PROMPTS, UNARY, answer, number

pytestmark = pytest.mark.nightly

AIPERF_TEMPLATE = REPOSITORY_ROOT / "examples/aiperf-payload.json.j2"
LINE_END = 199  # ends a completion early, but for the least length
MODELS = ["speculative_bls", *UNARY]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    folder = tmp_path_factory.mktemp("load")
    with TritonServer(bls.repository(folder, "reference", max_engine_rows=64)) as server:
        yield server


def perf_analyzer(
    server: TritonServer, model: str, requests: Sequence[dict[str, Any]], first_id: int
) -> list[list[tuple[Tensors, bool]]]:
    """Each request's responses: one after the other on a stream, tensors by the metadata, every output asked for."""
    with triton.InferenceServerClient(server.grpc_url) as client:
        metadata = client.get_model_metadata(model)
    known = {tensor.name: tensor for tensor in metadata.inputs}
    outputs = sorted(tensor.name for tensor in metadata.outputs)
    answers = []
    with bls.Stream(server.grpc_url, model) as call:
        for request_id, request in enumerate(requests, start=first_id):
            tensors = {}
            for name, value in sorted(request.items()):
                shape = [1, *known[name].shape[1:]]
                tensors[name] = np.array([value], triton_to_np_dtype(known[name].datatype)).reshape(shape)
            call.send(tensors, str(request_id), outputs)
            responses = [call.receive()]
            while not responses[-1][1]:
                responses.append(call.receive())
            answers.append(responses)
    return answers


@pytest.mark.parametrize("model", MODELS)
def test_genai_perf_over_grpc(server: TritonServer, model: str) -> None:
    """`--endpoint-type kserve --backend tensorrtllm`: two workers, whose first ids are these."""
    # `--output-tokens-mean-deterministic`; upstream's ensemble has no input of that name: `--extra-inputs` there.
    least = "min_tokens" if model == "ensemble" else "min_length"
    given = {"exclude_input_in_output": True, "max_tokens": MAX_TOKENS, least: MAX_TOKENS, "end_id": LINE_END}
    if model == "speculative_bls":
        given["stream"] = True
    halves = [PROMPTS[:3], PROMPTS[3:6]]
    requests = [[{**given, "text_input": prompt.encode()} for prompt in half] for half in halves]
    with ThreadPoolExecutor(2) as workers:
        answers = workers.map(perf_analyzer, 2 * [server], 2 * [model], requests, [0, 1 << 48])
        completions = [responses for answer in answers for responses in answer]
    end, ended_early = {"end_id": number(LINE_END, np.int32)}, 0
    for prompt, responses in zip(PROMPTS, completions, strict=False):
        texts = [chunk["text_output"].item().decode() for chunk, _ in responses]
        expected, ids = answer(server, prompt, min_tokens=number(MAX_TOKENS, np.int32), **end)
        assert (prompt + "".join(texts), len(ids)) == (expected, MAX_TOKENS)
        assert texts[0], "the time to the first response is taken for that to the first token"
        assert texts[-1], "the time to the last response is taken for that to the last token"
        assert (len(texts) > 1) == (model == "speculative_bls")
        if model != "ensemble":
            assert [int(token) for chunk, _ in responses for token in chunk["output_ids"].reshape(-1)] == ids
        ended_early += len(answer(server, prompt, **end)[1]) < MAX_TOKENS
    assert ended_early


def post(server: TritonServer, model: str, body: dict[str, Any], *, streams: bool, **headers: str) -> str:
    """All text of the answer to what load generators post: they read `text_output` of each event."""
    url = f"{server.http_url}/v2/models/{model}/generate{'_stream' * streams}"
    sent = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json", **headers})
    with urllib.request.urlopen(sent, timeout=SECONDS) as reply:
        answered, kind = reply.read().decode(), reply.headers["Content-Type"]
    if not streams:
        assert kind == "application/json"
        return str(json.loads(answered)["text_output"])
    assert kind.startswith("text/event-stream")
    events = answered.removesuffix("\n\n").split("\n\n")
    texts = [json.loads(event.removeprefix("data: "))["text_output"] for event in events]
    assert len(texts) > 1 and all(isinstance(text, str) for text in texts)
    assert texts[0] and texts[-1]
    return "".join(texts)


@pytest.mark.parametrize("model", MODELS)
def test_genai_perf_over_http(server: TritonServer, model: str) -> None:
    """`--endpoint-type generate --extra-inputs ...`: the prompt comes in a list."""
    streams = model == "speculative_bls"
    for prompt in PROMPTS[:3]:
        body = {"text_input": [prompt], "max_tokens": MAX_TOKENS, "min_tokens": MAX_TOKENS}
        body |= {"exclude_input_in_output": True, **({"stream": True} if streams else {})}
        least = number(MAX_TOKENS, np.int32)
        assert prompt + post(server, model, body, streams=streams) == answer(server, prompt, min_tokens=least)[0]


@pytest.mark.parametrize("model", MODELS)
def test_aiperf(server: TritonServer, model: str) -> None:
    """`--endpoint-type template` with the template of the examples, with the variables that AIPerf has for it."""
    template = jinja2.Environment(autoescape=True).from_string(AIPERF_TEMPLATE.read_text())
    streams = model == "speculative_bls"
    for prompt in [*PROMPTS[:2], "if \"<a>\" \\ '&amp;' in {{ s }}:\n\té 😀"]:
        body = json.loads(template.render(text=prompt, max_tokens=MAX_TOKENS, stream=streams, model=model))
        assert (body["prompt"], body["stream"]) == (prompt, streams)
        text = post(
            server, model, body, streams=streams, Accept="text/event-stream" if streams else "application/json"
        )
        assert prompt + text == answer(server, prompt, min_tokens=number(MAX_TOKENS, np.int32))[0]


@pytest.mark.parametrize("streams", [False, True])
def test_an_error_has_a_status_that_load_generators_count(server: TritonServer, streams: bool) -> None:
    body = {"text_input": "x", "max_tokens": 4, "num_return_sequences": 2, "stream": streams}
    with pytest.raises(urllib.error.HTTPError, match="400") as refused:
        post(server, "speculative_bls" if streams else "tensorrt_llm_bls", body, streams=streams)
    assert "num_return_sequences 2 is not supported" in refused.value.read().decode()


LOCK = Path(__file__).with_name("aiperf-requirements.txt")
"""AIPerf needs numpy 2, Triton's Python backend numpy 1."""


def test_aiperf_itself_at_the_openai_endpoint(server: TritonServer, tmp_path: Path) -> None:
    with OpenAiEndpoint(server, "BLS", PAIR / "target") as endpoint:
        command = [str(environments.python(LOCK).with_name("aiperf")), "profile", "-m", NAME, "-u", endpoint.url]
        command += ["--endpoint-type", "chat", "--streaming", "--tokenizer", str(PAIR / "target")]
        command += ["--isl", "32", "--osl", "16", "--concurrency", "2", "--request-count", "4"]
        command += ["--extra-inputs", "ignore_eos:true", "--extra-inputs", "temperature:0"]
        command += ["--ui", "none", "--no-gpu-telemetry", "--workers-max", "1", "--record-processors", "1"]
        subprocess.run([*command, "--artifact-dir", str(tmp_path)], timeout=SECONDS, check=True)
    report = json.loads((tmp_path / "profile_export_aiperf.json").read_text())
    expected = {"completed_request_count": 4, "request_error_rate": 0, "total_usage_completion_tokens": 64}
    assert {name: report[name]["avg"] for name in expected} == expected
    accepted = report["total_usage_accepted_prediction_tokens"]["avg"]
    assert 0 < accepted < 64
    rounds = report["pooled_spec_decode_acceptance_histogram"]
    assert sum(int(tokens) * count for tokens, count in rounds.items()) == accepted
    assert sum(rounds.values()) == report["total_spec_decode_steps"]["avg"]
    scraped = json.loads((tmp_path / "server_metrics_export.json").read_text())["metrics"]
    assert {"tandem_openai_requests", "vllm:kv_cache_usage_perc"} <= scraped.keys(), "by itself, from the same port"
