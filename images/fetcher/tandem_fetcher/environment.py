"""What the environment, which is the model's Secret for the most part, says of a source: tidied and checked here.

Files and `echo` end with a line break, and so do the values of many a Secret. The libraries take them as they are: a
key with a line break in it ends the process with a trace (obstore panics), and so does an endpoint that is no URL.
"""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from tandem_fetcher.errors import FetchError, Reason

ENDPOINTS = {
    "hf": ("HF_ENDPOINT",),
    "s3": ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"),
    "gs": ("GOOGLE_BASE_URL", "STORAGE_EMULATOR_HOST"),  # the second as for Google's own clients
}
"""Variables with a URL, by scheme."""
_PREFIXES = ("HF_", "AWS_", "GOOGLE_", "STORAGE_")
_SENT = {"hf": "HF_TOKEN", "s3": "AWS_", "gs": "GOOGLE_STORAGE_TOKEN"}
"""What the names of variables begin with whose values are sent in headers, by scheme."""


def prepare(scheme: str) -> None:
    """Take white space off the ends of values, and check those that the scheme's library needs. Raises FetchError.

    No message repeats a value: it may be a secret.
    """
    for name in [name for name in os.environ if name.startswith(_PREFIXES)]:
        os.environ[name] = os.environ[name].strip()
        if name.startswith(_SENT[scheme]) and not _can_be_sent(os.environ[name]):
            message = f"{name} holds more than one line, or no plain letters: correct it in the model's Secret"
            raise FetchError(Reason.TOKEN_INVALID, message)
    for name in ENDPOINTS[scheme]:
        if (url := os.environ.get(name)) and not _is_url(url):
            message = f"{name} is no URL: write it as https://host or http://host:port"
            raise FetchError(Reason.INVALID_URI, message)


def _can_be_sent(value: str) -> bool:
    return value.isascii() and value.isprintable()


def _is_url(value: str) -> bool:
    try:
        parts = urlsplit(value)
        whole = parts.port != 0 and bool(parts.hostname)
    except ValueError:  # a port that is no number, or too large a one
        return False
    return whole and parts.scheme in ("http", "https") and _can_be_sent(value) and " " not in value
