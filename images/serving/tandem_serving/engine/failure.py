"""An engine's failure, on its way from the model that finds it to whoever starts the container again.

The model writes a file, whose name the entry point gives it in a variable; the entry point sees it, gives clients a
moment to get their errors, ends the server, and passes the file on as the container's termination message, a JSON
object:
{"engineFailure": {"model": NAME, "reason": "EngineFailing", "EngineHung" or, before it is loaded,
"EngineArgumentsRefused", "message": the engine's own last error}}
NAME is Triton's of the engine's model; in mode LLMAPI the engine's own.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

from tandem_serving.engine.health import EngineVerdict

VARIABLE = "TANDEM_ENGINE_FAILURE"
KEY = "engineFailure"
LOOK_SECONDS = 0.25
GRACE_SECONDS = 1.0
"""In which requests end with an error of the engine, and later ones are refused: then the server ends."""


def publish(model: str, verdict: EngineVerdict) -> None:
    """Tell the entry point, if there is one. Raises OSError."""
    if name := os.environ.get(VARIABLE):
        # Characters of several bytes are escaped: it stays far below the 4 KiB of a termination message.
        text = json.dumps({KEY: {"model": model, "reason": verdict.reason, "message": verdict.message}})
        path = Path(name)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)


def folder() -> Path | None:
    """Where reports are: a volume of the pod, which the container's restarts leave as it is. None: there is none."""
    return Path(os.environ[VARIABLE]).parent if os.environ.get(VARIABLE) else None


def published() -> EngineVerdict | None:
    """What this or another process of the server has published. Raises OSError and ValueError."""
    name = os.environ.get(VARIABLE)
    if not name or not Path(name).exists():
        return None
    found = json.loads(Path(name).read_text(encoding="utf-8"))[KEY]
    return EngineVerdict(found["reason"], found["message"])


def watch(path: Path, stopping: threading.Event, end: Callable[[], None]) -> None:
    """Until the server is `stopping`, look for a failure; `end` the server a moment after one."""
    while not stopping.wait(LOOK_SECONDS):
        if path.exists():
            if not stopping.wait(GRACE_SECONDS):
                end()
            return


def pass_on(path: Path, termination_log: Path) -> bool:
    """Make a failure the container's termination message; whether there is one."""
    if not path.exists():
        return False
    text = path.read_text(encoding="utf-8")
    print(f"an engine has failed: {text}", flush=True)
    try:
        with termination_log.open("r+", encoding="utf-8") as log:  # it is there, or this is no container
            log.truncate()
            log.write(text)
    except OSError as error:
        print(f"{termination_log} cannot be written ({error.strerror}): nothing but this log tells of it", flush=True)
    return True
