"""Where the server listens, and where it is asked inside its pod: by the family of the pod's first address.

Triton's HTTP servers take one family (libevhtp: `ipv6:` before an address of IPv6, which then answers IPv6 alone).
Their default is all of IPv4, which a pod of an IPv6-only cluster has not. The first of a pod's addresses is that of
the kubelet's probes, and of Services whose `ipFamilyPolicy` is the default.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

POD_IP = "TANDEM_POD_IP"
"""The variable with the pod's first address; absent in pods of earlier versions."""


def server_options(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Arguments of Triton's server, to be added to those of the launch plan; none where its defaults are right."""
    if not _is_ipv6(environment):
        return []
    return ["--http-address=ipv6:::", "--grpc-address=[::]", "--metrics-address=ipv6:::"]


def loopback(environment: Mapping[str, str] = os.environ) -> str:
    """The server's address inside the pod."""
    return "::1" if _is_ipv6(environment) else "127.0.0.1"


def authority(port: int, environment: Mapping[str, str] = os.environ) -> str:
    """`loopback` with a port, as URLs and gRPC have it."""
    host = loopback(environment)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def all_addresses(environment: Mapping[str, str] = os.environ) -> str:
    """Where a server of ours listens: at all addresses of that family."""
    return "::" if _is_ipv6(environment) else "0.0.0.0"


def _is_ipv6(environment: Mapping[str, str]) -> bool:
    return ":" in environment.get(POD_IP, "")
