"""The arguments of the engine: a YAML file, and objects that no YAML file can hold."""

from __future__ import annotations

import importlib
import operator
import sys
from pathlib import Path
from typing import Any

import yaml


class ArgumentsError(Exception):
    """The model cannot be started; the message says what to change."""


def read(path: Path) -> dict[str, Any]:
    """The arguments that a YAML file holds: `model`, a checkpoint's folder, and all else that the engine takes.

    Raises ArgumentsError.
    """
    try:
        arguments = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ArgumentsError(f"{path} cannot be read ({error.strerror}): mount the revision's ConfigMap") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ArgumentsError(f"{path} is no YAML ({reason}): apply the resource again") from None
    if not isinstance(arguments, dict) or not isinstance(arguments.get("model"), str):
        raise ArgumentsError(f"{path} names no model: it must be a mapping with the key `model`, a folder")
    return arguments


def load_drafter(entry_point: str, folder: str, what: str = "drafter") -> object:
    """The object that `module:attribute` names; a class is made an instance of, without arguments.

    `folder`, unless empty, is where Python looks first. Raises ArgumentsError.
    """
    module_name, _, attribute = entry_point.partition(":")
    if not module_name or not attribute:
        raise ArgumentsError(f"the {what} is {entry_point!r}: write module:attribute")
    if folder and folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
        found = operator.attrgetter(attribute)(module)
        return found() if isinstance(found, type) else found
    except Exception as error:  # the user's code raises what it likes: the message says where to look
        where = f" ({folder} comes first on the path)" if folder else ""
        raise ArgumentsError(
            f"the {what} {entry_point} cannot be loaded: {error!r}{where}; check its ConfigMap, or the image"
        ) from error
