"""The flags of a command line as vLLM's own parser reads them: both spellings, dotted parts of JSON. Pure."""

import argparse
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from tandem.engines.vllm import names
from tandem.engines.vllm.serve.command import ImportRefused
from tandem.engines.vllm.serve.flags import LISTS, NOT_MAPPED, SHORT, SWITCHES, TEXTS
from tandem.engines.vllm.versions import MINORS

Flags = dict[str, Any]
"""Values by name: a bool, a text, or a list of texts. None: a flag that needs a value has none."""
POSITIONAL = "model_tag"
_OWN = ("headless", "port", "reasoning_parser", "tool_call_parser", "enable_auto_tool_choice")
_FLAG = re.compile(r"-{1,2}[A-Za-z][^=]*")
_HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kmgtKMGT])")
_POWERS = "kmgt"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ImportRefused(f"vllm serve would refuse the command line: {message}")


def parse(words: Sequence[str]) -> Flags:
    """Flags in their order. Raises ImportRefused."""
    parser = _Parser(prog="vllm serve", add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    parser.add_argument(POSITIONAL, nargs="?")
    known = set[str]().union(*map(names.arguments, MINORS))
    actions = [_add(parser, name) for name in sorted({*known, *NOT_MAPPED, *SWITCHES, *_OWN})]
    flags = {each for action in actions for each in action.option_strings}
    normal = [*_joined(_spelled(words))]
    for word in dict.fromkeys(match[0] for match in map(_FLAG.match, normal) if match):
        if word not in flags:
            # Of a flag that nobody knows, what follows may be its value.
            parser.add_argument(word, nargs="?", const=True, dest=word.lstrip("-").replace("-", "_"))
    found, rest = parser.parse_known_args(normal)
    if rest:
        raise ImportRefused(f"{rest[0]!r} belongs to no flag: put values with spaces in quotes, or remove it")
    return vars(found)


def _add(parser: argparse.ArgumentParser, name: str) -> argparse.Action:
    flags = (f"--{name.replace('_', '-')}", *SHORT.get(name, ()))
    if name in SWITCHES:
        return parser.add_argument(*flags, dest=name, action=argparse.BooleanOptionalAction)
    nargs = "+" if name in LISTS else "?" if name == "hf_token" else None
    return parser.add_argument(*flags, dest=name, nargs=nargs)


def _spelled(words: Iterable[str]) -> Iterable[str]:
    """With dashes up to the first dot or equals sign, and -O3 as a flag with a value."""
    for word in words:
        if match := re.fullmatch(r"-O=?(\w+)", word):
            yield from ("--optimization-level", match[1])
        elif word.startswith("--"):
            head = re.split(r"[.=]", word, maxsplit=1)[0]
            yield head.replace("_", "-") + word[len(head) :]
        else:
            yield word


def _joined(words: Iterable[str]) -> Iterable[str]:
    """With `--a.b.c 1` as `--a '{"b": {"c": 1}}'` at the end."""
    parts: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        head, equals, value = word.partition("=")
        if not re.fullmatch(r"-{1,2}[A-Za-z][\w-]*(\.[\w-]+)+\+?", head):
            yield word
            continue
        value = value if equals else next(rest, "")
        flag, *path = head.removesuffix("+").split(".")
        inside = parts.setdefault(flag, {})
        for name in path[:-1]:
            inside = inside.setdefault(name, {})
        last = path[-1]
        more = [*inside.get(last, ()), *map(scalar, value.split(","))] if head.endswith("+") else scalar(value)
        inside[last] = more
    for flag, value in parts.items():
        yield from (flag, json.dumps(value))


def typed(name: str, value: Any) -> Any:
    """The value as `AsyncEngineArgs` takes it. Raises ImportRefused: JSON that is none."""
    if isinstance(value, list):
        return [typed(name, each) for each in value]
    if name in TEXTS or not isinstance(value, str):
        return value
    if value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError as error:
            raise ImportRefused(f"{flag(name)} is no JSON ({error}): put it in single quotes") from error
    return scalar(value)


def scalar(text: str) -> Any:
    """A number, true, false, null or a JSON value where `text` is one; 16k is 16000, and 16K is 16384."""
    if match := _HUMAN.fullmatch(text):
        base = 1000 if match[2].islower() else 1024
        return int(float(match[1]) * base ** (1 + _POWERS.index(match[2].lower())))
    try:
        return json.loads(text)
    except ValueError:
        return text


def flag(name: str) -> str:
    """As people write it."""
    return f"--{name.replace('_', '-')}"
