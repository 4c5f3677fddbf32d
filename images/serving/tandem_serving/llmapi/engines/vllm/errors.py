"""The errors that vLLM's processes log. AsyncLLM knows of a dead engine only that it is dead: what ended it is in the
log of another process, and reports should say it."""

from __future__ import annotations

import copy
import json
import os
import tempfile
import time
from pathlib import Path

VARIABLE = "VLLM_LOGGING_CONFIG_PATH"
RECENT_SECONDS = 30.0
"""Before it is asked for, in which the first error is the one that ended the engine."""
_RECORD = "tandem-error "


def keep() -> Path | None:
    """Have processes that vLLM starts from now on write their errors to a file, too; the file. None: the user has a
    logging of their own."""
    folder = Path(tempfile.gettempdir()) / f"tandem-vllm-{os.getpid()}"
    config, kept = folder / "logging.json", folder / "errors.log"
    if os.environ.get(VARIABLE, str(config)) != str(config) or os.environ.get("VLLM_CONFIGURE_LOGGING") == "0":
        return None
    from vllm.logger import DEFAULT_LOGGING_CONFIG

    folder.mkdir(exist_ok=True)
    config.write_text(json.dumps(_with_file(DEFAULT_LOGGING_CONFIG, kept)), encoding="utf-8")
    os.environ[VARIABLE] = str(config)
    return kept


def _with_file(config: dict[str, dict[str, object]], kept: Path) -> dict[str, dict[str, object]]:
    """vLLM's own configuration (of `dictConfig`), and a second handler."""
    made = copy.deepcopy(config)
    made["formatters"]["tandem"] = {"format": f"{_RECORD}%(created)f %(message)s"}
    made["handlers"]["tandem"] = {
        "class": "logging.FileHandler",
        "filename": str(kept),
        "delay": True,
        "level": "ERROR",
        "formatter": "tandem",
    }
    made["loggers"]["vllm"] = {**made["loggers"]["vllm"], "handlers": ["vllm", "tandem"]}  # type: ignore[dict-item]
    return made


def recent(kept: Path | None) -> str:
    """The first error of the last moments, its last line; "": there is none."""
    try:
        text = kept.read_text(encoding="utf-8", errors="replace") if kept else ""
    except OSError:
        return ""
    return first_since(text, time.time() - RECENT_SECONDS)


def first_since(text: str, since: float) -> str:
    """Of a file's text: the first record that is not older. A trace ends with what was raised."""
    for record in text.split(_RECORD)[1:]:
        created, _, message = record.partition(" ")
        lines = message.strip().splitlines()
        if float(created) >= since and lines:
            return lines[-1].strip()
    return ""
