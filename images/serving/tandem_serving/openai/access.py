"""Who may ask: API keys and the TLS certificate, both in mounted Secrets that may change at any time."""

from __future__ import annotations

import asyncio
import hmac
import logging
import ssl
from pathlib import Path

from tandem_serving.openai.errors import ApiError

log = logging.getLogger("tandem.openai")
RELOAD_SECONDS = 10.0
CERTIFICATE, KEY = "tls.crt", "tls.key"


class ApiKeys:
    """The keys of a Secret's folder: each line of each file is one. They are read at each request: a new Secret holds
    as soon as the kubelet has brought it. A Secret that is gone, or empty, lets no request in."""

    def __init__(self, folder: Path | None) -> None:
        """`folder` None: whoever reaches the port may ask."""
        self._folder = folder

    def check(self, authorization: str) -> None:
        """Raises ApiError: the header has none of the keys."""
        if self._folder is None:
            return
        scheme, _, key = authorization.partition(" ")
        given = key.strip().encode() if scheme.lower() == "bearer" else b""
        # All are compared, each in constant time.
        known = [hmac.compare_digest(given, own) for own in _keys(self._folder)]
        if not given or not any(known):
            message = "the API key is not valid: send one as Authorization: Bearer KEY"
            raise ApiError(401, message, None, "invalid_api_key")


def _keys(folder: Path) -> list[bytes]:
    try:
        files = [path for path in folder.iterdir() if not path.name.startswith(".") and path.is_file()]
        return [line.strip() for path in files for line in path.read_bytes().splitlines() if line.strip()]
    except OSError as error:
        log.error("the API keys cannot be read (%s): every request is refused", error)
        return []


async def reload_certificate(context: ssl.SSLContext, folder: Path, seconds: float = RELOAD_SECONDS) -> None:
    """Load a certificate that has changed, for new connections, until cancelled."""
    seen = _state(folder)
    while True:
        await asyncio.sleep(seconds)
        if (now := _state(folder)) == seen:
            continue
        try:
            context.load_cert_chain(folder / CERTIFICATE, folder / KEY)
            seen = now
        except (OSError, ssl.SSLError) as error:
            log.error("the new certificate cannot be loaded (%s): the old one stays", error)


def _state(folder: Path) -> list[int]:
    try:
        return [(folder / name).stat().st_mtime_ns for name in (CERTIFICATE, KEY)]
    except OSError:
        return []
