"""How far downloads and engine builds are: asked from their pods, which have no rights at the API server."""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping

import aiohttp
from pydantic import BaseModel, Field

from tandem import names
from tandem.api import ports
from tandem.api.wire import Object
from tandem.cluster.manifests import label

TIMEOUT = aiohttp.ClientTimeout(total=1.0)
MOST_BYTES, MOST_LINE = 4096, 256
BEFORE_BYTES = {"Resolving": "listing the files", "Waiting": "another pod downloads the same model"}
"""What a pod does, by its phase, that has no bytes to count."""


class _Download(BaseModel):
    """Answer of GET /progress of a download; see images/fetcher."""

    phase: str = Field(max_length=32)
    bytes: int = Field(ge=0)
    total: int = Field(ge=0)


class _Build(BaseModel):
    """The same of an engine's build; see images/serving, `prepare.build_progress`."""

    phase: str = Field(max_length=32)
    rank: int = Field(ge=0)
    ranks: int = Field(ge=1)
    layer: int = Field(ge=0)
    layers: int = Field(ge=0)
    seconds: int = Field(ge=0)
    line: str = Field(max_length=MOST_LINE)


async def progress(pods: Iterable[Object]) -> dict[str, str]:
    """What each pod that downloads or builds says of itself, by its name: empty of one that does not answer at once,
    which is asked again."""
    running = [pod for pod in pods if label(pod, names.LABEL_COMPONENT) in DESCRIBED and _address(pod)]
    if not running:
        return {}
    async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
        answers = await asyncio.gather(*(_ask(session, pod) for pod in running))
    return {str(pod["metadata"]["name"]): text for pod, text in zip(running, answers, strict=True)}


def _address(pod: Object) -> str:
    status = pod.get("status", {})
    return str(status.get("podIP", "")) if status.get("phase") == "Running" else ""


async def _ask(session: aiohttp.ClientSession, pod: Object) -> str:
    address, describe = _address(pod), DESCRIBED[label(pod, names.LABEL_COMPONENT)]
    host = f"[{address}]" if ":" in address else address
    try:
        async with session.get(f"http://{host}:{ports.FETCH}/progress", allow_redirects=False) as reply:
            return describe(await reply.content.read(MOST_BYTES))
    except (aiohttp.ClientError, TimeoutError):
        return ""


def describe(answer: bytes) -> str:
    """The answer of a download in words; empty when it is none: a pod may say anything."""
    try:
        progress = _Download.model_validate(json.loads(answer))
    except (ValueError, RecursionError):
        return ""
    if not progress.total:
        return (
            f"{progress.phase}: {BEFORE_BYTES[progress.phase]}" if progress.phase in BEFORE_BYTES else progress.phase
        )
    share = 100 * progress.bytes // progress.total
    return f"{progress.phase}: {progress.bytes / 1e9:.2f} of {progress.total / 1e9:.2f} GB ({share} %)"


def describe_build(answer: bytes) -> str:
    """The answer of a build in words, likewise."""
    try:
        build = _Build.model_validate(json.loads(answer))
    except (ValueError, RecursionError):
        return ""
    if not build.seconds:
        return f"{build.phase}: another pod builds the same engine" if build.phase == "Waiting" else build.phase
    where = [f"rank {build.rank} of {build.ranks}"]
    where += [f"layer {build.layer} of {build.layers}"] if build.layer and build.layers else []
    line = "".join(character if character.isprintable() else "?" for character in build.line)
    return f"{build.phase}: {', '.join(where)}, {_elapsed(build.seconds)}" + (
        f"; the tool's log: {line}" if line else ""
    )


def _elapsed(seconds: int) -> str:
    return f"{seconds // 60} min" if seconds >= 60 else f"{seconds} s"


DESCRIBED: Mapping[str, Callable[[bytes], str]] = {names.FETCH: describe, names.BUILD: describe_build}
"""What makes words of an answer, by the pod's component."""
