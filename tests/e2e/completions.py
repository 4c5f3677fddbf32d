"""Completions of a served pair, through Triton's own client."""

import json
import queue
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import tritonclient.grpc as triton
from tritonclient.grpc import aio

from .conftest import REPOSITORY

PROMPTS = [json.loads(line)["prompt"] for line in (REPOSITORY / "examples/prompts.jsonl").read_text().splitlines()]
MAX_TOKENS = 48

KNOWN = ["ROW = [" + "0, " * 16, "#" * 64]
"""What the draft guesses too: of 7 tokens of its drafts all are accepted."""
DIGITS = [
    "271828182845904523536028747135266249775724709369995",  # e
    "314159265358979323846264338327950288419716939937510",  # pi
    "141421356237309504880168872420969807856967187537694",  # the square root of 2
    "057721566490153286060651209008240243104215933593992",  # Euler's constant
    "069314718055994530941723212145817656807550013436025",  # the logarithm of 2
]
"""What it does not: a tenth of them is."""


def tensor(name: str, value: Any, dtype: Any, triton_type: str) -> triton.InferInput:
    array = np.array([[value]], dtype=dtype)
    made = triton.InferInput(name, array.shape, triton_type)
    made.set_data_from_numpy(array)
    return made


def inputs(prompt: str, draft_tokens: int, *, stream: bool) -> list[triton.InferInput]:
    return [
        tensor("text_input", prompt.encode(), np.object_, "BYTES"),
        tensor("max_tokens", MAX_TOKENS, np.int32, "INT32"),
        tensor("num_draft_tokens", draft_tokens, np.int32, "INT32"),
        tensor("stream", stream, np.bool_, "BOOL"),
    ]


def stream(client: triton.InferenceServerClient, prompt: str, draft_tokens: int) -> list[dict[str, Any]]:
    """The chunks of one completion, each as output name to value."""
    answers: queue.Queue[Any] = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    client.async_stream_infer(
        "speculative_bls", inputs(prompt, draft_tokens, stream=True), enable_empty_final_response=True
    )
    chunks = []
    while True:
        result, error = answers.get(timeout=240)
        assert error is None, error
        response = result.get_response()
        if response.outputs:
            chunks.append({o.name: result.as_numpy(o.name) for o in response.outputs})
        if response.parameters["triton_final_response"].bool_param:
            break
    client.stop_stream()
    return chunks


async def complete(address: str, prompt: str, draft_tokens: int) -> None:
    """A completion whose chunks nobody wants, over a connection of its own; cancelling it ends it on the server."""

    async def one() -> AsyncIterator[dict[str, Any]]:
        yield {"model_name": "speculative_bls", "inputs": inputs(prompt, draft_tokens, stream=True)}

    async with aio.InferenceServerClient(address, channel_args=[("grpc.use_local_subchannel_pool", 1)]) as client:
        async for _, error in client.stream_infer(one()):
            assert error is None, error


def text(chunks: list[dict[str, Any]]) -> str:
    return "".join(chunk["text_output"].flat[0].decode() for chunk in chunks)
