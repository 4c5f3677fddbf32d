"""The host's side of a cluster's network: one bridge, its routes, and a guard for the API server's port.

Real nodes live in network namespaces of their own and hang on the bridge. Everything here carries the
cluster's bridge name, so it can be removed without a record of what was made.
"""

from __future__ import annotations

from pathlib import Path

from cluster.addresses import Addresses
from cluster.errors import ClusterError
from cluster.shell import attempt, call, succeeds


def up(at: Addresses) -> None:
    """Make the bridge with the host's address and the guard; does nothing to what is there."""
    if not succeeds("ip", "link", "show", at.bridge):
        call("ip", "link", "add", at.bridge, "type", "bridge")
    call("ip", "address", "replace", f"{at.host}/{at.nodes.prefixlen}", "dev", at.bridge, *_at_once(at))
    call("ip", "link", "set", at.bridge, "up")
    call("nft", "-f", "-", stdin=guard(at))


def guard(at: Addresses) -> str:
    """Return nft rules: the API server's port is answered to this host and the cluster, to no one outside.

    The API server can listen on one address or on all. Pods need one that is not loopback, users like
    127.0.0.1: so it listens on all, behind this.
    """
    return f"""table inet {at.bridge}
delete table inet {at.bridge}
table inet {at.bridge} {{
  chain input {{
    type filter hook input priority filter - 10
    iifname != {{ "lo", "{at.bridge}" }} tcp dport {at.apiserver_port} drop
  }}
}}
"""


def connect(at: Addresses, number: int, pid: int) -> None:
    """Plug real node ``number`` into the bridge and route to its pods; ``pid`` holds its namespaces."""
    inside = ("nsenter", "-t", str(pid), "-n")
    cable, address = at.veth(number), str(at.node(number))
    if not succeeds(*inside, "ip", "link", "show", "eth0"):
        _plug(at, number, pid)
    call(*inside, "ip", "address", "replace", f"{address}/{at.nodes.prefixlen}", "dev", "eth0", *_at_once(at))
    for link in ("lo", "eth0"):
        call(*inside, "ip", "link", "set", link, "up")
    call("ip", "link", "set", cable, "up")
    call(*inside, "ip", *(["-6"] if at.ipv6 else []), "route", "replace", "default", "via", str(at.host))
    call("ip", "route", "replace", str(at.node_pods(number)), "via", address)
    if number == 0:  # any node's kube-proxy would do
        call("ip", "route", "replace", str(at.services), "via", address)


def _at_once(at: Addresses) -> list[str]:
    """Options of an address: one of IPv6 would wait for a second to see that no other host has it."""
    return ["nodad"] if at.ipv6 else []


def _plug(at: Addresses, number: int, pid: int) -> None:
    cable = at.veth(number)
    if succeeds("ip", "link", "show", cable):  # of a node that died: its namespace may still be fading
        call("ip", "link", "delete", cable)
    call("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    call("ip", "link", "set", cable, "master", at.bridge)


def route_between(at: Addresses, pids: list[int]) -> None:
    """Let every real node reach the other nodes' pods; ``pids`` hold the nodes' namespaces, in order."""
    for number, pid in enumerate(pids):
        for other in range(len(pids)):
            if other != number:
                route = (str(at.node_pods(other)), "via", str(at.node(other)))
                call("nsenter", "-t", str(pid), "-n", "ip", "route", "replace", *route)


def set_sysctls(pid: int) -> None:
    """Set what pods need in the network namespace of ``pid``: forwarding, and Services seen through a bridge.

    Raises:
        ClusterError: when the kernel has no bridge filter.
    """
    bridge_filter = Path("/proc/sys/net/bridge")
    if not bridge_filter.exists() and not succeeds("modprobe", "br_netfilter"):
        raise ClusterError("the kernel has no bridge filter: load it with `modprobe br_netfilter`")
    on = (
        "ipv4/ip_forward",
        "ipv6/conf/all/forwarding",
        "bridge/bridge-nf-call-iptables",
        "bridge/bridge-nf-call-ip6tables",
    )
    script = "; ".join(f"if [ -e /proc/sys/net/{name} ]; then echo 1 > /proc/sys/net/{name}; fi" for name in on)
    call("nsenter", "-t", str(pid), "-n", "sh", "-ec", script)


def down(at: Addresses) -> None:
    """Remove the bridge (routes go with it) and the guard; cables go with their nodes."""
    if succeeds("nft", "list", "table", "inet", at.bridge):
        call("nft", "delete", "table", "inet", at.bridge)
    for cable in Path("/sys/class/net").glob(f"{at.bridge}n*"):
        attempt(("ip", "link", "delete", cable.name))  # it may go by itself meanwhile
    if succeeds("ip", "link", "show", at.bridge):
        call("ip", "link", "delete", at.bridge)
