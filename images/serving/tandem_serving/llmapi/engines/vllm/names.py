"""Folders by names from which vLLM reads nothing."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TELLING = ("eagle-", "eagle3", "dflash", "dspark")
"""In the path of a model that drafts vLLM takes them for its method, whatever `method` says (`__post_init__` of
vllm/config/speculative.py)."""
THEIR_OWN = ("eagle", "eagle3", "dflash", "dspark")
"""Methods that it leaves as they are."""
SPECULATION = "speculative_config"


def neutral(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with a link in place of a folder whose path would change the method. Raises OSError."""
    config = arguments.get(SPECULATION)
    if not isinstance(config, Mapping) or config.get("method", "") in ("", *THEIR_OWN):
        return dict(arguments)
    given = dict(config)
    if given["method"] == "mtp" and not given.get("model"):  # the target's own heads, of its quantization
        given |= {name: arguments[name] for name in ("model", "quantization") if arguments.get(name)}
    folder = str(given.get("model") or "")
    if not any(name in folder.lower() for name in TELLING) or not Path(folder).is_dir():
        return dict(arguments)
    return {**arguments, SPECULATION: {**given, "model": str(_link(Path(folder).resolve()))}}


def _link(folder: Path) -> Path:
    name = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    link = Path(tempfile.gettempdir()) / f"tandem-drafter-{name}"
    with contextlib.suppress(FileExistsError):  # of the dry run
        link.symlink_to(folder, target_is_directory=True)
    return link
