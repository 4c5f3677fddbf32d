"""Reading what a newer version may have written: values that are not understood are left out."""

import copy
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound=BaseModel)
MOST_NAMED = 3


def understood(model: type[M], raw: Any) -> M | None:
    """What `model` makes of `raw` without the values that it refuses, and without what cannot be without them; None
    where that is the whole."""
    left = copy.deepcopy(raw)
    while True:
        try:
            return model.model_validate(left)
        except ValidationError as error:
            path = _existing(left, error.errors(include_url=False)[0]["loc"])
            if not path:
                return None
            _remove(left, path)


def refused(error: ValidationError) -> str:
    """Where the first values are that were refused, and why, for people."""
    found = error.errors(include_input=False, include_url=False, include_context=False)
    named = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in found]
    more = [f"and {len(named) - MOST_NAMED} more"] if len(named) > MOST_NAMED else []
    return "; ".join([*named[:MOST_NAMED], *more])


def _existing(raw: Any, location: tuple[int | str, ...]) -> list[int | str]:
    """The part of `location` that leads to something; pydantic names members of unions and fields that miss, too."""
    path = list[int | str]()
    for part in location:
        there = part in raw if isinstance(raw, dict) else isinstance(raw, list) and part in range(len(raw))
        if not there:
            break
        raw = raw[part]
        path.append(part)
    return path


def _remove(raw: Any, path: list[int | str]) -> None:
    *parents, last = path
    for part in parents:
        raw = raw[part]
    del raw[last]
