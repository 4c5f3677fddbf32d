"""Addresses and ports of a cluster, all derived from one small number that no other cluster has.

Cluster ``i`` owns 10.(160+i).0.0/16 and the ports 20000+10i … +9, which lie below Linux's range for
outgoing connections: so a stopped API server's port is still free when it starts again.
"""

from __future__ import annotations

import ipaddress
import json
import shutil
import socket
import subprocess
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from cluster.deps import search_path
from cluster.errors import ClusterError

CLUSTERS = 64
REAL_NODES = 60
"""Most real nodes of a cluster: their pod subnets are 10.x.128.0/24 … 10.x.187.0/24."""


Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


@dataclass(frozen=True)
class Addresses:
    """The subnets, addresses and ports of cluster number ``index``, which is of one family: IPv4, or ``ipv6``.

    Prefixes are those of IPv4; those of IPv6 are longer by 32, so that both have the same parts.
    """

    index: int
    ipv6: bool = False

    @property
    def network(self) -> Network:
        """All addresses of the cluster, a /16."""
        if self.ipv6:
            return IPv6Network(f"fd7a:74:{160 + self.index:x}::/48")
        return IPv4Network(f"10.{160 + self.index}.0.0/16")

    def _part(self, offset: int, prefix: int) -> Network:
        if self.ipv6:
            return IPv6Network((int(self.network.network_address) + (offset << 72), prefix + 32))
        return IPv4Network((int(self.network.network_address) + offset * 256, prefix))

    @property
    def loopback(self) -> str:
        """Where this host reaches the API server."""
        return "::1" if self.ipv6 else "127.0.0.1"

    @property
    def everywhere(self) -> str:
        """What a server binds to answer at all addresses."""
        return "::" if self.ipv6 else "0.0.0.0"

    @property
    def services(self) -> Network:
        """ClusterIPs, a /20; in IPv6 no larger than a /64 may be."""
        return self._part(0, 80 if self.ipv6 else 20)

    @property
    def nodes(self) -> Network:
        """The host's and the real nodes' addresses on the cluster's bridge, a /24."""
        return self._part(16, 24)

    @property
    def pods(self) -> Network:
        """All pods, a /17: the upper half of it is for simulated pods."""
        return self._part(128, 17)

    @property
    def simulated_pods(self) -> Network:
        """Addresses that kwok writes into the status of its pods, a /18; nothing answers there."""
        return self._part(192, 18)

    def node_pods(self, number: int) -> Network:
        """Return the pods' /24 of real node ``number`` (from 0)."""
        return self._part(128 + number, 24)

    def node(self, number: int) -> Address:
        """Return the address of real node ``number`` (from 0)."""
        return self.nodes[number + 2]

    @property
    def host(self) -> Address:
        """The host's address on the bridge: where pods reach the API server."""
        return self.nodes[1]

    @property
    def kubernetes_service(self) -> Address:
        """ClusterIP of the Service ``kubernetes``: the first of the range, by convention."""
        return self.services[1]

    @property
    def dns(self) -> Address:
        """Where the cluster's DNS answers: on the first real node."""
        return self.node(0)

    @property
    def bridge(self) -> str:
        """Name of the cluster's bridge on the host (at most 15 characters)."""
        return f"tandem{self.index}"

    def veth(self, number: int) -> str:
        """Return the name of the host's end of the cable to real node ``number``."""
        return f"tandem{self.index}n{number}"

    @property
    def apiserver_port(self) -> int:
        """The API server's port, on 127.0.0.1 and for real nodes on ``host``."""
        return 20000 + 10 * self.index

    @property
    def etcd_port(self) -> int:
        """Etcd's client port on 127.0.0.1."""
        return self.apiserver_port + 1

    @property
    def etcd_peer_port(self) -> int:
        """Etcd's peer port on 127.0.0.1."""
        return self.apiserver_port + 2

    @property
    def ports(self) -> tuple[int, ...]:
        """Every port that the cluster listens on at the host's addresses."""
        return self.apiserver_port, self.etcd_port, self.etcd_peer_port


def choose(
    taken: Collection[int], networks: Collection[IPv4Network], port_is_free: Callable[[int], bool]
) -> Addresses:
    """Return the first addresses that no other cluster, route or listener of this host has.

    Args:
        taken: numbers of the clusters that exist.
        networks: what the host already routes.
        port_is_free: tells whether a port of 127.0.0.1 can be listened on.

    Raises:
        ClusterError: when none is left.
    """
    for index in range(CLUSTERS):
        candidate = Addresses(index)
        # Clusters of IPv6 have the numbers and ports of the others, and so stay clear of each other.
        overlaps = any(candidate.network.overlaps(network) for network in networks)
        if index not in taken and not overlaps and all(map(port_is_free, candidate.ports)):
            return candidate
    raise ClusterError(
        f"all {CLUSTERS} address ranges (10.160.0.0/16 ...) are in use by clusters or routes of this host: "
        "remove clusters with `python -m cluster down --name NAME` (`status` lists them)"
    )


def shown(address: Address | str) -> str:
    """An address as URLs have it: of IPv6 in brackets."""
    return f"[{address}]" if ":" in str(address) else str(address)


def port_is_free(port: int) -> bool:
    """Tell whether a server could listen on ``port`` of 127.0.0.1 now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def host_networks() -> list[IPv4Network]:
    """Return the IPv4 networks that this host routes, the default route left out; none without `ip`."""
    ip = shutil.which("ip", path=search_path())
    if ip is None:
        return []
    command = [ip, "-json", "-4", "route", "show", "table", "all"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return parse_routes(json.loads(done.stdout or "[]"))


def parse_routes(routes: Iterable[dict[str, object]]) -> list[IPv4Network]:
    """Return the destinations of `ip -json route`, except the default route."""
    destinations = (str(route["dst"]) for route in routes)
    return [ipaddress.IPv4Network(dst, strict=False) for dst in destinations if dst != "default"]
