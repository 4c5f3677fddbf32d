"""Verdicts: what a task's container writes as its termination message. Pure.

It comes from a pod, which may write anything: nothing is believed that is not of this form. See `preflight` in
images/serving, and images/fetcher.
"""

import json
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tandem.api.conditions import ConditionStatus
from tandem.api.folders import CACHE
from tandem.rollout.redaction import redacted


class Check(BaseModel):
    """One condition that a task decides."""

    type: str
    status: ConditionStatus
    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    message: str


class _Message(BaseModel):
    model_config = ConfigDict(extra="allow")

    checks: list[Check]


class _Fetched(BaseModel):
    path: Annotated[str, Field(pattern=r"^models/[0-9a-f]{16,64}(/[A-Za-z0-9][A-Za-z0-9._-]*)*$")]


class _Pinned(BaseModel):
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


@dataclass(frozen=True)
class Verdict:
    """One that was read."""

    text: str = ""
    """The message itself."""
    checks: tuple[Check, ...] = ()
    folder: str = ""
    """Where a download put the model, in the containers; empty: it names none."""
    commit: str = ""
    """Revision of the source that a download is of; empty: it names none."""
    error: str = ""
    """Why the message is no verdict; empty where it is one."""


def parse_verdict(text: str) -> Verdict:
    """What a termination message says."""
    try:
        message = _Message.model_validate(json.loads(text))
    except (ValueError, RecursionError) as error:
        return Verdict(text, error=str(error))
    checks = tuple(check.model_copy(update={"message": redacted(check.message)}) for check in message.checks)
    return Verdict(text, checks, _folder(message), _commit(message))


def _folder(message: _Message) -> str:
    try:
        return f"{CACHE}/{_Fetched.model_validate(message.model_extra).path}"
    except ValidationError:
        return ""


def _commit(message: _Message) -> str:
    try:
        return _Pinned.model_validate(message.model_extra).revision
    except ValidationError:
        return ""
