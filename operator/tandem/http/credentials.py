"""Who asks a Prometheus, and whom to trust: the fields are those of Prometheus' own `http_config`.

Files are read anew for each query, so that what a Secret's volume renews is taken.
"""

import base64
import ssl
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from tandem.api.wire import StrictWire

HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")]
HeaderValue = Annotated[str, Field(pattern=r"^[ -~]*$")]


class CredentialsError(Exception):
    """A file of the credentials cannot be read; the message names it."""


class Credentials(StrictWire):
    """What goes with each query; the default is nothing."""

    ca_file: str = ""
    """PEM file of the authority of the server's certificate; empty: the system's."""
    cert_file: str = ""
    """PEM file of the certificate that the server is shown (mutual TLS), with `keyFile`."""
    key_file: str = ""
    """PEM file of that certificate's key."""
    bearer_token_file: str = ""
    """File with a bearer token."""
    username: Annotated[str, Field(pattern=r"^[^:]*$")] = ""
    """Name for basic authentication, with `passwordFile`."""
    password_file: str = ""
    """File with its password."""
    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict)
    """Further headers, such as X-Scope-OrgID, the tenant of Mimir and Cortex. No secrets: many may read settings."""

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if bool(self.username) != bool(self.password_file):
            raise ValueError("username and passwordFile go together: write both, or neither")
        if bool(self.cert_file) != bool(self.key_file):
            raise ValueError("certFile and keyFile go together: write both, or neither")
        if self.username and self.bearer_token_file:
            raise ValueError("write bearerTokenFile, or username and passwordFile, not both")
        if any(name.lower() == "authorization" for name in self.headers):
            raise ValueError(
                "headers must not hold Authorization: write bearerTokenFile, or username and passwordFile"
            )
        return self

    def request_headers(self) -> dict[str, str]:
        """The headers of a query, from the files as they are now. Raises CredentialsError, which names the file."""
        if self.bearer_token_file:
            return {**self.headers, "Authorization": f"Bearer {_line(self.bearer_token_file)}"}
        if self.username:
            pair = f"{self.username}:{_line(self.password_file)}".encode()
            return {**self.headers, "Authorization": f"Basic {base64.b64encode(pair).decode()}"}
        return dict(self.headers)

    def trust(self) -> ssl.SSLContext | bool:
        """Authorities and client certificate; True: the system's authorities. Raises CredentialsError."""
        if not (self.ca_file or self.cert_file):
            return True
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file)
        except OSError as error:  # SSLError is one
            files = ", ".join(filter(None, (self.ca_file, self.cert_file, self.key_file)))
            raise CredentialsError(f"cannot be read: {files}: {error.strerror or error}") from None
        return context


def _line(path: str) -> str:
    """A file's one line."""
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise CredentialsError(f"cannot be read: {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        text = ""
    if not text or not text.isprintable():
        raise CredentialsError(f"cannot be read: {path} is not one line of text")
    return text
