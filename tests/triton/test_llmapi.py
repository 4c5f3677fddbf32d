"""The LLM-API model on the real Triton server, over a stand-in for `tensorrt_llm` that runs the reference engine."""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from tokenizers import Tokenizer
from tritonclient.utils import InferenceServerException

from reference_engine import engine as reference
from reference_engine.request import Output, Request
from reference_engine.sampling import SamplingParams
from triton import bls_client as bls
from triton.bls_client import PAIR, Array, Response, ids, text
from triton.harness import REPOSITORY_ROOT, Options, ServerError, TritonServer
from triton.llmapi_client import inputs, repository, texts
from triton.pod import Pod, ended
from triton.stand_in_tensorrt_llm.tensorrt_llm.faults import ENGINE_DIES, HANGS, REQUEST_FAILS
from triton.waits import counted, eventually, metric

TEXTS = [json.loads(line)["prompt"] for line in (PAIR / "prompts.jsonl").read_text().splitlines()[:8]]
TOKENIZER = Tokenizer.from_file(str(PAIR / "target/tokenizer.json"))
K = 3
SPECULATIVE = {"speculative_config": {"decoding_type": "NGram", "max_draft_len": K, "max_matching_ngram_size": 2}}


def serve(folder: Path, llm_args: dict[str, Any], version: str = "1.2", **variables: Any) -> Iterator[TritonServer]:
    made = repository(folder / "models", llm_args, **variables)
    with TritonServer(made, Options(env={"STAND_IN_VERSION": version})) as server:
        yield server


@pytest.fixture(scope="module", params=["1.2", "1.3"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    folder = tmp_path_factory.mktemp("llmapi")
    (folder / "adapters/sql").mkdir(parents=True)
    args = {
        **SPECULATIVE,
        "guided_decoding_backend": "xgrammar",
        "lora_config": {"lora_dir": [str(folder / "adapters")]},
    }
    yield from serve(folder, args, request.param)


newer = pytest.mark.parametrize("server", ["1.3"], indirect=True)
"""For what does not reach the engine's version."""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """Without speculation, guides and adapters; little room."""
    folder = tmp_path_factory.mktemp("plain")
    yield from serve(folder, {}, max_batch_size=2, max_waiting_sequences=2)


def stream(server: TritonServer, tensors: dict[str, Array]) -> list[Response]:
    return bls.stream(server.grpc_url, tensors, "tensorrt_llm_stream")


def unary(server: TritonServer, tensors: dict[str, Array]) -> Response:
    return bls.unary(server.grpc_url, tensors, "tensorrt_llm")


@pytest.fixture(scope="module")
def greedy() -> Iterator[Callable[[str, int], list[int]]]:
    """The reference engine by itself: greedy tokens of a prompt."""
    runner = reference.Engine(reference.load(reference.Settings(PAIR / "target")))

    def run(prompt: str, max_tokens: int) -> list[int]:
        outputs: list[Output] = []
        ids = np.array(TOKENIZER.encode(prompt).ids, np.int32)
        runner.submit(Request(ids, max_tokens, end_id=0, sampling=SamplingParams()), outputs.append)
        eventually(lambda: bool(outputs), "an answer")
        return outputs[0].tokens

    yield run
    runner.close()


def test_greedy_is_the_reference_engine_s(server: TritonServer, greedy: Callable[[str, int], list[int]]) -> None:
    for prompt in TEXTS:
        expected = greedy(prompt, 24)
        streamed = stream(server, inputs(prompt, streaming=True))
        answer = unary(server, inputs(prompt))
        assert ids(streamed) == ids([answer]) == expected
        assert text(streamed) == text([answer])
        whole = TOKENIZER.decode(TOKENIZER.encode(prompt).ids + expected)
        assert prompt + text(streamed) == whole
        assert len(streamed) > 1


@newer
def test_prompts_of_one_request_are_independent(server: TritonServer) -> None:
    lengths = [1, 7, 40, 20]
    streamed = stream(server, inputs(*TEXTS[:4], max_tokens=lengths, streaming=True))
    merged = unary(server, inputs(*TEXTS[:4], max_tokens=lengths))
    for i, (prompt, length) in enumerate(zip(TEXTS, lengths, strict=False)):
        single = unary(server, inputs(prompt, max_tokens=length))
        assert ids(streamed, i) == ids([single])
        assert text(streamed, i) == text([single])
        count = merged["num_output_tokens"][i]
        assert merged["output_ids"][i, :count].tolist() == ids([single])
        assert merged["text_output"][i] == single["text_output"][0]
        assert merged["batch_index"][i] == i
        ends = [r["finish_reason"].item() for r in streamed if r["batch_index"].item() == i]
        assert (set(ends[:-1]) <= {b""}, ends[-1]) == (True, single["finish_reason"].item())


def test_many_at_once_equal_one_by_one(server: TritonServer) -> None:
    alone = [ids(stream(server, inputs(prompt))) for prompt in TEXTS]
    with ThreadPoolExecutor(32) as threads:
        calls = [threads.submit(stream, server, inputs(prompt, streaming=True)) for prompt in TEXTS * 4]
        assert [ids(call.result()) for call in calls] == alone * 4


@newer
def test_chunks_are_valid_utf8_and_add_up(server: TritonServer) -> None:
    prompt = 'names = ["東京", "🗼", "é"]\nmore = ["'
    chunks = stream(server, inputs(prompt, streaming=True, temperature=1.5, top_k=0, top_p=0.95, seed=7))
    for chunk in chunks:
        chunk["text_output"].item().decode()
    assert chunks[-1]["num_output_tokens"].item() == len(ids(chunks))
    assert chunks[-1]["num_input_tokens"].item() == len(TOKENIZER.encode(prompt).ids)


@newer
def test_the_prompt_is_repeated_unless_excluded_or_streamed(server: TritonServer) -> None:
    without = unary(server, inputs(TEXTS[0]))
    tensors = inputs(TEXTS[0], exclude_input_from_output=False)
    assert unary(server, tensors)["text_output"][0].decode() == TEXTS[0] + text([without])
    streamed = stream(server, tensors | {"streaming": np.ones(1, np.bool_)})
    assert text(streamed) == text([without])


@newer
def test_token_ids_in_and_out(server: TritonServer) -> None:
    prompts = [TOKENIZER.encode(prompt).ids for prompt in TEXTS[:2]]
    padded = np.zeros((2, max(map(len, prompts))), np.int32)
    for row, each in zip(padded, prompts, strict=True):
        row[: len(each)] = each
    tensors = inputs(exclude_input_from_output=True) | {
        "input_ids": padded,
        "input_lengths": np.array([len(each) for each in prompts], np.int32),
    }
    del tensors["text_input"]
    by_ids, by_text = unary(server, tensors), unary(server, inputs(*TEXTS[:2]))
    for name in ("output_ids", "text_output", "num_input_tokens", "finish_reason"):
        assert by_ids[name].tolist() == by_text[name].tolist()


@newer
def test_stop_words_across_tokens_and_chunks(server: TritonServer) -> None:
    whole = text(stream(server, inputs(TEXTS[0], max_tokens=40)))
    for place in range(2, len(whole) - 4, 11):
        word = whole[place : place + 4]
        for streaming in (True, False):
            tensors = inputs(TEXTS[0], max_tokens=40, streaming=streaming, return_stop_reason=True)
            chunks = stream(server, tensors | {"sampling_param_stop": texts("never to be seen", word)})
            assert text(chunks) == whole[: whole.index(word)]
            assert chunks[-1]["finish_reason"].item() == b"stop"
            assert chunks[-1]["stop_reason"].item().decode() == word


def test_a_seed_is_reproducible_and_counts(server: TritonServer) -> None:
    sampled = [
        ids(stream(server, inputs(TEXTS[1], top_p=0.95, temperature=1.2, seed=seed, streaming=streaming)))
        for seed, streaming in [(1, False), (1, True), (2, False)]
    ]
    assert sampled[0] == sampled[1] != sampled[2]


@newer
def test_temperature_zero_is_greedy(server: TritonServer) -> None:
    assert ids([unary(server, inputs(TEXTS[1], temperature=0.0, top_p=0.9))]) == ids(
        [unary(server, inputs(TEXTS[1]))]
    )


TYPES: dict[str, Any] = {
    "text_output": np.object_,
    "finish_reason": np.object_,
    "stop_reason": np.object_,
    "cumulative_logprob": np.float32,
    "output_ids": np.int32,
    "batch_index": np.int32,
    "num_input_tokens": np.int32,
    "num_output_tokens": np.int32,
    "avg_decoded_tokens_per_iter": np.float32,
    "kv_cache_reused_block": np.int32,
    "kv_cache_missed_block": np.int32,
    "kv_cache_alloc_new_blocks": np.int32,
    "kv_cache_alloc_total_blocks": np.int32,
    "kv_cache_hit_rate": np.float32,
    "arrival_time_ns": np.int64,
    "first_scheduled_time_ns": np.int64,
    "first_token_time_ns": np.int64,
    "last_token_time_ns": np.int64,
}
ACCEPTANCE = {"acceptance_rate": np.float32, "total_accepted_draft_tokens": np.int32, "total_draft_tokens": np.int32}


def test_outputs_and_their_types(server: TritonServer, request: pytest.FixtureRequest) -> None:
    """Version 1.2 does not tell what was drafted: absent, not zero."""
    told = "1.3" in request.node.name
    asked = {"return_perf_metrics": True, "return_stop_reason": True, "return_cumulative_logprob": True}
    answer = unary(server, inputs(TEXTS[2], TEXTS[3], max_tokens=16, **asked))
    assert {name: value.dtype.type for name, value in answer.items()} == TYPES | (ACCEPTANCE if told else {})
    assert all(len(value) == 2 for value in answer.values())
    assert answer["avg_decoded_tokens_per_iter"].tolist() == [K + 1, K + 1], "the stand-in's drafts are always right"
    assert (answer["cumulative_logprob"] < 0).all()
    assert (answer["first_token_time_ns"] <= answer["last_token_time_ns"]).all()
    if told:
        assert answer["total_draft_tokens"].tolist() == [12, 12], "four iterations of three"
        assert answer["acceptance_rate"].tolist() == [1.0, 1.0]


@newer
def test_what_was_not_asked_for_is_not_sent(server: TritonServer) -> None:
    names = set(unary(server, inputs(TEXTS[2])))
    assert not names & {"stop_reason", "cumulative_logprob", "kv_cache_hit_rate", "arrival_time_ns"}


def test_guides_and_adapters_are_taken(server: TritonServer) -> None:
    adapters = server.repository.parent / "adapters"
    guide: dict[str, Any] = {"guided_decoding_guide_type": "regex", "guided_decoding_guide": "[a-z]+"}
    lora: dict[str, Any] = {"lora_id": 7, "lora_name": "sql", "lora_path": str(adapters / "sql")}
    assert ids([unary(server, inputs(TEXTS[0], **guide, **lora))])


LIMIT = json.loads((PAIR / "target/config.json").read_text())["max_position_embeddings"]
ERRORS: list[tuple[dict[str, Array], str]] = [
    ({"sampling_param_max_tokens": np.array([8], np.int32)}, "text_input is missing"),
    (inputs(""), "the prompt is empty"),
    (inputs("def f", ""), "the prompt is empty"),
    (inputs("def f", max_tokens=0), "sampling_param_max_tokens is 0: it must be 1 or more"),
    (inputs("def f", max_tokens=LIMIT), f"more than the model's limit of {LIMIT}"),
    (inputs("def f", max_tokens=[1, 2]), "sampling_param_max_tokens holds 2 values, but there are 1 prompts"),
    (inputs("def f", temperature=-1.0), "sampling_param_temperature is -1.0: it must be 0 or more"),
    (inputs("def f", top_p=2.0), "sampling_param_top_p is 2.0: it must lie between 0 and 1"),
    (inputs("def f", best_of=2), "the engine refuses the request: Greedy decoding"),
    (inputs("def f", image_url="http://x"), "image_url is not supported"),
    (inputs("def f", guided_decoding_guide_type="json"), "this service has no guided_decoding_backend"),
    (inputs("def f", lora_id=1), "this service names no folders of adapters"),
    (inputs("def f") | {"input_ids": np.array([[5]], np.int32)}, "both text_input and input_ids hold prompts"),
    ({"text_input": np.array([b"\xff"], np.object_)}, "text_input is not valid UTF-8"),
    ({"input_ids": np.array([[99999]], np.int32)}, "input_ids holds 99999: the vocabulary ends at"),
]


@pytest.mark.parametrize(("tensors", "message"), ERRORS, ids=[message for _, message in ERRORS])
def test_bad_requests_get_a_clear_error(plain: TritonServer, tensors: dict[str, Array], message: str) -> None:
    with pytest.raises(InferenceServerException) as streamed:
        stream(plain, tensors)
    with pytest.raises(InferenceServerException) as answered:
        unary(plain, tensors)
    for error in (streamed.value, answered.value):
        assert message in error.message()
        assert "Traceback" not in error.message()
        assert "model.py" not in error.message()
    assert answered.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_streaming_is_refused_by_the_unary_model(plain: TritonServer) -> None:
    with pytest.raises(InferenceServerException, match="to stream, call tensorrt_llm_stream with the same tensors"):
        unary(plain, inputs("def f", streaming=True))


def test_a_failing_request_fails_alone(server: TritonServer) -> None:
    with ThreadPoolExecutor(4) as threads:
        good = [threads.submit(stream, server, inputs(prompt)) for prompt in TEXTS[:4]]
        with pytest.raises(InferenceServerException) as error:
            stream(server, inputs(TEXTS[0], seed=REQUEST_FAILS))
        assert error.value.message().endswith("the engine failed at this request: out of blocks, on demand")
        assert all(text(call.result()) for call in good)


LONG: dict[str, Any] = {"max_tokens": 1500, "ignore_eos": True}


def started(server: TritonServer) -> int:
    return server.log.count("started")


def aborted(server: TritonServer) -> int:
    return server.log.count("aborted")


def test_a_client_that_leaves_frees_the_engine(server: TritonServer) -> None:
    before = aborted(server)
    with bls.Stream(server.grpc_url, "tensorrt_llm_stream") as call:
        call.send(inputs("def f", streaming=True, **LONG))
        call.receive()
    eventually(lambda: aborted(server) == before + 1, "aborted")


def test_a_unary_client_that_leaves_frees_the_engine(server: TritonServer) -> None:
    begun, before = started(server), aborted(server)
    with triton.InferenceServerClient(server.grpc_url) as client:
        tensors = bls.infer_inputs(inputs("def f", seed=HANGS))
        call = client.async_infer("tensorrt_llm", tensors, lambda result, error: None)
        eventually(lambda: started(server) == begun + 1, "the engine has it")
        call.cancel()
    eventually(lambda: aborted(server) == before + 1, "aborted")


@newer
def test_stop_ends_a_request_by_its_id(server: TritonServer) -> None:
    before = aborted(server)
    with bls.Stream(server.grpc_url, "tensorrt_llm_stream") as call:
        call.send(inputs("def f", streaming=True, **LONG), "to-be-stopped")
        call.receive()
        call.send({"stop": np.ones(1, np.bool_)}, "to-be-stopped")
        with pytest.raises(InferenceServerException, match="the request was stopped"):
            while True:
                call.receive()
    eventually(lambda: aborted(server) == before + 1, "aborted")


@contextmanager
def hanging(server: TritonServer, *requests: dict[str, Array]) -> Iterator[None]:
    """Requests that hang until their clients leave, at the end."""
    with triton.InferenceServerClient(server.grpc_url) as client:
        sent = [bls.infer_inputs(request) for request in requests]
        calls = [client.async_infer("tensorrt_llm", each, lambda result, error: None) for each in sent]
        yield
        for call in calls:
            call.cancel()


def test_a_full_queue_refuses(plain: TritonServer) -> None:
    with hanging(plain, inputs(*["def f"] * 3, seed=HANGS)):
        eventually(lambda: metric(plain, "tandem_requests_waiting") == 1, "three sequences, room for two at once")
        eventually(lambda: metric(plain, "tandem_requests_running") == 2, "two run")
        with pytest.raises(
            InferenceServerException, match="of 4 places to run or wait in are taken: no room for 2 more"
        ) as error:
            unary(plain, inputs("def f", "def g"))
        assert error.value.status() == "StatusCode.UNAVAILABLE"
    eventually(lambda: metric(plain, "tandem_requests_running") == 0, "they have left")
    assert text([unary(plain, inputs("def f"))])


def test_unary_requests_wait_in_line_and_are_counted(plain: TritonServer) -> None:
    """Two run at once, two wait, of which the metrics know; the fifth is refused."""
    eventually(lambda: metric(plain, "tandem_requests_running") == 0, "an idle server")
    with hanging(plain, *[inputs("def f", seed=HANGS)] * 4):
        eventually(lambda: metric(plain, "tandem_requests_waiting") == 2, "two wait")
        with pytest.raises(InferenceServerException, match="no room for 1 more") as error:
            unary(plain, inputs("def f"))
        assert error.value.status() == "StatusCode.UNAVAILABLE"
    eventually(lambda: metric(plain, "tandem_requests_waiting") == 0, "nobody waits")
    eventually(lambda: metric(plain, "tandem_requests_running") == 0, "they have left")
    assert text([unary(plain, inputs("def f"))])


def test_an_engine_that_died_says_so_and_ends_its_pod(tmp_path: Path) -> None:
    made = repository(tmp_path / "models", SPECULATIVE)
    with Pod(made, Options(env={"STAND_IN_VERSION": "1.2"})) as pod:
        with ThreadPoolExecutor(1) as threads:
            hangs = threads.submit(stream, pod, inputs("def f", seed=HANGS))
            eventually(lambda: started(pod) == 1, "the engine has it")
            with pytest.raises(InferenceServerException, match="the engine has stopped"):
                stream(pod, inputs("def f", seed=ENGINE_DIES))
            with pytest.raises(InferenceServerException, match="the engine fails, and starts again"):
                hangs.result(timeout=300)
        with pytest.raises(InferenceServerException, match="the engine fails, and starts again") as error:
            unary(pod, inputs("def f"))
        assert error.value.status() == "StatusCode.UNAVAILABLE"
        assert ended(pod, 120) == 1
        assert json.loads(pod.termination_log.read_text())["engineFailure"]["reason"] == "EngineFailing"


def test_metrics_tell_what_the_engine_tells(server: TritonServer, request: pytest.FixtureRequest) -> None:
    names = ["generation_tokens", "prompt_tokens", "spec_decode_num_drafts", "spec_decode_num_accepted_tokens"]
    families = [f"tandem_{name}_total" for name in names]

    def ask() -> list[float]:
        answer = unary(server, inputs(TEXTS[4], max_tokens=16))
        return [16, answer["num_input_tokens"].item(), 16 / (K + 1), 16 - 16 / (K + 1)]

    counted(server, families, ask)
    page = server.metrics()
    assert ("tandem_spec_decode_num_draft_tokens_total" in page) == ("1.3" in request.node.name)
    assert "tandem_draft_length" not in page, "the engine does not tell"
    for name in ("time_to_first_token", "inter_token_latency", "request_latency"):  # they are published last
        eventually(lambda name=name: metric(server, f"tandem_{name}_seconds_count") > 0, name)  # type: ignore[misc]


def test_without_speculation_there_are_no_figures_of_it(plain: TritonServer) -> None:
    unary(plain, inputs(TEXTS[4], max_tokens=4))
    eventually(lambda: metric(plain, "tandem_generation_tokens_total") > 0, "counted")
    assert "spec_decode" not in plain.metrics()


@newer
def test_http_generate_and_generate_stream(server: TritonServer) -> None:
    def post(path: str, **body: Any) -> str:
        data = json.dumps({"text_input": TEXTS[3], "sampling_param_max_tokens": 16, **body}).encode()
        with urllib.request.urlopen(f"{server.http_url}/v2/models/{path}", data, timeout=240) as reply:
            answer: bytes = reply.read()
            return answer.decode()

    whole = json.loads(post("tensorrt_llm_stream/generate"))
    events = post("tensorrt_llm_stream/generate_stream", streaming=True).split("\n\n")
    deltas = [json.loads(event.removeprefix("data: "))["text_output"] for event in events if event]
    assert len(deltas) > 1
    assert whole["text_output"] == TEXTS[3] + "".join(deltas)
    assert json.loads(post("tensorrt_llm/generate"))["text_output"] == whole["text_output"]


@pytest.mark.parametrize(
    "path", ["tensorrt_llm/generate", "tensorrt_llm_stream/generate", "tensorrt_llm_stream/generate_stream"]
)
def test_a_parameter_that_nobody_knows_is_refused(plain: TritonServer, path: str) -> None:
    body = {"text_input": TEXTS[3], "max_tokens": 16, "streaming": "stream" in path}
    url = f"{plain.http_url}/v2/models/{path}"
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(url, json.dumps(body).encode(), timeout=240)
    with error.value as answer:
        advice = "max_tokens is not known to this model: did you mean sampling_param_max_tokens?"
        assert (answer.code, advice in answer.read().decode()) == (400, True)


@newer
@pytest.mark.parametrize("beside", [{"text_input": [TEXTS[3]]}, {"text_input": TEXTS[3], "prompt": TEXTS[3]}])
def test_load_generators(server: TritonServer, beside: dict[str, Any]) -> None:
    """GenAI-Perf, then AIPerf, with `--extra-inputs` for this model's names: what those say again is ignored."""
    body = {"stream": True, "max_tokens": 9, "min_tokens": 9, "exclude_input_in_output": True, **beside}
    body |= {"streaming": True, "sampling_param_max_tokens": 24, "sampling_param_min_tokens": 24}
    url = f"{server.http_url}/v2/models/tensorrt_llm_stream/generate_stream"
    with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=240) as reply:
        assert reply.headers["Content-Type"].startswith("text/event-stream")
        events = [json.loads(event.removeprefix("data: ")) for event in reply.read().decode().split("\n\n") if event]
    assert len(events) > 1 and events[0]["text_output"]
    assert events[-1]["num_output_tokens"] == 24
    expected = text([unary(server, inputs(TEXTS[3], max_tokens=24, min_tokens=24))])
    assert "".join(event["text_output"] for event in events) == expected


@newer
def test_genai_perf_over_grpc_without_streaming(server: TritonServer) -> None:
    """`genai-perf profile -m tensorrt_llm --backend tensorrtllm` of Triton's guides: perf_analyzer 2.60 sends a unary
    call, or one on a stream, of those of its tensors that the model has; of each it wants every output."""
    with triton.InferenceServerClient(server.grpc_url) as client:
        metadata = client.get_model_metadata("tensorrt_llm")
        known = {tensor.name for tensor in metadata.inputs}
        outputs = sorted(tensor.name for tensor in metadata.outputs)
        given = {"text_input": texts(TEXTS[3]), "max_tokens": np.array([256], np.int32)}
        tensors = {name: value for name, value in given.items() if name in known}
        asked = triton.InferInput("text_input", [1], "BYTES")
        asked.set_data_from_numpy(tensors["text_input"])
        wanted = [triton.InferRequestedOutput(name) for name in outputs]
        called = client.infer("tensorrt_llm", [asked], outputs=wanted).as_numpy("text_output").item().decode()
    with bls.Stream(server.grpc_url, "tensorrt_llm") as call:
        call.send(tensors, "1", outputs)
        streamed, final = call.receive()
    assert final
    assert called == streamed["text_output"].item().decode()
    assert called.startswith(TEXTS[3]) and len(called) > len(TEXTS[3])


@newer
def test_the_startup_probe_succeeds(server: TritonServer) -> None:
    entrypoint = REPOSITORY_ROOT / "images/serving/entrypoint.py"
    command = [sys.executable, str(entrypoint), "probe", "--model", "tensorrt_llm"]
    command += ["--port", str(server.ports.http)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    four_tokens = text([unary(server, inputs("def main():", max_tokens=4))])
    assert (done.returncode, done.stderr, done.stdout) == (0, "", f"tensorrt_llm generates: {four_tokens!r}\n")


DRAFTER = "class Repeat:\n    def prepare_draft_tokens(self, *args):\n        return []\n"


def test_a_drafter_of_the_user_s(tmp_path: Path) -> None:
    (tmp_path / "drafters").mkdir()
    (tmp_path / "drafters/my_drafter.py").write_text(DRAFTER)
    args = {"speculative_config": {"decoding_type": "User_Provided", "max_draft_len": 2}}
    for server in serve(tmp_path, args, drafter="my_drafter:Repeat", drafter_path=str(tmp_path / "drafters")):
        assert "stand-in: drafter Repeat" in server.log
        assert text([unary(server, inputs(TEXTS[0]))])


def test_a_model_that_cannot_start_says_why(tmp_path: Path) -> None:
    args = {"speculative_config": {"decoding_type": "User_Provided", "max_draft_len": 2}}
    made = repository(tmp_path / "models", args, drafter="no_such_module:Drafter", drafter_path="/nowhere")
    with pytest.raises(ServerError, match="the drafter no_such_module:Drafter cannot be loaded"), TritonServer(made):
        pass


def test_the_log_has_no_traceback(server: TritonServer) -> None:
    assert "Traceback (most recent call last)" not in server.log
