"""What a Job found: conditions, short enough together for a container's termination message (4 KiB)."""

from __future__ import annotations

from dataclasses import asdict, dataclass

MAX_MESSAGE_BYTES = 1200


@dataclass(frozen=True)
class CheckResult:
    """A condition: `status` is "True", "False" or "Unknown"; `message` says what to do."""

    type: str
    status: str
    reason: str
    message: str


def bounded(check: CheckResult) -> dict[str, str]:
    """The check as data. Of a long message the end is left out."""
    data = asdict(check)
    data["message"] = check.message.encode()[:MAX_MESSAGE_BYTES].decode(errors="ignore")
    return data
