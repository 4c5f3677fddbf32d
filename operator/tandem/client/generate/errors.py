"""What can go wrong between this client and a service."""

from tandem.errors import TandemError


class GenerateError(TandemError):
    """Nothing can be generated; the message says what to do next."""


class PromptError(GenerateError):
    """The prompts cannot be read."""


class ServerError(GenerateError):
    """The server cannot be reached, or is not what this client speaks to."""


class UnreachableError(ServerError):
    """There is no answer, or none any more."""


class RequestRefusedError(GenerateError):
    """The server refused one request, with its own words; others may well pass."""
