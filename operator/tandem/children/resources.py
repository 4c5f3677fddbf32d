"""Requests and limits of a container, put together from several writers. Pure."""

from collections.abc import Mapping
from typing import Any

from kubernetes.utils.quantity import parse_quantity

Resources = Mapping[str, Any]
"""As in a Container: `requests` and `limits`, each from a resource's name to a quantity."""


def over(base: Resources, layer: Resources | None) -> dict[str, Any]:
    """`layer` over `base`: what it writes holds, and the other side of it gives way.

    The API server refuses a request above its limit. So a limit of `layer` lowers the request that `base` has, and a
    request of `layer` raises the limit.
    """
    layer = layer or {}
    requests, limits = ({**(base.get(kind) or {}), **(layer.get(kind) or {})} for kind in ("requests", "limits"))
    for name in requests.keys() & limits.keys():
        if not _above(requests[name], limits[name]):
            continue
        if name in (layer.get("limits") or {}) and name not in (layer.get("requests") or {}):
            requests[name] = limits[name]
        elif name in (layer.get("requests") or {}) and name not in (layer.get("limits") or {}):
            limits[name] = requests[name]
    sides = {"requests": _written(requests), "limits": _written(limits)}
    return {**base, **layer, **{side: amounts for side, amounts in sides.items() if amounts}}


def _written(amounts: Resources) -> dict[str, Any]:
    """Without what is null, which removes, as in a strategic merge patch."""
    return {name: amount for name, amount in amounts.items() if amount is not None}


def _above(request: Any, limit: Any) -> bool:
    try:
        return bool(parse_quantity(str(request)) > parse_quantity(str(limit)))
    except ValueError:  # the API server says what is wrong with it
        return False
