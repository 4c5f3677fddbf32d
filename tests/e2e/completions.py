"""Completions of a served pair, through Triton's own client."""

import json
import queue
from typing import Any

import numpy as np
import tritonclient.grpc as triton

from .conftest import REPOSITORY

PROMPTS = [json.loads(line)["prompt"] for line in (REPOSITORY / "examples/prompts.jsonl").read_text().splitlines()]
MAX_TOKENS = 48


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


def text(chunks: list[dict[str, Any]]) -> str:
    return "".join(chunk["text_output"].flat[0].decode() for chunk in chunks)
