"""Which addresses and ports a cluster gets."""

from __future__ import annotations

from ipaddress import IPv4Network
from itertools import combinations

import pytest

from cluster.addresses import CLUSTERS, REAL_NODES, Addresses, Network, choose, parse_routes, shown
from cluster.errors import ClusterError

pytestmark = pytest.mark.nightly

CHOICES = [
    pytest.param([], [], [], 0, id="nothing in the way: the first"),
    pytest.param([0, 1], [], [], 2, id="numbers of other clusters are passed over"),
    pytest.param([1], [], [], 0, id="a number given back is used again"),
    pytest.param([], ["10.160.3.0/24"], [], 1, id="a route inside the range makes it unusable"),
    pytest.param([], ["10.128.0.0/9"], [20000], None, id="a route around all ranges leaves none"),
    pytest.param([], [], [20001], 1, id="a listener on any of its ports makes it unusable"),
    pytest.param([], ["192.168.0.0/16", "172.17.0.0/16"], [6443], 0, id="other networks and ports do not matter"),
]


@pytest.mark.parametrize(("taken", "routes", "listening", "expected"), CHOICES)
def test_choice(taken: list[int], routes: list[str], listening: list[int], expected: int | None) -> None:
    networks = [IPv4Network(route) for route in routes]
    if expected is None:
        with pytest.raises(ClusterError, match="down --name"):
            choose(taken, networks, lambda port: port not in listening)
    else:
        assert choose(taken, networks, lambda port: port not in listening).index == expected


@pytest.mark.parametrize("ipv6", [False, True])
def test_no_two_clusters_share_anything(ipv6: bool) -> None:
    clusters = [Addresses(index, ipv6) for index in range(CLUSTERS)]
    for one, other in combinations(clusters, 2):
        assert not one.network.overlaps(other.network)
        assert not set(one.ports) & set(other.ports)
        assert one.bridge != other.bridge


@pytest.mark.parametrize("ipv6", [False, True])
@pytest.mark.parametrize("index", [0, CLUSTERS - 1])
def test_parts_of_a_cluster_do_not_overlap(index: int, ipv6: bool) -> None:
    at = Addresses(index, ipv6)
    parts = [at.services, at.nodes, at.simulated_pods, *map(at.node_pods, range(REAL_NODES))]
    for one, other in combinations(parts, 2):
        assert not one.overlaps(other)
    for part in parts:
        assert within(part, at.network)
    for pods in (at.simulated_pods, at.node_pods(REAL_NODES - 1)):
        assert within(pods, at.pods)
    assert at.host in at.nodes and at.node(REAL_NODES - 1) in at.nodes and at.kubernetes_service in at.services


def within(part: Network, whole: Network) -> bool:
    return part.network_address in whole and part.broadcast_address in whole


def test_addresses_of_ipv6_stand_in_brackets() -> None:
    assert [shown(Addresses(0, ipv6).host) for ipv6 in (False, True)] == ["10.160.16.1", "[fd7a:74:a0:1000::1]"]


def test_interface_names_fit_linux() -> None:
    at = Addresses(CLUSTERS - 1)
    assert len(at.veth(REAL_NODES - 1)) <= 15


def test_ports_are_not_those_that_linux_gives_to_outgoing_connections() -> None:
    assert max(Addresses(CLUSTERS - 1).ports) < 32768  # the default of net.ipv4.ip_local_port_range


def test_default_route_is_no_obstacle() -> None:
    routes: list[dict[str, object]] = [{"dst": "default"}, {"dst": "10.9.8.0/24"}, {"dst": "192.0.2.7"}]
    assert parse_routes(routes) == [IPv4Network("10.9.8.0/24"), IPv4Network("192.0.2.7/32")]
