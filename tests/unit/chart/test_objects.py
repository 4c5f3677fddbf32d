"""The objects that the chart makes: goldens, rights, security, and what each value changes."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import tandem
from support import images
from tandem.api.types import SpeculativeInferenceService
from tandem.cluster.kinds import CHILDREN, OPTIONAL, Kind

from .conftest import ALONE, CHART, NAMESPACED, Helm, Object, Values, kinds, notes, only

GOLDENS = Path(__file__).parent / "goldens"
CRD_FILE = CHART.parents[1] / "crds" / "speculativeinferenceservices.yaml"
CRD = "CustomResourceDefinition"


@pytest.mark.parametrize(("name", "values"), [("default", {}), ("namespaced", NAMESPACED)], ids=lambda v: str(v)[:20])
def test_golden(helm: Helm, name: str, values: Values) -> None:
    """Without the CustomResourceDefinition, which is compared with its source below."""
    objects = [found for found in helm.template(values) if found["kind"] != CRD]
    text = yaml.safe_dump_all(objects, sort_keys=False, width=110)
    golden = GOLDENS / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDENS"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8"), "run `make goldens` and read the difference"


def test_helm_lint_has_nothing_to_say(helm: Helm) -> None:
    done = helm.run("lint", "--strict", str(CHART), values={})
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


# --- the CustomResourceDefinition -----------------------------------------------------------------
def test_the_crd_is_the_one_of_the_repository() -> None:
    assert (CHART / "files" / "crd.yaml").read_bytes() == CRD_FILE.read_bytes(), "run `make generate`"


@pytest.mark.parametrize(
    ("crds", "annotations"),
    [
        ({}, {"helm.sh/resource-policy": "keep"}),
        ({"keep": False}, None),
    ],
    ids=["kept at uninstall by default", "deleted with the release when asked for"],
)
def test_the_crd_is_rendered_unchanged(helm: Helm, crds: Values, annotations: Any) -> None:
    rendered = only(helm.template({"crds": crds}), CRD)
    metadata = rendered.pop("metadata")
    source = yaml.safe_load(CRD_FILE.read_text(encoding="utf-8"))
    assert metadata["name"] == source.pop("metadata")["name"]
    assert metadata.get("annotations") == annotations
    assert rendered == source


def test_the_crd_can_be_left_out(helm: Helm) -> None:
    assert CRD not in kinds(helm.template({"crds": {"install": False}}))


OPERATOR = images.NEEDED["image"]["repository"]


# --- rights ---------------------------------------------------------------------------------------
def rules(objects: list[Object]) -> list[dict[str, list[str]]]:
    return [rule for found in objects for rule in found.get("rules", []) if "Role" in found["kind"]]


@pytest.mark.parametrize("values", [{}, NAMESPACED], ids=["cluster-wide", "namespaced"])
def test_no_right_is_a_wildcard_or_reads_secrets(helm: Helm, values: Values) -> None:
    for rule in rules(helm.template(values)):
        if "nonResourceURLs" in rule:
            assert rule["verbs"] == ["get"]
            continue
        words = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
        if "secrets" in rule["resources"]:
            verbs = ["get", "update"] if rule.get("resourceNames") == ["tandem-metrics-certificate"] else ["create"]
            assert (rule["resources"], rule["verbs"]) == (["secrets"], verbs), "made, and none but its own read"
            continue
        assert not words & {"*", "escalate", "bind", "impersonate", "pods/exec"}, rule


def test_the_readme_lists_every_right_of_the_operator(helm: Helm) -> None:
    text = (CHART / "README.md").read_text(encoding="utf-8")
    table = text.partition("| resource | verbs | what for |\n")[2].partition("\n\n")[0].splitlines()[1:]
    rows = [[cell.strip().split(", ") for cell in row.split("|")[1:3]] for row in table]
    listed = {resource: verbs for resources, verbs in rows for resource in resources}
    role = only(helm.template(), "ClusterRole", "tandem-operator")
    granted = {resource: rule["verbs"] for rule in role["rules"] for resource in rule["resources"]}
    assert listed == granted, "write the rights that differ in charts/tandem/README.md"


@pytest.mark.parametrize("kind", [*CHILDREN, *OPTIONAL], ids=lambda kind: kind.kind)
def test_the_operator_may_take_up_each_kind_of_child(helm: Helm, kind: Kind) -> None:
    """OpenShift's admission (OwnerReferencesPermissionEnforcement) asks who sets an owner for the right to delete."""
    role = only(helm.template(), "ClusterRole", "tandem-operator")
    group, _ = kind.group_version
    (rule,) = [r for r in role["rules"] if kind.plural in r["resources"] and group in r["apiGroups"]]
    assert rule["verbs"] == ["get", "list", "watch", "create", "patch", "delete"]


def test_namespaced_has_the_same_rights_in_those_namespaces_and_no_cluster_role(helm: Helm) -> None:
    everywhere = only(helm.template(), "ClusterRole", "tandem-operator")
    objects = helm.template(NAMESPACED)
    assert not {"ClusterRole", "ClusterRoleBinding"} & set(kinds(objects))
    for kind in ("Role", "RoleBinding"):
        found = [o for o in objects if o["kind"] == kind and o["metadata"]["name"] == "tandem-operator"]
        assert [o["metadata"]["namespace"] for o in found] == ["team-a", "team-b"]
        assert kind == "RoleBinding" or [o["rules"] for o in found] == [everywhere["rules"]] * 2


@pytest.mark.parametrize("values", [ALONE, NAMESPACED], ids=["cluster-wide", "namespaced"])
def test_each_binding_names_the_operators_account_and_a_role_that_exists(helm: Helm, values: Values) -> None:
    objects = helm.template(values)
    account = only(objects, "ServiceAccount")["metadata"]
    roles = {(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects}
    bindings = [o for o in objects if o["kind"].endswith("Binding")]
    assert bindings
    for binding in bindings:
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
        ]
        ref = binding["roleRef"]
        assert (ref["kind"], binding["metadata"].get("namespace"), ref["name"]) in roles


def test_user_roles_are_optional(helm: Helm) -> None:
    names = {o["metadata"]["name"] for o in helm.template() if o["kind"] == "ClusterRole"}
    without = {o["metadata"]["name"] for o in helm.template({"userRoles": False}) if o["kind"] == "ClusterRole"}
    assert names - without == {"tandem-view", "tandem-edit"}


# --- the Deployment -------------------------------------------------------------------------------
def pod(helm: Helm, values: Values | None = None, deployment: str = "tandem-operator") -> Object:
    template: Object = only(helm.template(values), "Deployment", deployment)["spec"]["template"]
    return template


def container(helm: Helm, values: Values | None = None) -> Object:
    (found,) = pod(helm, values)["spec"]["containers"]
    return dict(found)


def test_a_changed_setting_starts_new_pods_and_nothing_else_does(helm: Helm) -> None:
    before = pod(helm)
    assert pod(helm, {"workers": 3})["metadata"] != before["metadata"]
    assert pod(helm, {"replicas": 2, "userRoles": False}) == before


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ({}, f"{OPERATOR}:{tandem.__version__}"),
        ({"tag": "v9"}, f"{OPERATOR}:v9"),
        ({"repository": "registry.example.com:5000/op"}, f"registry.example.com:5000/op:{tandem.__version__}"),
        ({"tag": "v9", "digest": f"sha256:{'a' * 64}"}, f"{OPERATOR}@sha256:{'a' * 64}"),
    ],
    ids=["the chart's version", "a tag", "another registry", "a digest wins"],
)
def test_image(helm: Helm, image: Values, expected: str) -> None:
    assert container(helm, {"image": image})["image"] == expected


@pytest.mark.parametrize(
    ("values", "path", "expected"),
    [
        ({"nodeSelector": {"a": "b"}}, "nodeSelector", {"a": "b"}),
        ({"tolerations": [{"operator": "Exists"}]}, "tolerations", [{"operator": "Exists"}]),
        ({"affinity": {"podAffinity": {}}}, "affinity", {"podAffinity": {}}),
        ({"priorityClassName": "system-cluster-critical"}, "priorityClassName", "system-cluster-critical"),
        ({"imagePullSecrets": [{"name": "pull"}]}, "imagePullSecrets", [{"name": "pull"}]),
    ],
    ids=lambda v: next(iter(v)) if isinstance(v, dict) else "",
)
@pytest.mark.parametrize("deployment", ["tandem-operator", "tandem-metrics"])
def test_placement_reaches_the_pods(helm: Helm, deployment: str, values: Values, path: str, expected: Any) -> None:
    assert path not in pod(helm, deployment=deployment)["spec"], "absent by default"
    assert pod(helm, values, deployment)["spec"][path] == expected


def test_container_values(helm: Helm) -> None:
    changed = container(helm, {"logFormat": "text", "logLevel": "debug", "image": {"pullPolicy": "Always"}})
    assert {"--log-format=text", "--log-level=debug"} < set(changed["args"])
    assert changed["imagePullPolicy"] == "Always"
    resources = {"limits": {"memory": "1Gi"}}
    assert container(helm, {"resources": resources})["resources"]["limits"] == {"memory": "1Gi"}


def test_further_labels_do_not_break_the_selector(helm: Helm) -> None:
    values = {"podLabels": {"team": "x", "app.kubernetes.io/name": "y"}, "podAnnotations": {"note": "1"}}
    deployment = only(helm.template(values), "Deployment", "tandem-operator")["spec"]
    metadata = deployment["template"]["metadata"]
    assert deployment["selector"]["matchLabels"].items() <= metadata["labels"].items()
    assert metadata["labels"]["team"] == "x"
    assert metadata["annotations"]["note"] == "1"


def test_maps_and_lists_that_another_values_file_takes_back(helm: Helm) -> None:
    """Helm leaves out what is null; these are empty without it too."""
    nothing = ("podLabels", "podAnnotations", "nodeSelector", "tolerations", "affinity", "imagePullSecrets")
    assert helm.template(dict.fromkeys(nothing)) == helm.template()


# --- around it ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("values", "added"),
    [
        ({"replicas": 1}, []),
        ({"replicas": 2}, ["PodDisruptionBudget"]),
        ({"networkPolicy": {"enabled": True}}, ["NetworkPolicy"]),
        ({"metrics": {"podMonitor": {"enabled": True, "labels": {"a": "b"}}}}, ["PodMonitor"]),
    ],
    ids=["a budget for one pod would only stop drains", "two replicas", "policy", "monitor"],
)
def test_optional_objects(helm: Helm, values: Values, added: list[str]) -> None:
    objects = helm.template({**ALONE, **values})
    assert sorted([*kinds(helm.template(ALONE)), *added]) == kinds(objects)
    for kind in added:
        selector = only(objects, kind)["spec"].get("selector") or only(objects, kind)["spec"]["podSelector"]
        assert selector == only(objects, "Deployment", "tandem-operator")["spec"]["selector"]


def test_network_policy_peers(helm: Helm) -> None:
    peers = [{"namespaceSelector": {"matchLabels": {"a": "b"}}}]
    policy = only(helm.template({**ALONE, "networkPolicy": {"enabled": True, "from": peers}}), "NetworkPolicy")
    assert policy["spec"]["ingress"] == [{"ports": [{"port": "http", "protocol": "TCP"}], "from": peers}]


def test_metrics_service_is_optional(helm: Helm) -> None:
    assert "Service" in kinds(helm.template(ALONE))
    assert "Service" not in kinds(helm.template({**ALONE, "metrics": {"service": False}}))


@pytest.mark.parametrize(
    ("release", "name"),
    [
        ("tandem", "tandem-operator"),
        ("prod", "prod-tandem-operator"),
        ("r" * 53, "r" * 45 + "-operator"),
        ("team.prod", "team-prod-tandem-operator"),
        ("2nd", "tandem-2nd-operator"),
        ("42", "tandem-42-operator"),
    ],
    ids=[
        "release named as the chart",
        "another",
        "the longest that Helm allows",
        "dots",
        "a digit first",
        "a number",
    ],
)
def test_names(helm: Helm, release: str, name: str) -> None:
    objects = helm.template(release=release)
    assert only(objects, "Deployment", name)
    assert all(len(o["metadata"]["name"]) <= 63 for o in objects)
    for service in (o["metadata"]["name"] for o in objects if o["kind"] == "Service"):
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", service), "DNS-1035, unlike the names of other objects"


def test_names_that_look_like_numbers_stay_names(helm: Helm) -> None:
    """Kubernetes takes them; YAML would make numbers of them, which the API server refuses."""
    everywhere = {
        "metricsServer": {"certificate": {"secretName": "1"}, "prometheus": {"secretName": "2", "caFile": "3"}},
        "keda": {"enabled": True, "namespace": "4", "operatorServiceAccount": "5", "prometheusUrl": "http://p"}
        | {"prometheus": {"secretName": "6", "parameters": {"bearerToken": "7"}}},
        "lease": {"name": "8"},
        "priorityClassName": "9",
    }
    named = {"name", "namespace", "secretName", "priorityClassName", "resourceNames", "app.kubernetes.io/instance"}

    def numbers(value: Any, key: str = "") -> Iterator[str]:
        if isinstance(value, dict):
            for inner, each in value.items():
                yield from numbers(each, inner)
        elif isinstance(value, list):
            for each in value:
                yield from numbers(each, key)
        elif key in named and not isinstance(value, str):
            yield f"{key}: {value}"

    for values in (everywhere, {"namespaces": ["10"]}):
        assert not [found for o in helm.template(values, "42") for found in numbers(o)]


def test_notes_show_a_service_that_the_api_takes(helm: Helm) -> None:
    manifest = yaml.safe_load(notes(helm, {}).split("<<'EOF'\n")[1].split("\nEOF\n")[0])
    assert SpeculativeInferenceService.model_validate(manifest).name == "quickstart"


@pytest.mark.parametrize(
    ("values", "said", "unsaid"),
    [
        ({}, "kubectl delete sis --all -A --cascade=foreground", "deletes ALL"),
        (NAMESPACED, "kubectl -n team-b delete sis --all --cascade=foreground", "-A"),
        (NAMESPACED, "kubectl -n team-b delete pvc -l app.kubernetes.io/managed-by=tandem", "-A"),
        (NAMESPACED, "kubectl -n team-a apply", "delete crd"),
        ({"crds": {"keep": False}}, "`helm uninstall` deletes ALL services", "To remove all"),
        ({"crds": {"install": False}}, "it waits until somebody has applied", "deletes ALL"),
        (
            {"metricsServer": {"certificate": {"secretName": "mine"}}, "keda": {"enabled": True}},
            "trusts ca.crt of the Secret mine",
            "tandem-metrics-certificate",
        ),
    ],
    ids=[
        *(
            "all namespaces",
            "never others' services",
            "nor their caches",
            "nor their resource",
            "keep is off",
            "no resource yet",
        ),
        "a certificate of the administrator's",
    ],
)
def test_notes_fit_the_values(helm: Helm, values: Values, said: str, unsaid: str) -> None:
    text = notes(helm, values)
    assert said in text
    assert unsaid not in text
