"""Why a model is not there: a reason word for machines and one line for people, which says what to do."""

from __future__ import annotations

import errno
from enum import StrEnum


class Reason(StrEnum):
    """Reasons of the verdict."""

    INVALID_URI = "InvalidUri"
    ENVIRONMENT_INVALID = "EnvironmentInvalid"
    MODEL_NOT_FOUND = "ModelNotFound"
    REVISION_NOT_FOUND = "RevisionNotFound"
    TOKEN_NEEDED = "TokenNeeded"
    TOKEN_INVALID = "TokenInvalid"
    ACCESS_DENIED = "AccessDenied"
    NO_WEIGHTS = "NoWeights"
    UNSAFE_FILE_NAME = "UnsafeFileName"
    CHECKSUM_MISMATCH = "ChecksumMismatch"
    DISK_FULL = "DiskFull"
    CACHE_READ_ONLY = "CacheReadOnly"
    SOURCE_UNAVAILABLE = "SourceUnavailable"
    SOURCE_CHANGED = "SourceChanged"
    CACHE_FAILED = "CacheFailed"
    INTERRUPTED = "Interrupted"


PASSING = frozenset({Reason.SOURCE_UNAVAILABLE, Reason.SOURCE_CHANGED, Reason.CACHE_FAILED, Reason.INTERRUPTED})
"""Those that may be gone at the next try; the others stay until a person does something."""


class FetchError(Exception):
    """The model cannot be had, now or at all."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    @property
    def passing(self) -> bool:
        """Whether trying again can help."""
        return self.reason in PASSING


def cache_error(error: OSError) -> FetchError:
    """Say what an error of the cache's file system means to the user."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        message = "the cache volume is full: enlarge it or remove models that nobody uses"
        return FetchError(Reason.DISK_FULL, message)
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        message = (
            f"the cache volume cannot be written to ({error.strerror}): mount it writable, "
            "with an fsGroup that owns it"
        )
        return FetchError(Reason.CACHE_READ_ONLY, message)
    return FetchError(Reason.CACHE_FAILED, f"the cache volume fails ({error}): look at its storage")
