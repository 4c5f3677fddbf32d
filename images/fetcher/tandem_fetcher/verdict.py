"""The result: a condition with its data, as JSON of at most 4 KiB (a container's termination message).

    {"checks": [{"type": "ModelsReady", "status": "True", "reason": "Fetched", "message": "…"}],
     "revision": "…40 hex digits…", "path": "models/…", "bytes": 123, "files": 9}

`status` True: the model is at `path` below the cache's root. False: it cannot be had until a person does what
`message` says. Unknown: trying again can help, or nothing was tried (`resolve`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from tandem_fetcher.errors import FetchError

MAX_MESSAGE_BYTES = 1500


@dataclass(frozen=True)
class Pinned:
    """What is known of the model: its pinned revision, its folder in the cache, its size. Empty while unknown."""

    revision: str = ""
    path: str = ""
    bytes: int = 0
    files: int = 0


def render(status: str, reason: str, message: str, pinned: Pinned) -> str:
    """Return the JSON."""
    text = " ".join(message.split()).encode()[:MAX_MESSAGE_BYTES].decode(errors="ignore")
    check = {"type": "ModelsReady", "status": status, "reason": reason, "message": text}
    return json.dumps({"checks": [check], **asdict(pinned)}, ensure_ascii=False)


def failure(error: FetchError, pinned: Pinned) -> str:
    """Return the JSON of an error."""
    return render("Unknown" if error.passing else "False", error.reason, str(error), pinned)
