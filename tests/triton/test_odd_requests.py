"""Requests as no library would send them: an error that helps, no trace, and the others go on.

Written as protobuf, so that shapes, types and bytes can be wrong. What is wrong in itself never reaches the models:
Triton says so. The rest is the BLS's.
"""

import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from triton import bls_client as bls
from triton import hostile
from triton.bls_client import ids, inputs, stream
from triton.harness import TritonServer
from triton.hostile import Others, Row
from triton.hostile_rows import TRITON_GRPC, TRITON_HTTP

MODELS = ["speculative_bls", "tensorrt_llm_bls"]
Raw = tuple[str, list[int], bytes]
"""A tensor: its type, its shape, its bytes."""


def strings(*values: bytes, shape: list[int] | None = None) -> Raw:
    content = b"".join(len(value).to_bytes(4, "little") + value for value in values)
    return "BYTES", [1, len(values)] if shape is None else shape, content


def numbers(kind: type, *values: float, shape: list[int] | None = None) -> Raw:
    names: dict[Any, str] = {np.int32: "INT32", np.float32: "FP32", np.uint64: "UINT64", np.int64: "INT64"}
    return names[kind], [1, len(values)] if shape is None else shape, np.array(values, kind).tobytes()


PLAIN: dict[str, Raw] = {"text_input": strings(b"def f"), "max_tokens": numbers(np.int32, 6)}
WRONG = grpc.StatusCode.INVALID_ARGUMENT  # the request is, not the server
NAN, INF, MOST = float("nan"), float("inf"), 2**31 - 1
# what is sent instead of, or beside, a plain request; None: left out. What the answer says: "" for a completion.
ODD: list[tuple[dict[str, Raw | None], str]] = [
    ({}, ""),
    ({"text_input": ("BYTES", [1, 1], b"\xff\xff\xff\xff")}, "incomplete string data"),
    ({"text_input": ("BYTES", [1, 1], b"")}, "expected 1 string elements"),
    ({"text_input": strings(b"a", b"b", shape=[1, 1])}, "unexpected number of string elements 2"),
    ({"text_input": strings(b"a", b"b")}, "unexpected shape for input 'text_input'"),
    ({"text_input": strings(b"a", shape=[1])}, "unexpected shape for input 'text_input'"),
    ({"text_input": strings(b"a", shape=[])}, "'text_input' has no shape"),
    ({"text_input": strings(b"a", shape=[-1, 1])}, "batch size does not match"),
    ({"text_input": numbers(np.int32, 1)}, "data-type is 'INT32'"),
    ({"text_input": None}, "text_input is missing"),
    ({"text_input": strings(b"\xff\xfe")}, "text_input is not valid UTF-8"),
    ({"text_input": strings(b"\xed\xa0\x80")}, "text_input is not valid UTF-8"),
    ({"text_input": strings(b"a\x00b")}, ""),
    ({"text_input": strings(b"")}, "the prompt is empty"),
    ({"text_input": strings(b"x = 1\n" * 100_000)}, "more than the model's limit of 2048 tokens can hold"),
    ({"max_tokens": None}, "max_tokens is missing"),
    ({"max_tokens": numbers(np.int32, 6, 6, shape=[2, 1])}, "batch size does not match"),
    ({"max_tokens": numbers(np.int64, 6)}, "data-type is 'INT64'"),
    ({"max_tokens": numbers(np.float32, 6)}, "data-type is 'FP32'"),
    ({"max_tokens": ("INT32", [1, 1], b"\x06")}, "byte size mismatch"),
    ({"max_tokens": numbers(np.int32, MOST)}, "more than the model's limit of 2048"),
    ({"max_tokens": numbers(np.int32, -MOST)}, "max_tokens is -2147483647"),
    (
        {
            "text_input": strings(*[b"a"] * 65, shape=[65, 1]),
            "max_tokens": numbers(np.int32, *[1] * 65, shape=[65, 1]),
        },
        "batch-size must be <= 64",
    ),
    ({"of_no_model": numbers(np.int32, 1)}, "unexpected inference input 'of_no_model'"),
    ({"stop_words": strings(b"\xff")}, "stop_words is not valid UTF-8"),
    ({"stop_words": strings(b"w" * 1_000_000)}, ""),
    ({"stop_words": strings(*(b"w%d" % i for i in range(2000)))}, ""),
    ({"stop_words": ("BYTES", [1, 0], b"")}, ""),
    ({"bad_words": strings(b"\xff")}, "bad_words is not valid UTF-8"),
    ({"bad_words": strings(b"", b"")}, ""),
    ({"embedding_bias_words": strings(b"\xff")}, "embedding_bias_words is not valid UTF-8"),
    (
        {"embedding_bias_words": strings(b"a"), "embedding_bias_weights": numbers(np.float32, NAN)},
        "embedding_bias_weights holds nan",
    ),
    ({"temperature": numbers(np.float32, NAN)}, "temperature is nan"),
    ({"temperature": numbers(np.float32, 3e38)}, ""),
    ({"temperature": numbers(np.float32, 1e-45)}, ""),
    ({"top_p": numbers(np.float32, -1)}, "top_p is -1.0"),
    ({"top_k": numbers(np.int32, MOST)}, ""),
    ({"repetition_penalty": numbers(np.float32, 0)}, "repetition_penalty is 0.0"),
    ({"repetition_penalty": numbers(np.float32, 1e-45)}, ""),
    ({"presence_penalty": numbers(np.float32, INF)}, "presence_penalty is inf"),
    ({"frequency_penalty": numbers(np.float32, -INF)}, "frequency_penalty is -inf"),
    ({"end_id": numbers(np.int32, MOST)}, "end_id is 2147483647: send -1 (none) or a token"),
    ({"end_id": numbers(np.int32, -MOST)}, "end_id is -2147483647"),
    ({"end_id": numbers(np.int32, -1)}, ""),
    ({"pad_id": numbers(np.int32, MOST)}, ""),
    ({"min_tokens": numbers(np.int32, MOST)}, ""),
    ({"min_tokens": numbers(np.int32, -MOST)}, ""),
    ({"beam_width": numbers(np.int32, 0)}, "beam_width 0 is not supported"),
    ({"num_draft_tokens": numbers(np.int32, MOST)}, ""),
    ({"num_draft_tokens": numbers(np.int32, -MOST)}, "num_draft_tokens is -2147483647"),
    ({"seed": numbers(np.uint64, 2**64 - 1)}, ""),
    ({"seed": numbers(np.int64, -1)}, "data-type is 'INT64'"),
    ({"text_input": None, "input_ids": numbers(np.int32, 5, 6, 7)}, ""),
    ({"text_input": None, "input_ids": ("INT32", [1, 0], b"")}, "send 1 token or more"),
    ({"text_input": None, "input_ids": numbers(np.int32, MOST)}, "input_ids holds 2147483647"),
    ({"input_ids": numbers(np.int32, 5)}, "both text_input and input_ids"),
    (
        {"text_input": None, "input_ids": numbers(np.int32, 5), "input_lengths": numbers(np.int32, MOST)},
        "input_lengths is 2147483647",
    ),
    ({"guided_decoding_guide": strings(b"\xff")}, "sent without guided_decoding_guide_type"),
]


ENGINE: dict[str, Raw | None] = {
    "input_ids": numbers(np.int32, 5, 6),
    "input_lengths": numbers(np.int32, 2),
    "request_output_len": numbers(np.int32, 3),
}
QUERY: dict[str, Raw | None] = {"QUERY": strings(b"def f"), "REQUEST_OUTPUT_LEN": numbers(np.int32, 6)}
TOKENS: dict[str, Raw | None] = {
    "TOKENS_BATCH": numbers(np.int32, 5, 6, shape=[1, 1, 2]),
    "SEQUENCE_LENGTH": numbers(np.int32, 2),
}
# the models that a client calls which runs the loop itself; what is sent, what the answer says
PARTS: list[tuple[str, dict[str, Raw | None], str]] = [
    ("preprocessing", QUERY, ""),
    ("preprocessing", QUERY | {"QUERY": strings(b"\xff")}, "QUERY is not valid UTF-8"),
    ("preprocessing", QUERY | {"QUERY": strings(b"")}, "QUERY is empty"),
    ("preprocessing", QUERY | {"BAD_WORDS_DICT": strings(b"\xff")}, "BAD_WORDS_DICT is not valid UTF-8"),
    (
        "preprocessing",
        QUERY | {"EMBEDDING_BIAS_WORDS": strings(b"a"), "EMBEDDING_BIAS_WEIGHTS": numbers(np.float32, NAN)},
        "EMBEDDING_BIAS_WEIGHTS holds nan",
    ),
    ("postprocessing", TOKENS, ""),
    ("postprocessing", TOKENS | {"TOKENS_BATCH": numbers(np.int32, -1, 6, shape=[1, 1, 2])}, "TOKENS_BATCH holds -1"),
    ("postprocessing", TOKENS | {"TOKENS_BATCH": numbers(np.int32, MOST, 6, shape=[1, 1, 2])}, ""),
    ("postprocessing", TOKENS | {"SEQUENCE_LENGTH": numbers(np.int32, -MOST)}, ""),
    ("postprocessing", TOKENS | {"SEQUENCE_LENGTH": numbers(np.int32, 2, 2)}, "send [n, beams, m]"),
    ("tensorrt_llm", ENGINE, ""),
    ("tensorrt_llm", ENGINE | {"input_ids": numbers(np.int32, -1, 6)}, "input_ids"),
    ("tensorrt_llm", ENGINE | {"input_ids": numbers(np.int32, MOST, 6)}, "input_ids"),
    ("tensorrt_llm", ENGINE | {"input_lengths": numbers(np.int32, MOST)}, "input_lengths"),
    ("tensorrt_llm", ENGINE | {"input_lengths": numbers(np.int32, -1)}, "input_lengths"),
    ("tensorrt_llm", ENGINE | {"request_output_len": numbers(np.int32, -1)}, "request_output_len"),
    ("tensorrt_llm", ENGINE | {"request_output_len": numbers(np.int32, MOST)}, "more than the model's limit"),
    ("tensorrt_llm", ENGINE | {"draft_input_ids": numbers(np.int32, -1)}, "draft_input_ids"),
    ("tensorrt_llm", ENGINE | {"draft_input_ids": numbers(np.int32, MOST)}, "draft_input_ids"),
    ("tensorrt_llm", ENGINE | {"temperature": numbers(np.float32, NAN)}, "temperature"),
    ("tensorrt_llm", ENGINE | {"runtime_top_p": numbers(np.float32, NAN)}, "top_p"),
    (
        "tensorrt_llm",
        ENGINE | {"runtime_top_p": numbers(np.float32, 0.9), "temperature": numbers(np.float32, 1e-45)},
        "",
    ),
    ("tensorrt_llm", ENGINE | {"end_id": numbers(np.int32, MOST), "min_tokens": numbers(np.int32, 1)}, ""),
    ("tensorrt_llm", ENGINE | {"embedding_bias": numbers(np.float32, 1, 2)}, "embedding_bias"),
    ("tensorrt_llm", ENGINE | {"bad_words_list": numbers(np.int32, -1, -1, shape=[1, 2, 1])}, ""),
    ("tensorrt_llm", ENGINE | {"stop_words_list": numbers(np.int32, MOST, MOST, shape=[1, 2, 1])}, "stop_words_list"),
]


def named(changes: dict[str, Raw | None]) -> str:
    """A case's name: what it sends, shortened."""
    return (
        ",".join(f"{name}={raw and (raw[0], raw[1], raw[2][:12])}" for name, raw in changes.items())[:80] or "plain"
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    made = bls.repository(tmp_path_factory.mktemp("odd"), "reference", max_engine_rows=64)
    with TritonServer(made) as running:
        yield running


@pytest.fixture(scope="module")
def others(server: TritonServer) -> Iterator[Callable[[], int]]:
    """Streams of two prompts beside the odd requests, one after the other: how many were right until now."""
    tensors = inputs("def f(x):", "class A", max_tokens=48, stream=True)

    def answer() -> list[list[int]]:
        responses = stream(server.grpc_url, tensors)
        return [ids(responses, i) for i in range(2)]

    expected = answer()
    right, over = [0], threading.Event()
    wrong: list[list[list[int]]] = []

    def keep_on() -> None:
        while not over.wait(0.2):
            if (got := answer()) != expected:
                wrong.append(got)
            right[0] += 1

    thread = threading.Thread(target=keep_on)
    thread.start()
    yield lambda: right[0]
    over.set()
    thread.join()
    assert not wrong


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("changes", "says"), ODD, ids=[named(changes) for changes, _ in ODD])
def test_an_odd_request(
    server: TritonServer, others: Callable[[], int], model: str, changes: dict[str, Raw | None], says: str
) -> None:
    check(ask(server, model, {name: raw for name, raw in (PLAIN | changes).items() if raw is not None}), says)


@pytest.mark.parametrize(
    ("model", "sent", "says"), PARTS, ids=[f"{model},{named(sent)},{says}" for model, sent, says in PARTS]
)
def test_an_odd_call_of_a_part(
    server: TritonServer,
    others: Callable[[], int],
    model: str,
    sent: dict[str, Raw | None],
    says: str,
) -> None:
    tensors = {name: raw for name, raw in sent.items() if raw is not None}
    # Triton's Python backend loses the code of an engine's error, where a model in Python stands before it.
    lost = model == "tensorrt_llm"
    check(ask(server, model, tensors, grpc.StatusCode.INTERNAL if lost else WRONG), says)


TWO: dict[str, Raw | None] = {
    "input_ids": numbers(np.int32, 5, 6, 7, 8, shape=[2, 2]),
    "input_lengths": numbers(np.int32, 2, 1, shape=[2, 1]),
    "request_output_len": numbers(np.int32, 3, 1, shape=[2, 1]),
}
# waves as the BLS never sends them; what the answer says
WAVES: list[tuple[dict[str, Raw | None], str]] = [
    (TWO, ""),
    (TWO | {"input_ids": numbers(np.int32, 5, 6, MOST, 8, shape=[2, 2])}, "input_ids holds ids outside"),
    (TWO | {"input_lengths": numbers(np.int32, 2, 3, shape=[2, 1])}, "input_lengths"),
    (TWO | {"input_ids": ("INT32", [2, 0], b"")}, "input_lengths"),
    (TWO | {"draft_input_ids": ("INT32", [2, 0], b"")}, ""),
    (
        TWO
        | {
            "return_generation_logits": ("BOOL", [2, 1], b"\x01\x01"),
            "end_id": numbers(np.int32, 5, 5, shape=[2, 1]),
        },
        "",
    ),
    (TWO | {"guided_decoding_guide": strings(b"{}", b"", shape=[2, 1])}, "guided_decoding_guide"),
    (TWO | {"input_lengths": numbers(np.int32, 2)}, "batch size"),
]


@pytest.mark.parametrize(("sent", "says"), WAVES, ids=[f"{named(sent)},{says}" for sent, says in WAVES])
def test_an_odd_wave(server: TritonServer, others: Callable[[], int], sent: dict[str, Raw], says: str) -> None:
    """The collector keeps the code of an engine's error."""
    check(ask(server, "tensorrt_llm_collector", sent), says)


def test_others_went_on(server: TritonServer, others: Callable[[], int]) -> None:
    before = others()
    for _ in range(3):
        assert "tokens can hold" in ask(server, MODELS[0], PLAIN | {"text_input": strings(b"x = 1\n" * 1_000_000)})
    stream(server.grpc_url, inputs("def f(x):", max_tokens=48, stream=True))
    end = time.monotonic() + 240
    while others() == before:
        assert time.monotonic() < end, "the other streams went on"
        time.sleep(0.05)
    assert "Traceback" not in server.log


@pytest.mark.parametrize("row", TRITON_HTTP, ids=lambda row: row.name)
def test_an_attack_on_http_harms_no_other_client(server: TritonServer, row: Row) -> None:
    hostile.check(row, server.ports.http, other_clients(server))


@pytest.mark.parametrize("row", TRITON_GRPC, ids=lambda row: row.name)
def test_an_attack_on_grpc_harms_no_other_client(server: TritonServer, row: Row) -> None:
    hostile.check(row, server.ports.grpc, other_clients(server))


def other_clients(server: TritonServer) -> Others:
    def texts() -> Iterator[Any]:
        while True:
            with bls.Stream(server.grpc_url) as call:
                call.send(inputs("def f(x):", max_tokens=1500, stream=True))
                last = False
                while not last:
                    _, last = call.receive()
                    yield

    def live() -> None:
        with urllib.request.urlopen(f"{server.http_url}/v2/health/live", timeout=bls.SECONDS) as reply:
            assert reply.status == 200

    return Others(server.pid, texts, live)


def check(answer: str, says: str) -> None:
    assert says in answer
    assert bool(says) == bool(answer), "a completion or an error"
    for trace in ("Traceback", ".py", "File "):
        assert trace not in answer


def ask(server: TritonServer, model: str, tensors: dict[str, Raw], code: grpc.StatusCode = WRONG) -> str:
    """What the error says; empty: there were responses and none. A unary call's error has the code."""
    request = service_pb2.ModelInferRequest(model_name=model)
    for name, (kind, shape, content) in tensors.items():
        request.inputs.add(name=name, datatype=kind, shape=shape)
        request.raw_input_contents.append(content)
    with grpc.insecure_channel(server.grpc_url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        if model != "speculative_bls":
            return unary_error(stub, request, code)
        responses = list(stub.ModelStreamInfer(iter([request]), timeout=bls.SECONDS))
        assert responses
        return "".join(response.error_message for response in responses)


def unary_error(stub: Any, request: Any, code: grpc.StatusCode) -> str:
    try:
        stub.ModelInfer(request, timeout=bls.SECONDS)
    except grpc.RpcError as error:
        assert error.code() == code
        return str(error.details())
    return ""
