"""The dry run of an engine's arguments in the server's pod, before the model is loaded.

The preflight makes it, too, without a GPU. Where the image needs one for that, only this one shows what is wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from tandem_serving.engine import failure
from tandem_serving.engine.health import EngineVerdict
from tandem_serving.llmapi.engine import ArgumentsRefused, EngineKind

log = logging.getLogger("tandem.llmapi")

MOST_MESSAGE = 500
"""Characters of the verdict: escaped, they stay within the 4 KiB of a termination message."""


def before_loading(engine: EngineKind, arguments: Mapping[str, Any]) -> None:
    """A refusal ends the container, with the verdict as its termination message. Raises ArgumentsRefused."""
    try:
        engine.dry_run(arguments)
    except ArgumentsRefused as refused:
        line = " ".join(str(refused).split())[:MOST_MESSAGE]  # pydantic's have several
        failure.publish(engine.name, EngineVerdict("EngineArgumentsRefused", line))
        raise
    except Exception as error:  # noqa: BLE001 - what the image asks for is not known here: the engine has the last word
        log.info("%s: the arguments could not be tried before the engine starts: %s", engine.name, error)
