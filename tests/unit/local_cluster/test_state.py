"""What a cluster is asked for, and remembering it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from cluster import state
from cluster.errors import ClusterError
from cluster.state import NodeSpec, State

pytestmark = pytest.mark.nightly

GOOD = [
    pytest.param("real", NodeSpec("real", 1), id="one is meant when no number is said"),
    pytest.param("real:2", NodeSpec("real", 2), id="several real nodes"),
    pytest.param("simulated:5000", NodeSpec("simulated", 5000), id="thousands of simulated nodes"),
]
BAD = [
    pytest.param("", id="nothing"),
    pytest.param("virtual", id="no such kind"),
    pytest.param("real:0", id="none of a kind is said by leaving it out"),
    pytest.param("real:-1", id="a negative number"),
    pytest.param("simulated:many", id="not a number"),
    pytest.param("real:61", id="more real nodes than there are pod subnets"),
]


@pytest.mark.parametrize(("text", "expected"), GOOD)
def test_nodes_are_understood(text: str, expected: NodeSpec) -> None:
    assert NodeSpec.parse(text, {}, {}) == expected


@pytest.mark.parametrize("text", BAD)
def test_nodes_are_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ClusterError, match=r"simulated:5|at most 60"):
        NodeSpec.parse(text, {}, {})


WANTS = [
    pytest.param([NodeSpec("real")], [NodeSpec("simulated", 3)], {"real": 1, "simulated": 3}, id="kinds add up"),
    pytest.param([NodeSpec("simulated", 5)], [NodeSpec("simulated", 2)], {"simulated": 5}, id="never fewer"),
    pytest.param([NodeSpec("simulated", 2)], [NodeSpec("simulated", 5)], {"simulated": 5}, id="more"),
    pytest.param([NodeSpec("real")], [], {"real": 1}, id="asking for nothing keeps all"),
]


@pytest.mark.parametrize(("before", "asked", "counts"), WANTS)
def test_wanting(before: list[NodeSpec], asked: list[NodeSpec], counts: dict[str, int]) -> None:
    wanted = State(0, list(before))
    wanted.want(asked)
    assert {spec.kind: spec.count for spec in wanted.nodes} == counts


def test_capacity_that_is_not_named_again_stays() -> None:
    wanted = State(0, [NodeSpec("real", 1, {"nvidia.com/gpu": "2"}, {"zone": "a"})])
    wanted.want([NodeSpec("real", 1, {"example.com/x": "1"}, {"zone": "b"})])
    assert wanted.nodes == [NodeSpec("real", 1, {"nvidia.com/gpu": "2", "example.com/x": "1"}, {"zone": "b"})]


def test_state_comes_back_as_saved(tmp_path: Path) -> None:
    saved = State(7, [NodeSpec("simulated", 3, {"nvidia.com/gpu": "8"}, {"zone": "a"})])
    state.save(tmp_path, saved)
    assert state.load(tmp_path) == saved


def test_clusters_get_different_numbers(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    one, two = (state.load_or_allocate(folder) for folder in folders)
    assert one.index != two.index
    assert state.load_or_allocate(folders[0]) == one


def test_a_lock_keeps_others_out_even_when_its_directory_is_removed(tmp_path: Path) -> None:
    folder, order = tmp_path / "cluster", list[str]()

    def second() -> None:
        with state.locked(folder):
            order.append("second")
            assert folder.exists()

    thread = threading.Thread(target=second)
    with state.locked(folder):
        thread.start()
        time.sleep(0.2)
        order.append("first")
        folder.rmdir()
    thread.join()
    assert order == ["first", "second"]


NAMES = [
    pytest.param("tandem", True, id="plain"),
    pytest.param("a-1", True, id="digits and dashes"),
    pytest.param("a" * 31, False, id="too long"),
    pytest.param("A", False, id="upper case"),
    pytest.param("../x", False, id="would leave the directory"),
    pytest.param("", False, id="empty"),
]


@pytest.mark.parametrize(("name", "good"), NAMES)
def test_names(name: str, good: bool) -> None:
    if good:
        assert state.check_name(name) == name
    else:
        with pytest.raises(ClusterError, match="lower-case"):
            state.check_name(name)
