"""Bases of what is read from and written to YAML and JSON: camelCase there, immutable here."""

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

Object = dict[str, Any]
"""A Kubernetes object as JSON. `render` and `children` make them, `cluster` reads them; the packages between hold
them at most, to hand them on."""


class Wire(BaseModel):
    """Unknown fields are ignored: whoever wrote it may be newer."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore")


class StrictWire(Wire):
    """Unknown fields are refused, so that a misspelt one is heard of; docstrings of fields are descriptions."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)
