"""YAML as kubectl reads it: what it sends to the API server is the JSON that it makes of a file.

Its scalars (sigs.k8s.io/yaml) are not PyYAML's: 1e-3 is a number, 1:30 and 2026-01-01 are texts, y is true, and JSON
writes 2.0 as 2.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import yaml

BOOLS = {**yaml.SafeLoader.bool_values, "y": True, "n": False}
LARGEST_WHOLE = 1e21
"""Go's JSON writes whole numbers below it without an exponent."""
_MARKER = re.compile(r"---(\s|$)")
_TAG = "tag:yaml.org,2002:"
_SAME = (f"{_TAG}null", f"{_TAG}merge")
_INT = re.compile(r"[-+]?(0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)$")
_FLOAT = re.compile(r"([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$")
_BOOL = re.compile(rf"({'|'.join(BOOLS)})$", re.IGNORECASE)


class _Loader(yaml.SafeLoader):
    bool_values = BOOLS

    def construct_number(self, node: yaml.ScalarNode) -> float | int:
        """A number with a point or an exponent."""
        value: float = self.construct_yaml_float(node)
        return int(value) if value.is_integer() and abs(value) < LARGEST_WHOLE else value


_Loader.yaml_implicit_resolvers = {
    first: [known for known in resolvers if known[0] in _SAME]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _kind, _pattern in (("bool", _BOOL), ("int", _INT), ("float", _FLOAT)):
    _Loader.add_implicit_resolver(f"{_TAG}{_kind}", _pattern, None)
_Loader.add_constructor(f"{_TAG}float", _Loader.construct_number)


FieldPath = tuple[str | int, ...]
"""Keys and indices from a document's root."""


@dataclass(frozen=True)
class Document:
    """A document of a file: `value` as JSON has it, and the lines where its parts stand.

    `line`: its first, from 1; with `error` the one that is wrong, and the value is None.
    """

    line: int
    value: Any = None
    lines: Mapping[FieldPath, int] = field(default_factory=dict)
    error: str = ""

    def line_of(self, path: FieldPath) -> int:
        """The line of a part; where that is not written, of the part that it would be in."""
        parents = (path[:end] for end in range(len(path), 0, -1))
        return next((self.lines[each] for each in parents if each in self.lines), self.line)


def read(text: str) -> list[Document]:
    """The documents of `text`, which may be wrong one by one."""
    return [each for line, part in _parts(text) for each in _read(part, line)]


def documents(text: str) -> list[Any]:
    """The documents of `text`, as JSON has them.

    Raises:
        ValueError: no YAML, or no JSON can be made of it; the message is for people.
    """
    found = read(text)
    if wrong := next((each for each in found if each.error), None):
        raise ValueError(wrong.error)
    return [each.value for each in found]


def _parts(text: str) -> Iterator[tuple[int, str]]:
    """First line and text of each document: as kubectl does it, before anything is parsed."""
    lines = text.splitlines(keepends=True)
    starts = [0, *(i for i, line in enumerate(lines) if i and _MARKER.match(line)), len(lines)]
    for start, end in pairwise(starts):
        yield start, "".join(lines[start:end])


def _read(text: str, offset: int) -> Iterator[Document]:
    """The documents of a part that begins after `offset` lines; of one without any, none."""
    try:
        loader = _Loader(text)
        nodes = list(_nodes(loader))
        # Of the nodes as they are written: constructing a value puts what it merges into its node.
        twice = next((found for node in nodes for found in _written_twice(node)), None)
        lines = [dict(_lines(node, offset + 1, ())) for node in nodes]
        # Through JSON and back: keys are texts then, and what is left is nothing but JSON's types.
        values = [json.loads(json.dumps(loader.construct_document(each), allow_nan=False)) for each in nodes]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = ": ".join(filter(None, (error.context, error.problem)))
        yield Document(offset + (mark.line if mark else 0) + 1, error=f"not YAML: {what}")
    except yaml.YAMLError as error:
        yield Document(offset + 1, error=f"not YAML: {error}")
    except RecursionError:
        message = "not YAML that JSON can be made of: an anchor contains itself, or it is too deep"
        yield Document(offset + 1, error=message)
    except (TypeError, ValueError) as error:
        yield Document(offset + 1, error=f"not YAML that JSON can be made of: {error}")
    else:
        if twice:
            yield Document(offset + twice.start_mark.line + 1, error=f"{twice.value!r} is written twice: keep one")
            return
        for value, node, where in zip(values, nodes, lines, strict=True):
            yield Document(node.start_mark.line + offset + 1, value, where)


def _nodes(loader: _Loader) -> Iterator[yaml.Node]:
    """The documents that it reads, as they are written."""
    while loader.check_node():
        if node := loader.get_node():
            yield node


def _written_twice(node: yaml.Node) -> Iterator[yaml.ScalarNode]:
    """Keys that their mapping has already: kubectl refuses them, and PyYAML would take the last."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != f"{_TAG}merge":
                if key.value in seen:
                    yield key
                seen.add(key.value)
            yield from _written_twice(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _written_twice(item)


def _lines(node: yaml.Node, first: int, path: FieldPath) -> Iterator[tuple[FieldPath, int]]:
    """FieldPath and line of all that is written below a node, whose text's first line is `first`."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*path, str(key.value))
            yield here, first + key.start_mark.line
            yield from _lines(value, first, here)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield (*path, index), first + item.start_mark.line
            yield from _lines(item, first, (*path, index))
