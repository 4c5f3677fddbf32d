"""YAML as kubectl reads it: what it sends to the API server is the JSON that it makes of a file.

Its scalars (sigs.k8s.io/yaml) are not PyYAML's: 1e-3 is a number, 1:30 and 2026-01-01 are texts, y is true, and JSON
writes 2.0 as 2.
"""

import json
import re
from typing import Any

import yaml

BOOLS = {**yaml.SafeLoader.bool_values, "y": True, "n": False}
LARGEST_WHOLE = 1e21
"""Go's JSON writes whole numbers below it without an exponent."""
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


def documents(text: str) -> list[Any]:
    """The documents of `text`, as JSON has them.

    Raises:
        ValueError: no YAML, or no JSON can be made of it; the message is for people.
    """
    try:
        # Through JSON and back: keys are texts then, and what is left is nothing but JSON's types.
        return [json.loads(json.dumps(each, allow_nan=False)) for each in yaml.load_all(text, _Loader)]
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {error}") from error
    except RecursionError as error:
        raise ValueError("not YAML that JSON can be made of: an anchor contains itself, or it is too deep") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"not YAML that JSON can be made of: {error}") from error
