"""The BLS models on the real Triton server, over the reference engine and over a stand-in with faults."""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as tritonclient
from tritonclient.utils import InferenceServerException

from triton import bls_client as bls
from triton.bls_client import Array, ids, inputs, stream, text, unary, words
from triton.bls_servers import MAX_DRAFT, TEXTS, serve
from triton.harness import REPOSITORY_ROOT, TritonServer
from triton.stand_in import (
    DRAFT_FAILS,
    DRAFT_HANGS,
    TARGET_FAILS,
)
from triton.waits import counted, eventually, metric

TRUE = np.array([[True]])


@pytest.fixture(scope="module", params=[1, 64], ids=["a call each", "calls shared"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """Two micro-batches, which are of many sequences at once: test_bls_exact.py."""
    yield from serve(tmp_path_factory.mktemp("repository"), "reference", request.param)


once = pytest.mark.parametrize("server", [1], ids=["a call each"], indirect=True)
"""For what does not reach the engines."""


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    for running in serve(tmp_path_factory.mktemp("faulty"), "stand-in", 64, separate=True):
        stream(running.grpc_url, inputs("def f"))  # a draft engine that has not answered yet is asked less
        yield running


@pytest.mark.parametrize("k", range(1, MAX_DRAFT + 1))
def test_greedy_equals_target_alone(server: TritonServer, k: int) -> None:
    for prompt in TEXTS[k % 8 :: 8]:
        alone = stream(server.grpc_url, inputs(prompt, num_draft_tokens=0))
        streamed = stream(server.grpc_url, inputs(prompt, num_draft_tokens=k, stream=True))
        answer = unary(server.grpc_url, inputs(prompt, num_draft_tokens=k))
        assert ids(streamed) == ids(alone) == ids([answer])
        assert text(streamed) == text(alone) == text([answer])


def test_thirty_two_at_once_equal_one_by_one(server: TritonServer) -> None:
    alone = [ids(stream(server.grpc_url, inputs(prompt, num_draft_tokens=0))) for prompt in TEXTS]
    with ThreadPoolExecutor(len(TEXTS)) as threads:
        calls = [threads.submit(stream, server.grpc_url, inputs(prompt, stream=True)) for prompt in TEXTS]
        assert [ids(call.result()) for call in calls] == alone


def test_prompts_of_one_request_are_independent(server: TritonServer) -> None:
    lengths = [1, 7, 40, 20]
    single = [
        stream(server.grpc_url, inputs(prompt, max_tokens=length))[0]
        for prompt, length in zip(TEXTS, lengths, strict=False)
    ]
    tensors = inputs(*TEXTS[:4], max_tokens=lengths)
    streamed = stream(server.grpc_url, tensors | {"stream": np.ones((4, 1), np.bool_)})
    merged = unary(server.grpc_url, tensors)
    for i, answer in enumerate(single):
        assert ids(streamed, i) == ids([answer])
        assert text(streamed, i) == text([answer])
        assert merged["text_output"][i] == answer["text_output"][0]
        count = merged["num_output_tokens"][i, 0]
        assert merged["output_ids"][i, :count].tolist() == ids([answer])
        ends = [r["finish_reason"].item() for r in streamed if r["batch_index"].item() == i]
        assert ends[-1] == answer["finish_reason"].item()
        assert set(ends[:-1]) <= {b""}


def test_chunks_add_up(server: TritonServer) -> None:
    drafted = 0
    for prompt in TEXTS[:8]:
        chunks = stream(server.grpc_url, inputs(prompt, max_tokens=48, stream=True))
        last = chunks[-1]
        accepted = sum(chunk["num_accepted_draft_tokens"].item() for chunk in chunks)
        assert last["num_output_tokens"].item() == len(ids(chunks))
        assert last["total_accepted_draft_tokens"].item() == accepted
        rate = accepted / last["total_draft_tokens"].item()
        assert last["acceptance_rate"].item() == pytest.approx(rate)
        for chunk in chunks:
            assert chunk["draft_text_length"].item() <= len(chunk["text_output"].item().decode())
            assert chunk["num_accepted_draft_tokens"].item() <= chunk["output_ids"].size
        drafted += sum(chunk["draft_text_length"].item() for chunk in chunks)
    assert drafted > 0


def test_refused_draft_tokens_have_their_text_where_it_is_asked_for(server: TritonServer) -> None:
    struck = 0
    for prompt in TEXTS[:8]:
        tensors = inputs(prompt, max_tokens=48, stream=True)
        plain, shown = (
            stream(server.grpc_url, tensors | more)
            for more in ({}, {"return_refused_draft_text": np.array([[True]])})
        )
        assert text(shown) == text(plain)
        assert not any("refused_draft_text" in chunk for chunk in plain)
        assert all(chunk["refused_draft_text"].shape == (1, 1) for chunk in shown)
        struck += sum(bool(chunk["refused_draft_text"].item()) for chunk in shown)
    assert struck > 0


@once
def test_only_the_outputs_that_were_asked_for_come(server: TritonServer) -> None:
    names, prompts = ["output_ids", "batch_index", "acceptance_rate"], TEXTS[:3]
    with bls.Stream(server.grpc_url) as call:
        call.send(inputs(*prompts, num_draft_tokens=4, max_tokens=24, stream=True), outputs=names)
        chunks, last = [], False
        while not last:
            chunk, last = call.receive()
            chunks += [chunk] if chunk else []
    ends = [chunk for chunk in chunks if "acceptance_rate" in chunk]
    assert sorted(end["batch_index"].item() for end in ends) == [0, 1, 2]
    assert all(set(chunk) == set(names[:2]) for chunk in chunks if "acceptance_rate" not in chunk)
    types = {name: (str(value.dtype), value.shape) for name, value in ends[0].items() if name != "output_ids"}
    assert types == {"batch_index": ("int32", (1, 1)), "acceptance_rate": ("float32", (1, 1))}
    for i, prompt in enumerate(prompts):
        assert ids(chunks, i) == ids(stream(server.grpc_url, inputs(prompt, max_tokens=24)))


def test_stop_words_across_tokens_and_chunks(server: TritonServer) -> None:
    whole = text(stream(server.grpc_url, inputs(TEXTS[0], max_tokens=40)))
    for place in range(2, len(whole) - 4, 7):
        word = whole[place : place + 4]
        for more in ({"stream": True}, {"num_draft_tokens": 0, "stream": True}, {}):
            stop = words([word, "never to be seen"])
            chunks = stream(server.grpc_url, inputs(TEXTS[0], max_tokens=40, stop_words=stop, **more))
            assert text(chunks) == whole[: whole.index(word) + len(word)]
            assert chunks[-1]["finish_reason"].item() == b"stop"


@once
def test_a_stop_word_that_never_comes_changes_nothing(server: TritonServer) -> None:
    tensors = inputs(TEXTS[1], stream=True)
    stopping = tensors | {"stop_words": words(["never to be seen"])}
    assert text(stream(server.grpc_url, stopping)) == text(stream(server.grpc_url, tensors))


LIMIT = json.loads((bls.PAIR / "target/config.json").read_text())["max_position_embeddings"]
ERRORS: list[tuple[dict[str, Array], str]] = [
    (inputs(""), "the prompt is empty"),
    (inputs("def f", max_tokens=0), "max_tokens is 0"),
    (inputs("def f", max_tokens=-2), "max_tokens is -2"),
    (inputs("x = 1\n" * LIMIT), f"more than the model's limit of {LIMIT}"),
    (inputs("def f", max_tokens=LIMIT), f"more than the model's limit of {LIMIT}"),
    (inputs("def f", num_draft_tokens=-1), "num_draft_tokens is -1"),
    (inputs("def f", temperature=-1.0), "temperature is -1.0"),
    (inputs("def f", top_p=2.0), "top_p is 2.0"),
    (inputs("def f", beam_width=4), "beam_width 4 is not supported"),
    (inputs("def f", num_return_sequences=2), "num_return_sequences 2 is not supported"),
    (inputs("def f", decoder_text_input=words(["x"])), "decoder_text_input is not supported"),
    (inputs("def f", guided_decoding_guide=words(["{}"])), "sent without guided_decoding_guide_type"),
    (inputs("def f", lora_weights=np.zeros((1, 2, 4), np.float16)), "send all three"),
    (inputs("def f", ""), "the prompt is empty"),
]


@pytest.mark.parametrize(("tensors", "message"), ERRORS, ids=[message for _, message in ERRORS])
def test_bad_requests_get_a_clear_error(faulty: TritonServer, tensors: dict[str, Array], message: str) -> None:
    with pytest.raises(InferenceServerException) as streamed:
        stream(faulty.grpc_url, tensors)
    with pytest.raises(InferenceServerException) as answered:
        unary(faulty.grpc_url, tensors)
    for error in (streamed.value, answered.value):
        assert message in error.message()
        assert "Traceback" not in error.message()
        assert "model.py" not in error.message()
    assert answered.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert text(stream(faulty.grpc_url, inputs("def f")))


def test_streaming_is_refused_by_the_unary_model(faulty: TritonServer) -> None:
    with pytest.raises(InferenceServerException, match="to stream, call speculative_bls"):
        unary(faulty.grpc_url, inputs("def f", stream=True))


@pytest.mark.parametrize("fault", [DRAFT_FAILS, DRAFT_HANGS], ids=["fails", "hangs"])
def test_without_its_draft_a_request_goes_on(faulty: TritonServer, fault: int) -> None:
    before = metric(faulty, "tandem_spec_decode_draft_failures_total")
    answer = stream(faulty.grpc_url, inputs(TEXTS[0], seed=fault))
    assert ids(answer) == ids(stream(faulty.grpc_url, inputs(TEXTS[0], num_draft_tokens=0)))
    eventually(lambda: metric(faulty, "tandem_spec_decode_draft_failures_total") == before + 1, "counted")


FIRST_TOKEN = 300  # of the stand-in


def test_handles_of_fast_logits_pass_untouched(faulty: TritonServer) -> None:
    """The stand-in's target refuses a draft_logits that is not what its draft gave, to the bit."""
    eventually(lambda: accepts(stream(faulty.grpc_url, inputs(TEXTS[0]))), "drafts, after the test before")
    calls = [inputs(prompt, stream=True, use_draft_logits=TRUE) for prompt in TEXTS[:8]]
    with ThreadPoolExecutor(len(calls)) as threads:
        answers = list(threads.map(lambda call: stream(faulty.grpc_url, call), calls))
    for prompt, answer in zip(TEXTS, answers, strict=False):
        assert ids(answer) == ids(stream(faulty.grpc_url, inputs(prompt, num_draft_tokens=0)))
        assert accepts(answer)


def accepts(answer: list[bls.Response]) -> bool:
    return bool(answer[-1]["total_accepted_draft_tokens"].item() > 0)


LORA: dict[str, Array] = {
    "lora_task_id": np.array([[7]], np.uint64),
    "lora_weights": np.full((1, 2, 4), 3, np.float16),
    "lora_config": np.array([[[0, 1, 8]]], np.int32),
}


@pytest.mark.parametrize("names", [["lora_task_id"], list(LORA)], ids=["cached", "with weights"])
def test_lora_reaches_the_target_on_each_call(faulty: TritonServer, names: list[str]) -> None:
    """The draft has no adapter, so its tokens are refused; the text is the target's."""
    lora: dict[str, Any] = {name: LORA[name] for name in names}
    alone = stream(faulty.grpc_url, inputs(TEXTS[0], num_draft_tokens=0, **lora))
    drafted = stream(faulty.grpc_url, inputs(TEXTS[0], num_draft_tokens=4, **lora))
    assert ids(drafted) == ids(alone) == ids([unary(faulty.grpc_url, inputs(TEXTS[0], **lora))])
    assert drafted[-1]["total_draft_tokens"].item() > 0
    assert ids(alone) != ids(stream(faulty.grpc_url, inputs(TEXTS[0])))


@pytest.mark.parametrize("more", [{}, {"stream": True}, {"use_draft_logits": TRUE}], ids=str)
def test_a_guided_answer_comes_from_one_call(faulty: TritonServer, more: dict[str, Any]) -> None:
    """An engine's guide starts anew with each call."""
    guide = {"guided_decoding_guide_type": words(["json"])}
    answer = stream(faulty.grpc_url, inputs(TEXTS[0], max_tokens=40, num_draft_tokens=4, **guide, **more))
    assert ids(answer) == list(range(FIRST_TOKEN, FIRST_TOKEN + 40))


@pytest.mark.parametrize("k", [0, 4])
def test_a_failing_target_is_that_request_s_error(faulty: TritonServer, k: int) -> None:
    alone = [text(stream(faulty.grpc_url, inputs(prompt, num_draft_tokens=0))) for prompt in TEXTS[:7]]
    with ThreadPoolExecutor(8) as threads:
        good = [threads.submit(stream, faulty.grpc_url, inputs(prompt)) for prompt in TEXTS[:7]]
        with pytest.raises(InferenceServerException, match="target engine: the stand-in fails on demand"):
            stream(faulty.grpc_url, inputs(TEXTS[0], seed=TARGET_FAILS, num_draft_tokens=k))
        assert [text(call.result()) for call in good] == alone


def test_sequences_of_a_unary_call_of_the_engine_are_answered_as_alone(faulty: TritonServer) -> None:
    rows: list[list[int]] = [[5, 6, 7, 8, 9], [11, 12]]
    alone = [engine_answer(faulty, [row]) for row in rows]
    assert engine_answer(faulty, rows) == [answer for (answer,) in alone]


def engine_answer(server: TritonServer, rows: list[list[int]]) -> list[list[int]]:
    """The tokens that the target adds to each row, and the row."""
    ids = np.zeros((len(rows), max(map(len, rows))), np.int32)
    for filled, row in zip(ids, rows, strict=True):
        filled[: len(row)] = row
    lengths = np.array([[len(row)] for row in rows], np.int32)
    tensors = {"input_ids": ids, "input_lengths": lengths, "request_output_len": np.full_like(lengths, 6)}
    found = unary(server.grpc_url, tensors, "tensorrt_llm")
    answers = zip(found["output_ids"], found["sequence_length"], strict=True)
    return [answer[0, : length.item()].tolist() for answer, length in answers]


@once
def test_http_generate_and_generate_stream(server: TritonServer) -> None:
    def post(path: str, **body: Any) -> str:
        data = json.dumps({"text_input": TEXTS[3], "max_tokens": 16, **body}).encode()
        with urllib.request.urlopen(f"{server.http_url}/v2/models/{path}", data, timeout=240) as reply:
            answer: bytes = reply.read()
            return answer.decode()

    whole = json.loads(post("tensorrt_llm_bls/generate"))
    events = post("speculative_bls/generate_stream", stream=True).split("\n\n")
    deltas = [json.loads(event.removeprefix("data: "))["text_output"] for event in events if event]
    assert whole["text_output"] == TEXTS[3] + "".join(deltas)


UNKNOWN = [("stop_word", "x"), ("max_new_tokens", 4), ("temprature", 0.5), ("greedy", True)]
"""Of every type that Triton takes."""


@pytest.mark.parametrize("path", ["tensorrt_llm_bls/generate", "speculative_bls/generate_stream"])
@pytest.mark.parametrize(("name", "value"), UNKNOWN)
def test_a_parameter_that_nobody_knows_is_refused(faulty: TritonServer, path: str, name: str, value: Any) -> None:
    body = {"text_input": "def f", "max_tokens": 2, "parameters": {name: value}, "stream": "stream" in path}
    with pytest.raises(urllib.error.HTTPError) as error:
        post(faulty, path, body)
    with error.value as answer:
        assert (answer.code, f"{name} is not known to this model: " in answer.read().decode()) == (400, True)
    assert "text_output" in post(faulty, path, body | {"parameters": {"min_tokens": 1}})


def post(server: TritonServer, path: str, body: dict[str, Any]) -> str:
    url = f"{server.http_url}/v2/models/{path}"
    with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=240) as reply:
        answer: bytes = reply.read()
        return answer.decode()


@once
@pytest.mark.parametrize("model", ["tensorrt_llm_bls", "speculative_bls"])
def test_parameters_of_triton_pass_and_inputs_sent_as_such_do_not(server: TritonServer, model: str) -> None:
    def ask(**parameters: Any) -> list[Any]:
        answers: Queue[Any] = Queue()
        with tritonclient.InferenceServerClient(server.grpc_url) as client:
            client.start_stream(lambda result, error: answers.put(error or result))
            sent = bls.infer_inputs(inputs(TEXTS[0], max_tokens=2))
            client.async_stream_infer(
                model, sent, priority=1, timeout=int(6e7), enable_empty_final_response=True, parameters=parameters
            )
            return [answers.get(timeout=240)]

    [answered] = ask()
    assert not isinstance(answered, InferenceServerException), answered
    [refused] = ask(temperature="0.5")
    assert "temperature is not known to this model: it is an input" in str(refused)


def test_http_error_is_the_client_s(faulty: TritonServer) -> None:
    body = json.dumps({"text_input": "", "max_tokens": 16}).encode()
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"{faulty.http_url}/v2/models/tensorrt_llm_bls/generate", body, timeout=240)
    with error.value as answer:
        assert answer.code == 400


def test_metrics_count_what_the_responses_say(server: TritonServer) -> None:
    names = ["num_draft_tokens", "num_accepted_tokens"]
    families = [f"tandem_spec_decode_{name}_total" for name in names] + ["tandem_generation_tokens_total"]

    def ask() -> list[float]:
        last = stream(server.grpc_url, inputs(TEXTS[4], stream=True))[-1]
        told = ["total_draft_tokens", "total_accepted_draft_tokens", "num_output_tokens"]
        return [last[name].item() for name in told]

    counted(server, families, ask)


@once
def test_the_startup_probe_succeeds(server: TritonServer, tmp_path: Path) -> None:
    (tmp_path / "tensorrt_llm_bls").mkdir()  # as in the server's repository
    entrypoint = REPOSITORY_ROOT / "images/serving/entrypoint.py"
    command = [sys.executable, str(entrypoint), "probe", "--port", str(server.ports.http), "--models", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("tensorrt_llm_bls generates: ")


def test_the_log_has_no_traceback(faulty: TritonServer) -> None:
    assert "Traceback" not in faulty.log
