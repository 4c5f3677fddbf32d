"""The load: closed-loop streams over gRPC, in a process of its own so that its CPU time is its own.

Run by `measure`: takes a `Load` as JSON on its standard input, writes a line "begin" and a line "end"
when the window does, then a line of JSON, a `Result`. Each stream sends its next request when one ends.
All that can wait until after the window does: responses are kept as they came.
"""

import asyncio
import dataclasses
import itertools
import json
import random
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import grpc
import numpy as np
from tritonclient.grpc import service_pb2 as pb

from bench.bls import prompts, tokens
from bench.bls.prompts import Prompt

METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
FINAL = "triton_final_response"
PROMPTS_A_SECOND = 120  # more than any stub reaches


@dataclass(frozen=True)
class Load:
    """What to send: `draft_len` None leaves num_draft_tokens out; `group` of `groups`: see prompts.make."""

    url: str
    streams: int
    seconds: float
    warm_up: float
    seed: int
    max_tokens: int = 128
    draft_len: int | None = None
    group: int = 0
    groups: int = 1


@dataclass(frozen=True)
class Result:
    """Of the window: seconds, tokens/s, TTFT of requests begun in it, chunks, the client's CPU seconds.

    `wrong`: finished requests whose tokens were not the target's.
    """

    seconds: float
    tokens: int
    chunks: int
    requests: int
    wrong: int
    ttft_mean: float
    ttft_median: float
    cpu: float


@dataclass
class Answer:
    """A request's responses as they came, with their times (perf_counter)."""

    prompt: Prompt
    max_tokens: int
    sent: float
    chunks: list[tuple[float, pb.ModelInferResponse]] = dataclasses.field(default_factory=list)
    ended: bool = False


def stagger(streams: int, max_tokens: int, seed: int) -> list[int]:
    """Lengths of the streams' first requests: spread, so that requests do not all end together."""
    rng = random.Random(seed)
    return [rng.randint(1, max_tokens) for _ in range(streams)]


def message(prompt: Prompt, max_tokens: int, draft_len: int | None) -> bytes:
    """A serialised ModelInferRequest for one greedy streamed completion."""
    request = pb.ModelInferRequest(model_name="speculative_bls")
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    text = prompt.text.encode()
    tensors = [
        ("text_input", "BYTES", len(text).to_bytes(4, "little") + text),
        ("max_tokens", "INT32", max_tokens.to_bytes(4, "little")),
        ("stream", "BOOL", b"\1"),
        ("exclude_input_in_output", "BOOL", b"\1"),
    ]
    if draft_len is not None:
        tensors.append(("num_draft_tokens", "INT32", draft_len.to_bytes(4, "little")))
    for name, datatype, raw in tensors:
        request.inputs.add(name=name, datatype=datatype, shape=[1, 1])
        request.raw_input_contents.append(raw)
    serialised: bytes = request.SerializeToString()
    return serialised


class Client:
    """All streams of a load."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._answers: list[Answer] = []
        count = int(load.streams + PROMPTS_A_SECOND * (load.warm_up + load.seconds))
        self._prompts = iter(prompts.make(load.seed, count, load.group, load.groups))
        self._over = False

    async def run(self) -> Result:
        """Warm up, measure, stop."""
        load = self._load
        async with grpc.aio.insecure_channel(load.url) as channel:
            first = stagger(load.streams, load.max_tokens, load.seed)
            tasks = [asyncio.create_task(self._stream(channel, length)) for length in first]
            await _watch(tasks, load.warm_up)
            begin, cpu = time.perf_counter(), time.process_time()
            print("begin", flush=True)
            await _watch(tasks, load.seconds)
            end, cpu = time.perf_counter(), time.process_time() - cpu
            print("end", flush=True)
            self._over = True
            await asyncio.gather(*tasks)
        return self._result(begin, end, cpu)

    async def _stream(self, channel: grpc.aio.Channel, first: int) -> None:
        call = channel.stream_stream(METHOD)()
        length = first
        while not self._over:
            await self._request(call, next(self._prompts), length)
            length = self._load.max_tokens
        await call.done_writing()
        await call.read()

    async def _request(self, call: grpc.aio.StreamStreamCall, prompt: Prompt, length: int) -> None:
        request = message(prompt, length, self._load.draft_len)
        answer = Answer(prompt, length, time.perf_counter())
        self._answers.append(answer)
        await call.write(request)
        while not answer.ended:
            raw = await call.read()
            now = time.perf_counter()
            if raw is grpc.aio.EOF:
                raise RuntimeError("the server closed the stream: see its log")
            response = pb.ModelStreamInferResponse.FromString(raw)
            if response.error_message:
                raise RuntimeError(f"the server refused a request: {response.error_message}")
            answer.chunks.append((now, response.infer_response))
            answer.ended = response.infer_response.parameters[FINAL].bool_param

    def _result(self, begin: float, end: float, cpu: float) -> Result:
        times = [moment for moment, _ in self._chunks()]
        counts = [len(ids) for _, ids in self._chunks()]
        inside = [begin <= moment < end for moment in times]
        ttft = [a.chunks[0][0] - a.sent for a in self._answers if begin <= a.sent < end and a.chunks]
        return Result(
            seconds=end - begin,
            tokens=sum(itertools.compress(counts, inside)),
            chunks=sum(inside),
            requests=len(ttft),
            wrong=sum(_is_wrong(answer) for answer in self._answers if answer.ended),
            ttft_mean=statistics.fmean(ttft) if ttft else 0.0,
            ttft_median=statistics.median(ttft) if ttft else 0.0,
            cpu=cpu,
        )

    def _chunks(self) -> Iterator[tuple[float, list[int]]]:
        for answer in self._answers:
            for moment, response in answer.chunks:
                ids = _ids(response)
                if ids:
                    yield moment, ids


def _ids(response: pb.ModelInferResponse) -> list[int]:
    """The response's token ids."""
    for output, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        if output.name == "output_ids":
            ids: list[int] = np.frombuffer(raw, np.int32).tolist()
            return ids
    return []


def _is_wrong(answer: Answer) -> bool:
    got = [token for _, response in answer.chunks for token in _ids(response)]
    positions = np.arange(answer.prompt.length, answer.prompt.length + answer.max_tokens)[None]
    expected: list[int] = tokens.true_tokens(np.array([answer.prompt.key], np.uint64), positions)[0].tolist()
    return got != expected


async def _watch(tasks: list[asyncio.Task[None]], seconds: float) -> None:
    """Wait; a stream that ends meanwhile has failed: raise its error."""
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


if __name__ == "__main__":
    result = asyncio.run(Client(Load(**json.load(sys.stdin))).run())
    print(json.dumps(dataclasses.asdict(result)), flush=True)
