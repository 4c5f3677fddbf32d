"""Requests and limits of a container, put together from several writers. Pure."""

from collections.abc import Mapping
from typing import Any

Resources = Mapping[str, Any]
"""As in a Container: `requests` and `limits`, each from a resource's name to a quantity."""


def over(base: Resources, layer: Resources | None) -> dict[str, Any]:
    """`layer` over `base`: what it writes holds, and the other side of it gives way.

    The API server refuses a request above its limit. So a limit of `layer` lowers the request that `base` has, and a
    request of `layer` raises the limit.
    """
    layer = layer or {}
    asked, capped = (layer.get(side) or {} for side in ("requests", "limits"))
    requests, limits = {**(base.get("requests") or {}), **asked}, {**(base.get("limits") or {}), **capped}
    # Where `layer` writes both sides, they are its own affair.
    for name in (asked.keys() ^ capped.keys()) & requests.keys() & limits.keys():
        if _above(requests[name], limits[name]):
            requests[name] = limits[name] = (asked if name in asked else capped)[name]
    sides = {"requests": _written(requests), "limits": _written(limits)}
    return {**base, **layer, **{side: amounts for side, amounts in sides.items() if amounts}}


def _written(amounts: Resources) -> dict[str, Any]:
    """Without what is null, which removes, as in a strategic merge patch."""
    return {name: amount for name, amount in amounts.items() if amount is not None}


def _above(request: Any, limit: Any) -> bool:
    from kubernetes.utils.quantity import parse_quantity  # here: it takes long to load, and few have both

    try:
        return bool(parse_quantity(str(request)) > parse_quantity(str(limit)))
    except ValueError:  # the API server says what is wrong with it
        return False
