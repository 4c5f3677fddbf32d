"""What all API types share: wire names, documentation, CEL rules, and bounded strings.

Every string and list is bounded: the API server estimates the cost of a CEL rule from the bounds.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, StringConstraints

from tandem.api.wire import Wire


@dataclass(frozen=True)
class Rule:
    """A CEL validation rule of the object it is attached to.

    `message` says what to write instead, since it is all that a refused user sees.
    Syntax: https://kubernetes.io/docs/reference/using-api/cel/
    """

    rule: str
    message: str


class Model(Wire):
    """Base of all API types: camelCase on the wire, docstrings as descriptions, immutable."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    cel: ClassVar[tuple[Rule, ...]] = ()


Name = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
"""Name of another object in the service's own namespace, as DNS-1123 subdomain."""
LabelKey = str
"""Not bounded: Kubernetes' schemas cannot bound keys, and what they take must be readable. Who gets the key says."""
LabelValue = Annotated[str, StringConstraints(max_length=63)]

Passthrough = Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]
"""An object of Kubernetes' or TensorRT-LLM's own, checked by its owner rather than by this schema."""
