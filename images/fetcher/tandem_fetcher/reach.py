"""Why a host cannot be reached, by what the libraries say of it: its certificate, a proxy, its name, the network."""

from __future__ import annotations

import os
import re
import urllib.request
from urllib.parse import urlsplit

from tandem_fetcher.environment import ENDPOINTS
from tandem_fetcher.errors import FetchError, Reason

# Texts of Python's ssl and socket (Hub), and of rustls and hyper (buckets).
_EXPIRED = re.compile(r"certificate has expired|Expired|NotValidYet")
_OTHER_NAME = re.compile(r"Hostname mismatch|IP address mismatch|NotValidForName")
_CERTIFICATE = re.compile(r"CERTIFICATE_VERIFY_FAILED|InvalidCertificate|UnknownIssuer")
_NO_TLS = re.compile(r"WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE|InvalidContentType")
_TUNNEL = re.compile(r"ProxyError|TunnelUnsuccessful|Tunnel")
_NAME = re.compile(r"Name or service not known|No address associated|name resolution|dns error|getaddrinfo")
_BROKEN = re.compile(r"ReadError|RemoteProtocolError|IncompleteMessage|disconnected|connection closed")


def unreachable(scheme: str, url: str, details: str) -> FetchError:
    """The error of a request to `url` that got no answer. `scheme`: of the model's URI; `details`: of the library."""
    return FetchError(Reason.SOURCE_UNAVAILABLE, f"{host(url)} {_cause(scheme, url, details)}")


def host(url: str) -> str:
    """Scheme, host and port. No path, which may be signed, and no user."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


def _cause(scheme: str, url: str, details: str) -> str:
    variable = ENDPOINTS[scheme][0]
    proxy = _proxy(url)
    through = f"through the proxy {host(proxy)} (HTTPS_PROXY, HTTP_PROXY)" if proxy else ""
    if _EXPIRED.search(details):
        return "has a certificate that has expired, or is not valid yet: renew it, or set the node's clock"
    if _OTHER_NAME.search(details):
        return f"has a certificate of another name: correct {variable}, or the certificate"
    if _CERTIFICATE.search(details):
        return (
            "has a certificate of an authority that is not known here: give the download the authority's certificate,"
            " with SSL_CERT_FILE as the path of its file"
        )
    if _NO_TLS.search(details):
        return f"does not speak TLS: write http:// in {variable}, or correct the port"
    if proxy and _TUNNEL.search(details):
        return f"is refused {through}: let the proxy connect to it, or add it to NO_PROXY"
    if proxy:
        return f"cannot be reached {through}: correct the proxy, or add {urlsplit(url).hostname} to NO_PROXY"
    if _NAME.search(details):
        return f"has no address in DNS: {_elsewhere(variable)}, or name a proxy in HTTPS_PROXY"
    if url.startswith("http://") and _BROKEN.search(details):
        return f"breaks off the connection: does it want https:// in {variable}?"
    return f"cannot be reached: check the network; or {_elsewhere(variable)}"


def _elsewhere(variable: str) -> str:
    if os.environ.get(variable):
        return f"correct {variable}"
    return f"for a mirror or a store of your own write {variable} into the model's Secret"


def _proxy(url: str) -> str:
    """The proxy that a request goes through; empty: none."""
    parts, proxies = urlsplit(url), urllib.request.getproxies()
    if urllib.request.proxy_bypass(parts.hostname or ""):
        return ""
    return proxies.get(parts.scheme) or proxies.get("all") or ""
