"""How far downloads are: asked from their pods, which have no rights to report it to the API server."""

import asyncio
import json
from collections.abc import Iterable

import aiohttp
from pydantic import BaseModel, Field

from tandem import names
from tandem.api import ports
from tandem.api.wire import Object
from tandem.cluster.manifests import label

TIMEOUT = aiohttp.ClientTimeout(total=1.0)
MOST_BYTES = 4096
BEFORE_BYTES = {"Resolving": "listing the files", "Waiting": "another pod downloads the same model"}
"""What a pod does, by its phase, that has no bytes to count."""


class _Progress(BaseModel):
    """Answer of GET /progress; see images/fetcher."""

    phase: str = Field(max_length=32)
    bytes: int = Field(ge=0)
    total: int = Field(ge=0)


async def progress(pods: Iterable[Object]) -> dict[str, str]:
    """What each pod that downloads says of itself, by its name; nothing of one that does not answer at once."""
    running = [pod for pod in pods if label(pod, names.LABEL_COMPONENT) == names.FETCH and _address(pod)]
    if not running:
        return {}
    async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
        answers = await asyncio.gather(*(_ask(session, _address(pod)) for pod in running))
    return {str(pod["metadata"]["name"]): text for pod, text in zip(running, answers, strict=True) if text}


def _address(pod: Object) -> str:
    status = pod.get("status", {})
    return str(status.get("podIP", "")) if status.get("phase") == "Running" else ""


async def _ask(session: aiohttp.ClientSession, address: str) -> str:
    host = f"[{address}]" if ":" in address else address
    try:
        async with session.get(f"http://{host}:{ports.FETCH}/progress", allow_redirects=False) as reply:
            return describe(await reply.content.read(MOST_BYTES))
    except (aiohttp.ClientError, TimeoutError):
        return ""


def describe(answer: bytes) -> str:
    """The answer of a pod in words; empty when it is none: a pod may say anything."""
    try:
        progress = _Progress.model_validate(json.loads(answer))
    except (ValueError, RecursionError):
        return ""
    if not progress.total:
        return (
            f"{progress.phase}: {BEFORE_BYTES[progress.phase]}" if progress.phase in BEFORE_BYTES else progress.phase
        )
    share = 100 * progress.bytes // progress.total
    return f"{progress.phase}: {progress.bytes / 1e9:.2f} of {progress.total / 1e9:.2f} GB ({share} %)"
