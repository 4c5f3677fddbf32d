"""Errors as OpenAI's API has them.

https://platform.openai.com/docs/guides/error-codes
"""

from __future__ import annotations

from typing import Any

RETRY_AFTER_SECONDS = 1


class ApiError(Exception):
    """Ends a request. `status`: of HTTP; `param`: the parameter that is wrong; `code`: OpenAI's name of the error."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code

    @property
    def body(self) -> dict[str, Any]:
        """The JSON of the response."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}

    @property
    def headers(self) -> dict[str, str]:
        """Of the response: what is overloaded may be asked again."""
        return {"Retry-After": str(RETRY_AFTER_SECONDS)} if self.status == 503 else {}


def unsupported(name: str, why: str) -> ApiError:
    """A parameter that cannot be served."""
    return ApiError(400, f"{name} is not supported: {why}", name, "unsupported_parameter")
