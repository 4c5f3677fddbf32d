"""What decisions ask of the children that were observed; and that manifests are read where they are parsed, alone."""

import ast
from pathlib import Path

import pytest

import tandem
from tandem import names
from tandem.rollout.observed import CacheClaim, Live, Observed, Server, Workload

SERVERS = [
    Server("a", "r1", ready=True),
    Server("b", "r1", worker=True),
    Server("c", "r1", deleting=True),
    Server("d", "r1", ended=True),
]


def test_servers_that_stay() -> None:
    observed = Observed(servers=SERVERS)
    assert [server.name for server in observed.replicas] == ["a"]
    assert [server.name for server in observed.workers] == ["b"]


def test_the_newest_workload_serves() -> None:
    assert Observed().live_revision == ""
    old, new = (Workload(Live("Deployment", name), revision=name) for name in ("old", "new"))
    assert Observed(workloads=[old, new]).live_revision == "new"


def test_children_are_known_by_kind_and_name() -> None:
    policy, budget = Live("NetworkPolicy", "svc-server"), Live("PodDisruptionBudget", "svc-server")
    observed = Observed(network_policies=[policy], others=[budget])
    assert observed.child("NetworkPolicy", "svc-server") is policy
    assert observed.child("PodDisruptionBudget", "svc-server") is budget
    assert observed.child("Deployment", "svc-server") is None


# The claim that a service uses, and whether time alone may change it: claims are not watched.
@pytest.mark.parametrize(
    ("name", "claim", "awaited"),
    [
        ("", None, False),
        (names.CACHE_CLAIM, None, False),  # it was made this moment
        ("mine", None, True),
        ("mine", CacheClaim(), False),
        (names.CACHE_CLAIM, CacheClaim(deleting=True), True),
    ],
)
def test_a_claim_that_comes_or_goes_is_looked_at_again(name: str, claim: CacheClaim | None, awaited: bool) -> None:
    assert Observed(claim_name=name, claim=claim).awaits_claim is awaited


ROOT = Path(tandem.__file__).parent
TYPED = [*ROOT.glob("rollout/*.py"), *ROOT.glob("conditions/*.py"), ROOT / "process/reconcile.py"]
PARTS = {"metadata", "spec", "status", "data", "managedFields"}
HANDED_ON = {("plan.py", "as_wanted")}
"""Where a manifest goes through to the comparison."""


@pytest.mark.parametrize("path", TYPED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_manifests_are_read_where_they_are_parsed_alone(path: Path) -> None:
    """`cluster` makes values of them; what is built in `children` and `render` is looked into by nobody else."""
    tree = ast.parse(path.read_text())
    handed_on = set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            assert node.slice.value not in PARTS, f"line {node.lineno}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            keys = {each.value for each in node.args if isinstance(each, ast.Constant)}
            assert PARTS.isdisjoint(keys), f"line {node.lineno}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and (path.name, node.func.id) in HANDED_ON:
            handed_on |= set(map(id, node.args))
    reads = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "manifest"]
    assert [node.lineno for node in reads if id(node) not in handed_on] == []
