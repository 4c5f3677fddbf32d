"""Errors."""


class RequestError(RuntimeError):
    """The error raised when a request has failed; others go on."""
