"""Triton's responses as chunks and errors, over a gRPC stream that a test plays."""

import asyncio
import time
from collections.abc import Iterable
from contextlib import aclosing
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from cluster.ports import free_port
from tandem_serving.openai.errors import ApiError
from tandem_serving.openai.triton import MODELS, MOST_TOKENS, OUTPUTS, Chunk, TritonServer


class Result:
    """A response with these outputs, to the request of this id."""

    def __init__(self, place: int, **outputs: Any) -> None:
        self.id = str(place)
        self._outputs = outputs

    def get_response(self) -> "Result":
        return self

    def as_numpy(self, name: str) -> Any:
        value = self._outputs.get(name)
        if isinstance(value, str):
            return np.array([[value.encode()]], np.object_)
        return None if value is None else np.array([value])


class Stream:
    """What `stream_infer` gives: results, errors of Triton, and at last perhaps an error of gRPC."""

    def __init__(self, answers: Iterable[Any]) -> None:
        self._answers = iter(answers)
        self.cancelled = False
        self.sent: list[dict[str, Any]] = []

    def stream_infer(self, inputs: Any, stream_timeout: float | None) -> "Stream":
        self.timeout = stream_timeout
        self._inputs = inputs
        return self

    def __aiter__(self) -> "Stream":
        return self

    async def __anext__(self) -> Any:
        async for each in self._inputs:
            self.sent.append(each)
        for answer in self._answers:
            if isinstance(answer, grpc.aio.AioRpcError):
                raise answer
            return (None, answer) if isinstance(answer, Exception) else (answer, None)
        raise StopAsyncIteration

    def cancel(self) -> None:
        self.cancelled = True


def server(*answers: Any) -> tuple[TritonServer, Stream]:
    made, stream = TritonServer.__new__(TritonServer), Stream(answers)
    made.model, made._client, made._seconds, made._most_tokens = MODELS["BLS"], stream, 30, 0
    return made, stream


async def collect(triton: TritonServer, requests: int = 1) -> list[tuple[int, Chunk]]:
    tensors = {"text_input": np.array([[b"x"]], np.object_)}
    return [each async for each in triton.generate([tensors] * requests, OUTPUTS)]


async def test_responses_belong_to_their_requests() -> None:
    figures = {"num_output_tokens": 3, "total_draft_tokens": 6, "acceptance_histogram": [1, 0, 1]}
    last = Result(1, text_output="b", finish_reason="length", **figures)
    triton, stream = server(Result(1, text_output="a", finish_reason=""), Result(0, text_output="ü"), last)
    nothing: list[list[int]] = [[], [], []]
    assert await collect(triton, 2) == [
        (1, Chunk("a", [], [], "", {}, *nothing)),
        (0, Chunk("ü", [], [], "", {}, *nothing)),
        (1, Chunk("b", [], [], "length", {"output_tokens": 3, "draft_tokens": 6}, [1, 0, 1], [], [])),
    ]
    assert [(each["request_id"], each["parameters"]) for each in stream.sent] == [
        ("0", {"error_as_response": True}),
        ("1", {"error_as_response": True}),
    ]
    assert not stream.cancelled, "Triton 2.51 would wait for it at its end"


ERRORS = [
    (Result(0, text_output="too long", finish_reason="INVALID_ARG"), 400, "too long"),
    (Result(0, text_output="no room", finish_reason="UNAVAILABLE"), 503, "no room"),
    (Result(0, text_output="broken", finish_reason="INTERNAL"), 500, "broken"),
    (InferenceServerException("Server not ready"), 503, "Server not ready"),
]


@pytest.mark.parametrize(("answer", "status", "message"), ERRORS, ids=[row[2] for row in ERRORS])
async def test_an_error_has_its_status_and_ends_the_other_requests(answer: Any, status: int, message: str) -> None:
    triton, stream = server(Result(1, text_output="a"), answer)
    with pytest.raises(ApiError, match=message) as failed:
        await collect(triton, 2)
    assert (failed.value.status, stream.cancelled) == (status, True)


async def test_a_triton_that_is_gone_is_asked_again() -> None:
    gone = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata())
    triton, _ = server(gone)
    with pytest.raises(ApiError) as failed:
        await collect(triton)
    assert (failed.value.status, failed.value.headers) == (503, {"Retry-After": "1"})


async def test_who_stops_reading_ends_the_request() -> None:
    triton, stream = server(*(Result(0, text_output="a") for _ in range(9)))
    async with aclosing(triton.generate([{}], OUTPUTS)) as chunks:
        await anext(chunks)
    assert stream.cancelled


LIMITS = [
    (Result(0, text_output="... more than the model's limit of 2048: shorten", finish_reason="INVALID_ARG"), 2048),
    (Result(0, text_output="no room", finish_reason="UNAVAILABLE"), MOST_TOKENS),
]


@pytest.mark.parametrize(("said", "limit"), LIMITS)
async def test_the_model_s_limit_is_what_it_says_of_a_request_beyond_it(said: Any, limit: int) -> None:
    triton, _ = server(said)
    assert await triton.most_tokens() == limit


async def test_what_is_sent_is_not_kept() -> None:
    """A prompt may be large, and its answer may take long."""
    triton, stream = server(Result(0, text_output="a"))
    requests = [{"text_input": np.array([[b"x"]], np.object_)} for _ in range(3)]
    assert [each async for each in triton.generate(requests, OUTPUTS)]
    assert (requests, len(stream.sent)) == ([{}] * 3, 3)


async def test_a_triton_that_never_ends_a_request_is_given_up() -> None:
    late = grpc.aio.AioRpcError(grpc.StatusCode.DEADLINE_EXCEEDED, grpc.aio.Metadata(), grpc.aio.Metadata())
    triton, stream = server(late)
    with pytest.raises(ApiError, match="within 30 s"):
        await collect(triton)
    assert stream.timeout == 30


async def test_a_triton_that_is_back_is_reached_at_once() -> None:
    """gRPC alone waits up to two minutes after failed tries."""
    port = free_port()
    triton = TritonServer(f"127.0.0.1:{port}", MODELS["BLS"])
    try:
        end = time.monotonic() + 15  # gRPC's own pauses are 1, 1.6, 2.6, 4.1, 6.6 and 10.5 s by now
        while time.monotonic() < end:
            assert not await triton.ready(0.5)
            await asyncio.sleep(0.1)
        back = grpc.aio.server()
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Ready(), back)
        back.add_insecure_port(f"127.0.0.1:{port}")
        await back.start()
        async with asyncio.timeout(5):
            while not await triton.ready(0.5):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await back.stop(None)
    finally:
        await triton.close()


class Ready(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc] # it has no types
    """A Triton that is ready."""

    async def ServerReady(self, *_: Any) -> Any:  # noqa: N802
        """See Triton."""
        return service_pb2.ServerReadyResponse(ready=True)
