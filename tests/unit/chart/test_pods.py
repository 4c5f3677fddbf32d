"""Values in, fields of manifests out (pods.yaml): names, labels, accounts, pods; and claims, and the notes."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tandem.cluster.sole_operator import EVERYWHERE, HERE, LEASE_ANNOTATION

from .conftest import NAMESPACED, Helm, Object, Values, notes, only

ROWS: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("pods.yaml").read_text(encoding="utf-8"))


def at(obj: Object, path: str) -> Any:
    """The field at a dotted path; a number is an index. None where it is absent."""
    found: Any = obj
    for key in path.replace("container.", "spec.template.spec.containers.0.").split("."):
        if found is None:
            return None
        found = found[int(key)] if isinstance(found, list) else found.get(key)
    return found


def contains(found: Any, wanted: Any) -> bool:
    """Whether a map has all that `wanted` has; anything else is equal."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(contains(found.get(key), value) for key, value in wanted.items())
    return bool(found == wanted)


def is_of(obj: Object, component: str) -> bool:
    return bool(obj["metadata"]["labels"]["app.kubernetes.io/component"] == component)


def fields(objects: list[Object], row: dict[str, Any]) -> list[tuple[Object, str, Any]]:
    """Object, path and value of each field that the row lists."""
    listed = [(each, row.get("all", {})) for each in objects]
    for component in ("operator", "metrics"):
        if component in row:
            (found,) = [o for o in objects if o["kind"] == "Deployment" and is_of(o, component)]
            listed.append((found, row[component]))
    for kind, wanted in row.get("kinds", {}).items():
        listed += [(o, wanted) for o in objects if o["kind"] == kind]
    return [(found, path, value) for found, wanted in listed for path, value in wanted.items()]


@pytest.mark.parametrize("row", ROWS, ids=[row["reason"] for row in ROWS])
def test_values_reach_the_manifests(helm: Helm, row: dict[str, Any]) -> None:
    objects = helm.template(row["values"])
    assert set(row.get("names", [])) <= {o["metadata"]["name"] for o in objects}
    for found, path, value in fields(objects, row):
        assert contains(at(found, path), value), f"{found['kind']} {path}: {at(found, path)}"
    if "accounts" in row:
        accounts = [o["metadata"] for o in objects if o["kind"] == "ServiceAccount"]
        assert {each["name"]: each.get("annotations") for each in accounts} == row["accounts"]


@pytest.mark.parametrize("create", [True, False], ids=["made", "there already"])
def test_rights_are_those_of_the_pods_accounts(helm: Helm, create: bool) -> None:
    accounts = {"serviceAccount": {"create": create, "name": "mine"}}
    objects = helm.template({**accounts, "metricsServer": {"serviceAccount": {"create": create, "name": "yours"}}})
    bound = {o["metadata"]["name"]: o["subjects"][0]["name"] for o in objects if o["kind"].endswith("Binding")}
    ours = {"tandem-operator", "tandem-operator-lease", "tandem-metrics-reader", EVERYWHERE}
    assert {name for name, account in bound.items() if account == "mine"} == ours
    theirs = {"tandem-metrics", "tandem-metrics-auth", "tandem-metrics-secret"}
    assert {name for name, account in bound.items() if account == "yours"} == theirs


def test_overridden_names_stay_short_enough(helm: Helm) -> None:
    for values in ({"fullnameOverride": "a" * 45}, {"nameOverride": "a" * 45}):
        objects = helm.template({**values, "metrics": {"podMonitor": {"enabled": True}}}, release="r" * 53)
        assert all(len(o["metadata"]["name"]) <= 63 for o in objects)
        selectors = [o["spec"]["selector"] for o in objects if o["kind"] == "Service"]
        assert all(len(value) <= 63 for selector in selectors for value in selector.values())


# --- one operator a namespace ---------------------------------------------------------------------
def claims(helm: Helm, values: Values, release: str) -> list[tuple[str, str, str]]:
    found = [o for o in helm.template(values, release) if o["kind"] in ("Role", "ClusterRole")]
    found = [o for o in found if o["metadata"]["name"].startswith("tandem:serves")]
    for each in found:
        (rule,) = each["rules"]
        assert (rule["verbs"], rule["resourceNames"]) == (["get"], [each["metadata"]["name"]]), "itself alone"
        lease = only(helm.template(values, release), "ConfigMap")["data"]["settings.yaml"]
        name = yaml.safe_load(lease)["lease"]["name"]
        assert each["metadata"]["annotations"] == {LEASE_ANNOTATION: f"tandem-system/{name}"}
    return [(o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"]) for o in found]


@pytest.mark.parametrize("release", ["tandem", "other"])
def test_each_release_claims_what_it_serves_by_the_same_names(helm: Helm, release: str) -> None:
    """Helm installs no object that another release has: see tests/integration/test_chart.py."""
    assert claims(helm, {}, release) == [("ClusterRole", "", EVERYWHERE)]
    assert claims(helm, NAMESPACED, release) == [("Role", "team-a", HERE), ("Role", "team-b", HERE)]


# --- the notes ------------------------------------------------------------------------------------
def test_notes_claim_nothing_of_a_cluster_that_helm_did_not_see(helm: Helm) -> None:
    """A client-side dry run reads none; what they state of one is in tests/integration/test_chart.py."""
    assert not re.search("No node|There is no (StorageClass|KEDA|LeaderWorkerSet)", notes(helm, {}))


def test_notes_of_a_namespaced_release_state_where_figures_come_from(helm: Helm) -> None:
    assert "the operator reads the pods itself" in notes(helm, NAMESPACED)
    alone = {**NAMESPACED, "metricsServer": {"enabled": False}}
    assert "status shows no figures" in notes(helm, alone)
    assert only(helm.template(NAMESPACED), "Deployment")["metadata"]["name"] == "tandem-operator"
