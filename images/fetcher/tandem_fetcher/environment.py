"""What the environment, which is the model's Secret for the most part, says of a source: tidied and checked here.

Files and `echo` end with a line break, and so do the values of many a Secret. The libraries take them as they are: a
key with a line break in it ends the process with a trace (obstore panics), and so does an endpoint that is no URL.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path
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


_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")
_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE")
"""What other programs call the file of authorities' certificates."""


def namespace() -> str:
    """Of the pod; empty where nobody says it."""
    return os.environ.get("TANDEM_NAMESPACE", "")


def prepare(scheme: str) -> None:
    """Take white space off the ends of values, and check those that the scheme's library needs. Raises FetchError.

    No message repeats a value that may be a secret.
    """
    _check_authorities()
    _check_proxies()
    if scheme == "hf" and os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise _unusable("HF_HUB_OFFLINE", "forbids downloads: remove it")
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


def _check_authorities() -> None:
    """Certificates of authorities are in a file with one at least; a name that others use of it is as good."""
    folder = os.environ.get("SSL_CERT_DIR", "").strip()
    if folder and not any(Path(each).is_dir() for each in folder.split(":")):
        raise _unusable("SSL_CERT_DIR", f"is {folder}, which is no folder")
    name = next((each for each in ("SSL_CERT_FILE", *_BUNDLES) if os.environ.get(each, "").strip()), "")
    if not name:
        os.environ.pop("SSL_CERT_FILE", None)  # an empty one is taken for a file
        return
    path = os.environ["SSL_CERT_FILE"] = os.environ[name].strip()
    if not Path(path).exists():
        raise _unusable(name, f"is {path}, which is missing: is its volume mounted?")
    try:
        ssl.create_default_context(cafile=path)
    except ssl.SSLError:
        raise _unusable(name, f"is {path}, which holds no certificate in PEM format") from None
    except OSError as error:
        raise _unusable(name, f"is {path}, which cannot be read ({error.strerror})") from None


def _unusable(name: str, why: str) -> FetchError:
    where = "where it is set: in the model's Secret, or in the environment of Jobs"
    return FetchError(Reason.ENVIRONMENT_INVALID, f"{name} {why}; correct it {where}")


def _check_proxies() -> None:
    for name in [name for name in os.environ if name.upper() in _PROXIES]:
        os.environ[name] = value = os.environ[name].strip()
        if value.startswith("socks"):
            raise _unusable(name, "is a SOCKS proxy, which downloads cannot use: write an HTTP proxy")
        if value and not _is_url(value if "://" in value else f"http://{value}"):
            raise _unusable(name, "is no URL: write it as http://host:port")
