"""Triton's side: requests to the mode's model, their responses as chunks; a gRPC stream for each request of HTTP."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import grpc
import numpy as np
import tritonclient.grpc.aio as triton
from tritonclient.grpc import InferInput, InferRequestedOutput
from tritonclient.utils import np_to_triton_dtype

from tandem_serving.openai.errors import ApiError
from tandem_serving.requests.request_parameters import ERROR_AS_RESPONSE
from tandem_serving.requests.sampling_parameters import BLS, LLMAPI, PARAMETERS, PREFIX
from tandem_serving.requests.tensors import NUMPY, Array

STATUSES = {"INVALID_ARG": 400, "UNSUPPORTED": 400, "UNAVAILABLE": 503, "CANCELLED": 503, "NOT_FOUND": 503}
"""Triton's codes as HTTP's; others are 500."""
RECONNECT_MS = 1000
MOST_TOKENS = 262_144
"""Of a prompt, where the model's limit is not known."""
TOO_LONG = re.compile(r"the model's limit (?:of|is) (\d+)")
"""What the models say of a prompt, or of a prompt and its `max_tokens`."""
CHANNEL = (
    ("grpc.initial_reconnect_backoff_ms", RECONNECT_MS // 10),
    ("grpc.min_reconnect_backoff_ms", RECONNECT_MS),
    ("grpc.max_reconnect_backoff_ms", RECONNECT_MS),  # gRPC's own is two minutes, long after Triton is back
    ("grpc.enable_http_proxy", 0),  # HTTP_PROXY names one for other hosts
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
)
_OPENAI = [parameter for parameter in PARAMETERS if parameter.openai]
TYPES: Mapping[str, type[np.generic]] = {
    **{parameter.name: NUMPY[parameter.datatype] for parameter in _OPENAI},
    **dict.fromkeys(("max_tokens", "num_draft_tokens", "end_id"), np.int32),
    **dict.fromkeys(("stream", "exclude_input", "logprobs", "echo"), np.bool_),
}


def _inputs(mode: str) -> dict[str, str]:
    return {parameter.name: parameter.input(mode) for parameter in _OPENAI if mode in parameter.modes}


@dataclass(frozen=True)
class TritonModel:
    """The model that serves a mode. `inputs`: its names of parameters; those that are not there it cannot do.

    `batched`: whether tensors have a batch dimension, as in mode BLS.
    """

    name: str
    inputs: Mapping[str, str]
    batched: bool


MODELS = {
    "BLS": TritonModel(
        "speculative_bls",
        {
            **_inputs(BLS),
            **{name: name for name in ("max_tokens", "num_draft_tokens", "end_id", "stream")},
            "stop": "stop_words",
            "exclude_input": "exclude_input_in_output",
            "logprobs": "return_log_probs",
        },
        batched=True,
    ),
    "LLMAPI": TritonModel(
        "tensorrt_llm_stream",
        {
            **_inputs(LLMAPI),
            "max_tokens": f"{PREFIX}max_tokens",
            "stop": f"{PREFIX}stop",
            "stream": "streaming",
            "exclude_input": f"{PREFIX}exclude_input_from_output",
            "logprobs": "return_log_probs",
            "echo": "return_prompt_log_probs",
        },
        batched=False,
    ),
}


class Chunk(NamedTuple):
    """One response: what is new of a sequence. Its last has a `finish_reason` and `figures`, those that the engine
    reports: input_tokens, output_tokens, draft_tokens, accepted_draft_tokens; and `rounds` that drafted, by the
    number of draft tokens that they accepted, from 0 up. The first has the prompt's tokens and the log probabilities
    of all but the first, where they were asked for."""

    text: str
    ids: Sequence[int]
    log_probs: Sequence[float]
    finish_reason: str
    figures: Mapping[str, int]
    rounds: Sequence[int] = ()
    prompt_ids: Sequence[int] = ()
    prompt_log_probs: Sequence[float] = ()


FIGURES = {
    "num_input_tokens": "input_tokens",
    "num_output_tokens": "output_tokens",
    "total_draft_tokens": "draft_tokens",
    "total_accepted_draft_tokens": "accepted_draft_tokens",
}
ROUNDS = "acceptance_histogram"
OUTPUTS = ("text_output", "finish_reason", *FIGURES, ROUNDS)
TOKEN_IDS = "output_ids"
TOKEN_OUTPUTS = (TOKEN_IDS, "output_log_probs")
PROMPT_OUTPUTS = ("prompt_ids", "prompt_log_probs")


class TritonServer:
    """The pod's Triton. `close` it."""

    def __init__(self, address: str, model: TritonModel, seconds: float | None = None) -> None:
        """`seconds`: in which a request ends, whatever Triton does; None: as long as it takes."""
        self.model = model
        self._seconds = seconds
        self._most_tokens = 0
        self._client = triton.InferenceServerClient(address, channel_args=CHANNEL)

    async def close(self) -> None:
        """Give the connection up."""
        await self._client.close()

    async def ready(self, seconds: float = 2.0) -> bool:
        """Whether it takes requests."""
        try:
            return bool(await self._client.is_server_ready(client_timeout=seconds))
        except triton.InferenceServerException:
            return False

    async def most_tokens(self) -> int:
        """The model's limit of a prompt and its answer, which it tells to who asks for more."""
        if not self._most_tokens:
            shape = (1, 1) if self.model.batched else (1,)
            text, most = np.full(shape, b"a", np.object_), np.full(shape, np.iinfo(np.int32).max, np.int32)
            try:
                async for _ in self.generate([{"text_input": text, self.model.inputs["max_tokens"]: most}], OUTPUTS):
                    break
            except ApiError as error:
                found = TOO_LONG.search(str(error))
                self._most_tokens = int(found[1]) if found else 0
        return self._most_tokens or MOST_TOKENS

    async def generate(
        self, requests: MutableSequence[dict[str, Array]], outputs: Sequence[str]
    ) -> AsyncGenerator[tuple[int, Chunk]]:
        """The chunks of several requests, each with its request's place; closing the generator ends them in the
        engine. Of a request nothing is kept once it is sent. Raises ApiError: of the first that fails, which ends the
        others.
        """

        async def sent() -> AsyncIterator[dict[str, Any]]:
            for index in range(len(requests)):
                tensors, requests[index] = requests[index], {}
                yield {
                    "model_name": self.model.name,
                    "inputs": [_input(name, value) for name, value in tensors.items()],
                    "outputs": [InferRequestedOutput(name) for name in outputs],
                    "request_id": str(index),
                    "parameters": {ERROR_AS_RESPONSE: True},
                }

        responses = self._client.stream_infer(sent(), stream_timeout=self._seconds)
        over = False
        try:
            async for result, error in responses:
                if error:
                    raise ApiError(503, f"Triton does not take the request: {error.message()}")
                yield int(result.get_response().id), _chunk(result)
            over = True
        except grpc.aio.AioRpcError as error:
            over = True
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise ApiError(503, f"Triton did not end the request within {self._seconds} s: ask again") from None
            raise ApiError(503, f"Triton cannot be reached ({error.code().name}): ask again") from None
        finally:
            if not over:  # what is over is not cancelled: Triton 2.51 would wait for it at its end
                responses.cancel()


def _input(name: str, value: Array) -> Any:
    made = InferInput(name, list(value.shape), np_to_triton_dtype(value.dtype))
    made.set_data_from_numpy(value)
    return made


def _chunk(result: Any) -> Chunk:
    def values(name: str) -> list[Any]:
        array = result.as_numpy(name)
        return [] if array is None else list(array.reshape(-1).tolist())

    text, reason = (b"".join(values(name)).decode(errors="replace") for name in ("text_output", "finish_reason"))
    if reason.isupper():  # an error's code; see ERROR_AS_RESPONSE
        raise ApiError(STATUSES.get(reason, 500), text)
    ids, log_probs, prompt_ids, prompt_log_probs = (values(name) for name in (*TOKEN_OUTPUTS, *PROMPT_OUTPUTS))
    figures = {ours: found[0] for name, ours in FIGURES.items() if (found := values(name))}
    return Chunk(text, ids, log_probs, reason, figures, values(ROUNDS), prompt_ids, prompt_log_probs)
