"""The errors that reconciling knows, classified once.

An error is either `Transient` (try again; nothing is wrong), or `Refused` (the API server refused a request: a person
must see it). Anything else is a defect and is raised with its trace.
"""

from tandem.api.conditions import Reason, ServingReason


class TandemError(Exception):
    """Base of all errors that Tandem raises on purpose; `str()` is for people."""


class SettingsError(TandemError):
    """The operator's settings cannot be used; the message says which file and what to write."""


class Transient(TandemError):
    """Try again: the API server is away, busy, or the object changed meanwhile."""


class AlreadyExists(Transient):
    """An object of that name is there: made by an earlier try, or by another client."""


class Expired(Transient):
    """The requested resourceVersion is one that the API server keeps no more: list again."""


class NotLeader(Transient):
    """This process lost, or never had, the right to write."""


class Refused(TandemError):
    """The API server refused a request for good."""

    reason: Reason = ServingReason.APPLY_REFUSED
    """Reason of the condition that shows it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Forbidden(Refused):
    """A right is missing. Others may be there: nothing but what needs this one stops."""

    reason = ServingReason.RIGHT_MISSING

    def __init__(self, user: str, verb: str, resource: str, group: str, namespace: str | None) -> None:
        self.verb = verb
        self.resource = f"{resource}.{group}" if group else resource
        where = f"in namespace {namespace}" if namespace else "in all namespaces"
        super().__init__(
            403,
            f"{user} may not {verb} {self.resource} {where}: run helm upgrade, which renews the rights of Tandem's"
            " chart, or grant it by RBAC",
        )


class KindMissing(Refused):
    """The cluster does not know a kind that a child is of."""

    def __init__(self, kind: str, help_text: str) -> None:
        super().__init__(404, f"{kind} is not installed in this cluster: {help_text}")
        self.reason = next((each for each in ServingReason if each == f"{kind}Missing"), self.reason)


class NameTaken(Refused):
    """A child's name belongs to an object that this service does not own."""

    def __init__(self, kind: str, name: str, owner: str) -> None:
        super().__init__(
            409,
            f"{kind} {name!r} exists and belongs to {owner}: delete or rename it, or rename this service",
        )
