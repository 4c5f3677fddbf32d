"""The endpoint's process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import ssl
import sys
from argparse import Namespace
from collections.abc import AsyncIterator
from pathlib import Path

import uvicorn
from prometheus_client import disable_created_metrics
from starlette.applications import Starlette

from tandem_serving import addresses
from tandem_serving.openai import connections
from tandem_serving.openai.access import CERTIFICATE, KEY, ApiKeys, reload_certificate
from tandem_serving.openai.listener import Server
from tandem_serving.openai.metrics import Metrics
from tandem_serving.openai.model import ChatModel
from tandem_serving.openai.server import Endpoint, application
from tandem_serving.openai.thinking import Markers
from tandem_serving.openai.tool_calls import FORMATS
from tandem_serving.openai.triton import MODELS, TritonServer
from tandem_serving.requests.refused import RefusedParameters

TRITON_SECONDS = 30
"""After a request's time limit Triton has answered, or is hung."""


def run(options: Namespace) -> int:
    """Serve until SIGTERM, then finish requests. `options`: of the entry point's command `openai`."""
    # uvicorn finishes requests at SIGTERM, and then raises it for the handler from before.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    disable_created_metrics()  # type: ignore[no-untyped-call] # a second series for each counter and histogram
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    asyncio.run(_serve(options))
    return 0


async def _serve(options: Namespace) -> None:
    seconds = options.grace + TRITON_SECONDS
    triton = TritonServer(addresses.authority(options.triton_port), MODELS[options.mode], seconds)
    model, keys = ChatModel(options.tokenizer), ApiKeys(options.keys)
    form = FORMATS[options.tool_calls] if options.tool_calls else None
    thinking = Markers(options.thinking_begin, options.thinking_end) if options.thinking_begin else None
    metrics, dropped = Metrics(options.metrics_port), RefusedParameters.parse(options.refused)
    endpoint = Endpoint(options.name, triton, model, keys, options.max_body, metrics, form, thinking, dropped)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await triton.close()

    config = uvicorn.Config(
        application(endpoint, lifespan),
        host=addresses.all_addresses(),
        port=options.port,
        ssl_certfile=options.tls / CERTIFICATE if options.tls else None,
        ssl_keyfile=options.tls / KEY if options.tls else None,
        timeout_keep_alive=connections.KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=options.grace,
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
    )
    config.load()
    watch = asyncio.create_task(_watch(config.ssl, options.tls))
    await Server(config).serve()
    watch.cancel()


async def _watch(context: ssl.SSLContext | None, folder: Path | None) -> None:
    if context and folder:
        await reload_certificate(context, folder)
