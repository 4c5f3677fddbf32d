"""A Triton server over gRPC. The protocol is the KServe v2 one with Triton's `ModelStreamInfer`."""

import asyncio
import json
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from typing import Any

import grpc
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException

from tandem.api import ports
from tandem.client.generate.errors import RequestRefusedError, ServerError, UnreachableError
from tandem.client.generate.figures import Arrival, Chunk, Totals
from tandem.client.generate.request import APIS, BLS, ModelApi, Request, infer_inputs

CONNECT_TIMEOUT_SECONDS = 10
LOOPBACK = {"127.0.0.1", "localhost", "[::1]"}
_UNREACHABLE = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}


class TritonClient:
    """One server. Use as an asynchronous context manager."""

    def __init__(self, url: str, max_message_bytes: int = -1) -> None:
        """`url` is HOST:PORT; `max_message_bytes`: of a response, -1: as large as it may be."""
        self._url = url
        self._api = BLS
        # gRPC would ask the environment's proxy for this very machine, where a port-forward ends.
        local = url.rpartition(":")[0] in LOOPBACK
        options = [("grpc.max_receive_message_length", max_message_bytes), ("grpc.enable_http_proxy", int(not local))]
        self._client = InferenceServerClient(url, channel_args=options)

    async def __aenter__(self) -> "TritonClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def check(self, drafts_by_request: bool = False) -> None:
        """See that the server answers, and which mode's model it serves: requests go to that from now on.

        `drafts_by_request`: requests will say how many tokens to draft.

        Raises:
            ServerError: it does not; the message says what to look at.
        """
        try:
            for api in APIS:
                if await self._client.is_model_ready(api.model, client_timeout=CONNECT_TIMEOUT_SECONDS):
                    await self._use(api, drafts_by_request)
                    return
            index = await self._client.get_model_repository_index(client_timeout=CONNECT_TIMEOUT_SECONDS)
        except InferenceServerException as error:
            raise self._unreachable(error.message()) from error
        models = ", ".join(sorted(model.name for model in index.models)) or "none"
        raise ServerError(
            f"{self._url} has none of the models {', '.join(api.model for api in APIS)} (its models: {models}):"
            " give the address of a SpeculativeInferenceService"
        )

    async def _use(self, api: ModelApi, drafts_by_request: bool) -> None:
        if drafts_by_request and (why := await self._deaf_to_drafts(api)):
            raise ServerError(
                f"{self._url} serves {why}: leave out --num-draft-tokens and --compare; compare with a service of"
                " decodingType None (tandem bench --against)"
            )
        self._api = api

    @property
    def api(self) -> ModelApi:
        """The model that the server has, as `check` found it."""
        return self._api

    async def drafts_fixed(self) -> str:
        """Why requests to this server cannot have the target alone; empty where they can (`num_draft_tokens` 0)."""
        return await self._deaf_to_drafts(self._api)

    async def shows_refused(self) -> bool:
        """Whether a request may ask for the text of refused draft tokens: older revisions have no such input.

        Raises ServerError.
        """
        if "refused_text" not in self._api.tensors:
            return False
        try:
            found = await self._client.get_model_config(self._api.model, client_timeout=CONNECT_TIMEOUT_SECONDS)
        except InferenceServerException as error:
            raise self._unreachable(error.message()) from error
        return self._api.tensors["refused_text"][0] in {each.name for each in found.config.input}

    @property
    def parameters(self) -> Collection[str]:
        """What a request to this server may ask for; names of `Sampling`'s fields among them."""
        return self._api.tensors.keys()

    async def refused_parameters(self) -> dict[str, str]:
        """Parameters that the server refuses since its engine would drop them, and why. Raises ServerError."""
        try:
            found = await self._client.get_model_config(self._api.model, client_timeout=CONNECT_TIMEOUT_SECONDS)
        except InferenceServerException as error:
            raise self._unreachable(error.message()) from error
        text = found.config.parameters["refused_parameters"].string_value  # older revisions have none
        return dict(json.loads(text)) if text else {}

    async def version(self) -> str:
        """Triton's own version. Raises ServerError."""
        try:
            metadata = await self._client.get_server_metadata(client_timeout=CONNECT_TIMEOUT_SECONDS)
        except InferenceServerException as error:
            raise self._unreachable(error.message()) from error
        return str(metadata.version)

    async def _deaf_to_drafts(self, api: ModelApi) -> str:
        """Why a request cannot say how many tokens to draft; empty where it can."""
        if not api.drafts_by_request:
            return "mode LLMAPI, whose engine decides itself how many tokens to draft"
        found = await self._client.get_model_config(api.model, client_timeout=CONNECT_TIMEOUT_SECONDS)
        if found.config.parameters["max_draft_len"].string_value == "0":
            return "no draft model: its engine speculates by itself (Medusa, Lookahead), or it does not speculate"
        return ""

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """Send a request and yield its chunks as they come; leaving early cancels it on the server.

        Raises:
            RequestRefusedError: the server refused, or failed at this request.
            ServerError: the server went away.
        """
        responses = self._client.stream_infer(_one(request, self._api))
        try:
            async for result, error in responses:
                if error is not None:
                    raise RequestRefusedError(f"request refused: {error.message()}")
                yield chunk_of(result)
        except grpc.aio.AioRpcError as error:
            if error.code() in _UNREACHABLE:
                raise self._unreachable(error.details()) from error
            raise RequestRefusedError(f"request refused: {error.details()}") from error
        finally:
            responses.cancel()

    def _unreachable(self, details: str | None) -> UnreachableError:
        return UnreachableError(
            f"no Triton server answers at {self._url} ({details}):"
            f" check the address (the gRPC port, {ports.GRPC} by default) and that the server is up"
        )


async def _one(request: Request, api: ModelApi) -> AsyncIterator[dict[str, Any]]:
    yield {"model_name": api.model, "inputs": infer_inputs(request, api), "request_id": uuid.uuid4().hex}


def chunk_of(result: Any) -> Chunk:
    """A response (`InferResult`) as a chunk; outputs that are not there count as empty or 0."""
    finish_reason = _text(result, "finish_reason")
    return Chunk(
        text=_text(result, "text_output"),
        ids=tuple(_numbers(result, "output_ids")),
        accepted=_number(result, "num_accepted_draft_tokens"),
        draft_text_length=_number(result, "draft_text_length"),
        finish_reason=finish_reason,
        totals=_totals(result) if finish_reason else None,
        refused_text=_text(result, "refused_draft_text"),
    )


def _totals(result: Any) -> Totals:
    return Totals(
        draft_tokens=_number(result, "total_draft_tokens"),
        accepted_draft_tokens=_number(result, "total_accepted_draft_tokens"),
        input_tokens=_number(result, "num_input_tokens"),
        tokens_per_pass=_number(result, "avg_decoded_tokens_per_iter"),
    )


def _numbers(result: Any, name: str) -> list[Any]:
    array = result.as_numpy(name)
    return [] if array is None else list(array.reshape(-1).tolist())


def _number(result: Any, name: str) -> Any:
    return sum(_numbers(result, name)[:1])


def _text(result: Any, name: str) -> str:
    array = result.as_numpy(name)
    return "" if array is None else b"".join(array.reshape(-1)).decode("utf-8", "replace")


class Stream:
    """A request that is read in the background, so that it is timed by arrival, however slow its reader."""

    def __init__(self, server: TritonClient, request: Request, gate: asyncio.Semaphore) -> None:
        """Send the request as soon as `gate` lets it; needs a running event loop."""
        self._arrivals: asyncio.Queue[Arrival | None] = asyncio.Queue()
        self._task = asyncio.ensure_future(self._read(server, request, gate))

    async def __aiter__(self) -> AsyncIterator[Arrival]:
        """Yield the arrivals; raises what `Server.stream` raises, at the end."""
        while (arrival := await self._arrivals.get()) is not None:
            yield arrival
        await self._task

    async def close(self) -> None:
        """Cancel what is still running."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self, server: TritonClient, request: Request, gate: asyncio.Semaphore) -> None:
        try:
            async with gate:
                start = time.monotonic()
                async for chunk in server.stream(request):
                    self._arrivals.put_nowait(Arrival(time.monotonic() - start, chunk))
        finally:
            self._arrivals.put_nowait(None)
