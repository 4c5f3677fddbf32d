"""How requests come from outside the cluster: Gateway API's route, and the pool of an endpoint picker."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from tandem.api.types.base import Model, Name

Hostname = Annotated[
    str, StringConstraints(min_length=1, max_length=253, pattern=r"^(\*\.)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
]
PathPrefix = Annotated[str, StringConstraints(min_length=2, max_length=253, pattern=r"^(/[A-Za-z0-9._~-]+)+$")]


class ParentReference(Model):
    """A Gateway, or another parent of a route, as Gateway API has it."""

    group: Annotated[str, StringConstraints(max_length=253)] = "gateway.networking.k8s.io"
    """API group of the parent."""
    kind: Annotated[str, StringConstraints(min_length=1, max_length=63)] = "Gateway"
    """Kind of the parent."""
    name: Name
    """Name of the parent."""
    namespace: Annotated[str, StringConstraints(min_length=1, max_length=63)] | None = None
    """Namespace of the parent; absent: the service's."""
    section_name: Annotated[str, StringConstraints(min_length=1, max_length=253)] | None = None
    """A listener of the Gateway; absent: all that take the route."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """A port of the parent; absent: all."""


class Route(Model):
    """An HTTPRoute (gateway.networking.k8s.io) to the endpoint: `/v1` below `path`, and nothing else of it."""

    parent_refs: Annotated[list[ParentReference], Field(min_length=1, max_length=32)]
    """The Gateways that take the route."""
    hostnames: Annotated[list[Hostname], Field(max_length=16)] = Field(default_factory=list)
    """Hosts of requests that are routed; empty: all of the listener's."""
    path: PathPrefix | None = None
    """Prefix before `/v1`, which is taken away, such as /llama: the base URL then ends in /llama/v1."""


class EndpointPicker(Model):
    """The Service of an endpoint picker, which chooses the pod for each request."""

    name: Name
    """Name of the Service, in the service's namespace."""
    port: Annotated[int, Field(ge=1, le=65535)] = 9002
    """Its gRPC port."""
    failure_mode: Literal["FailOpen", "FailClose"] = "FailClose"
    """What the gateway does while the picker does not answer: choose a pod itself, or refuse."""


class InferencePool(Model):
    """An InferencePool (inference.networking.k8s.io) of the server pods, at the endpoint's port. The route, where
    there is one, then leads to it."""

    endpoint_picker_ref: EndpointPicker
    """Who chooses the pod for each request; you install it."""
