"""JSON that a client sent, read at a bounded cost in memory and time.

`json` of the standard library takes what cannot be encoded again (lone surrogates), and fails where it is nested too
deeply; pydantic's reader refuses both.
"""

from __future__ import annotations

import re
from typing import Any

from pydantic_core import from_json

from tandem_serving.openai.errors import ApiError

MOST_OBJECTS = 16_384
"""In a body: each takes up to 1 KiB of memory."""
MOST_VALUES = 262_144
"""In a body: one takes about 90 bytes of memory and two of the body. A prompt of so many tokens is longer than its
text."""
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)


def read_body(body: bytes, most_values: int = MOST_VALUES) -> Any:
    """Raises ApiError: it is no JSON, or would take too much memory."""
    _check_size(body, most_values)
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(400, f"the body is no JSON: {error}") from None


def read_object(text: str) -> dict[str, Any] | None:
    """An object in a text of the body, empty for no text and null; None: it is no JSON object."""
    try:
        value = from_json(text.strip() or "{}", allow_inf_nan=False)
    except ValueError:
        return None
    if value is None:
        return {}
    return value if isinstance(value, dict) else None


def _check_size(body: bytes, most_values: int) -> None:
    """Most bodies show by their bytes that they have few values; of others strings are left out."""
    if _values(body, 0, len(body)) <= most_values and body.count(b"{") <= MOST_OBJECTS:
        return
    values = objects = end = 0
    for string in _STRING.finditer(body):
        values += _values(body, end, string.start())
        objects += body.count(b"{", end, string.start())
        end = string.end()
        if values > most_values or objects > MOST_OBJECTS:
            break
    values += _values(body, end, len(body))
    objects += body.count(b"{", end)
    if values > most_values:
        raise ApiError(413, f"the body has more than {most_values} JSON values: send less, or a prompt as text")
    if objects > MOST_OBJECTS:
        raise ApiError(413, f"the body has more than {MOST_OBJECTS} JSON objects: send fewer messages or tools")


def _values(body: bytes, start: int, end: int) -> int:
    """Before each value there is one of these."""
    return sum(body.count(sign, start, end) for sign in (b",", b"[", b"{"))
