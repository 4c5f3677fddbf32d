"""What the checks look at, as it was read; and what a check finds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tandem.api.profile import Profile
from tandem.api.types import SpeculativeInferenceService
from tandem.api.wire import Object


class CheckState(StrEnum):
    """How grave a finding is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class CheckFinding(NamedTuple):
    """What a check found."""

    check: str
    state: CheckState
    message: str
    """What is there; where it is wrong, also what to do."""


@dataclass(frozen=True)
class Unread:
    """What this user may not read, or could not, and why."""

    why: str


Listed = list[Object] | Unread
One = Object | Unread | None
"""None: there is none."""


class Right(NamedTuple):
    """Something that a user may do."""

    verb: str
    group: str
    resource: str
    wanted_for: str


@dataclass(frozen=True)
class ClusterFacts:
    """Objects of the cluster and, where a service is named, those that it names."""

    version: One = None
    """What `kubectl version` answers."""
    definitions: Mapping[str, One] = field(default_factory=dict)
    """CustomResourceDefinitions by name."""
    operators: Listed = field(default_factory=list)
    """The operator's Deployments."""
    metrics_api: One = None
    """The APIService of the custom metrics API."""
    storage_classes: Listed = field(default_factory=list)
    nodes: Listed = field(default_factory=list)
    quotas: Listed = field(default_factory=list)
    """Of the namespace."""
    rights: Mapping[Right, bool | None] = field(default_factory=dict)
    """Whether the user has them; None: not known."""
    service: SpeculativeInferenceService | None = None
    profile: Profile | None = None
    """The service's; None: not known."""
    secrets: Mapping[str, One] = field(default_factory=dict)
    """Those that the service names, by name."""
    configmaps: Mapping[str, One] = field(default_factory=dict)
    """Likewise."""
    claim: One = None
    """The service's cache."""


def ok(check: str, message: str) -> CheckFinding:
    """All is well."""
    return CheckFinding(check, CheckState.OK, message)


def warn(check: str, message: str) -> CheckFinding:
    """Something works less well, or is not known."""
    return CheckFinding(check, CheckState.WARN, message)


def fail(check: str, message: str) -> CheckFinding:
    """Something cannot work."""
    return CheckFinding(check, CheckState.FAIL, message)
