"""Where a text starts vLLM's server: in a shell command, in `docker run`, or in a container of a manifest. Pure."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import PurePosixPath
from typing import Any

import yaml

from tandem.errors import TandemError

_SHELLS = ("sh", "bash", "ash", "dash", "zsh")
_ENGINES = ("docker", "podman", "nerdctl")
_MODULE = "vllm.entrypoints.openai.api_server"
_FILE = "vllm/entrypoints/openai/api_server.py"
_OPERATORS = "();<>|&\n"
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_CONTAINER_SWITCHES = {
    *("--detach", "--init", "--interactive", "--no-healthcheck", "--privileged", "--publish-all", "--quiet"),
    *("--read-only", "--rm", "--tty"),
}
"""Options of `docker run` without a value, with -d, -i, -t, -P and -q."""
_VALUED = re.compile(r"-[ditPq]*[^ditPq-]")


class ImportRefused(TandemError):
    """The text is no command line that can be imported; the message says what to give."""


@dataclass(frozen=True)
class ServeCommand:
    """A start of vLLM's server: its arguments, the variables before it, and the image where one is named."""

    arguments: tuple[str, ...]
    variables: Mapping[str, Any] = field(default_factory=dict)
    """Texts; of a manifest's `valueFrom`, the mapping."""
    image: str = ""
    container_engine: str = ""


def find(text: str) -> ServeCommand:
    """The one in `text`. Raises ImportRefused: there is none, there are several, or quotes are not closed."""
    found = [*_of_objects(text)] or [*_of_shell(text)]
    if not found:
        raise ImportRefused(
            "there is no start of vLLM's server: give `vllm serve MODEL ...`, `python -m"
            f" {_MODULE} ...`, `docker run IMAGE ...`, or a manifest whose container runs one of them"
        )
    if len(found) > 1:
        raise ImportRefused(f"vLLM's server is started {len(found)} times: give one of them")
    return found[0]


def _of_objects(text: str) -> Iterator[ServeCommand]:
    """Of containers in manifests, and of a list of arguments."""
    try:
        documents = [*yaml.safe_load_all(text)]
    except yaml.YAMLError:
        return
    for document in documents:
        yield from _of_object({"image": "vllm", "args": document} if isinstance(document, list) else document)


def _of_object(value: Any) -> Iterator[ServeCommand]:
    if isinstance(value, list):
        for item in value:
            yield from _of_object(item)
    if not isinstance(value, dict):
        return
    words = [str(word) for key in ("command", "args") for word in _list(value.get(key))]
    image = str(value.get("image", ""))
    variables = {
        str(each["name"]): each.get("valueFrom") or str(each.get("value", ""))
        for each in _list(value.get("env"))
        if isinstance(each, dict) and "name" in each
    }
    for found in _of_words(words, image):
        yield replace(found, variables={**variables, **found.variables}, image=image if "/" in image else "")
    for inner in value.values():
        yield from _of_object(inner)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _of_shell(text: str) -> Iterator[ServeCommand]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    # shlex keeps the end of a line that a backslash takes away; one that begins with a flag goes on.
    text = re.sub(r"\\\n|\n\s*(?=-)", " ", "\n".join(lines))
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        words = [*lexer]
    except ValueError as error:
        raise ImportRefused(f"the command line cannot be read ({error}): close its quotes") from error
    exported: dict[str, str] = {}
    for is_operator, group in groupby(words, lambda word: bool(word) and set(word) <= set(_OPERATORS)):
        command = [] if is_operator else [*group]
        if command[:1] == ["export"]:
            exported.update(_assignments(command))
        for found in _of_words(command, ""):
            yield replace(found, variables={**exported, **found.variables})


def _of_words(words: Sequence[str], image: str) -> Iterator[ServeCommand]:
    """`image`: of the container whose words they are, which may begin with the arguments."""
    if not words:
        return
    first = PurePosixPath(words[0]).name
    engine = next((i for i, word in enumerate(words) if word in _ENGINES and words[i + 1 : i + 2] == ["run"]), None)
    if engine is not None:
        yield from _of_run(words, engine)
    elif first in _SHELLS:
        script = next((i + 1 for i, word in enumerate(words) if re.fullmatch(r"-[a-z]*c", word)), len(words))
        yield from _of_shell(words[script]) if script < len(words) else ()
    elif (start := _start(words)) is not None:
        yield ServeCommand(tuple(words[start:]), _assignments(words[:start]), image)
    elif "vllm" in image or first == "--model":
        yield ServeCommand(tuple(words[1:] if first == "serve" else words), image=image)


def _of_run(words: Sequence[str], engine: int) -> Iterator[ServeCommand]:
    """Of `docker run OPTIONS IMAGE WORDS`, whose options have values, but for some."""
    i, variables = engine + 2, _assignments(words[:engine])
    while i < len(words) and words[i].startswith("-"):
        option, equals, value = words[i].partition("=")
        has_next = not (equals or option in _CONTAINER_SWITCHES)
        if not option.startswith("--"):  # a cluster of switches, whose last may have a value behind it
            has_next = _VALUED.fullmatch(words[i]) is not None
        value = words[i + 1] if has_next and i + 1 < len(words) else value
        if option == "--env" or re.fullmatch(r"-[ditPq]*e", option):
            name, equals, value = value.partition("=")
            variables[name] = value if equals else f"${name}"
        i += 2 if has_next else 1
    image = words[i] if i < len(words) else ""
    for found in _of_words(words[i + 1 :], image):
        given = {**variables, **found.variables}
        yield replace(found, variables=given, image=image, container_engine=words[engine])


def _start(words: Sequence[str]) -> int | None:
    """Where the server's arguments begin; None: it is not started by its name."""
    for i, word in enumerate(words):
        if PurePosixPath(word).name == "vllm" and words[i + 1 : i + 2] == ["serve"]:
            return i + 2
        if word == "-m" and words[i + 1 : i + 2] == [_MODULE]:
            return i + 2
        if word.endswith(_FILE):
            return i + 1
    return None


def _assignments(words: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE before the program."""
    return {match[1]: match[2] for match in map(_ASSIGNMENT.fullmatch, words) if match}
