"""The metrics server's objects: security, rights, and what each value changes."""

from typing import Any

import pytest

from tandem.metrics_server.custom_metrics import METRICS, METRICS_GROUP, METRICS_VERSION, RESOURCE
from tandem.settings import MetricsServerSettings

from .conftest import ALONE, CHART, NAMESPACED, Helm, Object, Values, kinds, notes, only

NAME = "tandem-metrics"


def objects(helm: Helm, **values: Any) -> list[Object]:
    """Its objects, and no others of the chart."""
    made = helm.template({"metricsServer": values} if values else {})
    return [o for o in made if o["metadata"]["labels"]["app.kubernetes.io/component"] == "metrics"]


def pod(helm: Helm, **values: Any) -> Object:
    spec: Object = only(objects(helm, **values), "Deployment")["spec"]["template"]["spec"]
    return spec


def test_it_is_what_the_rest_of_the_release_is_without_it(helm: Helm) -> None:
    assert sorted(kinds(helm.template(ALONE)) + kinds(objects(helm))) == kinds(helm.template())
    assert not [o for o in helm.template(NAMESPACED) if "metrics" in o["metadata"]["name"].split("-")[1:2]]


def test_names_that_the_server_is_told_are_those_of_its_objects(helm: Helm) -> None:
    defaults = MetricsServerSettings()
    assert only(objects(helm), "Service")["metadata"]["name"] == defaults.service
    role = only(objects(helm), "Role")
    assert role["rules"][0]["resourceNames"] == [defaults.secret]


def test_the_apiservice_is_of_the_group_that_it_serves_and_leads_to_it(helm: Helm) -> None:
    registered = only(objects(helm), "APIService")
    spec = registered["spec"]
    assert registered["metadata"]["name"] == f"{METRICS_VERSION}.{METRICS_GROUP}"
    assert (spec["group"], spec["version"]) == (METRICS_GROUP, METRICS_VERSION)
    assert spec["service"] == {"name": NAME, "namespace": "tandem-system", "port": 443}
    assert "caBundle" not in spec, "the server writes it; an upgrade must not take it away"
    assert "insecureSkipTLSVerify" not in spec


def test_the_service_leads_to_the_pods(helm: Helm) -> None:
    made = objects(helm)
    template = only(made, "Deployment")["spec"]["template"]
    assert only(made, "Service")["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    ports = {port["name"]: port["containerPort"] for port in template["spec"]["containers"][0]["ports"]}
    arguments = template["spec"]["containers"][0]["args"]
    assert f"--bind=:{ports['http']}" in arguments
    assert f"--secure-bind=:{ports['https']}" in arguments


def test_pod_security_restricted(helm: Helm) -> None:
    spec = pod(helm)
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    (tmp,) = [volume for volume in spec["volumes"] if volume["name"] == "tmp"]
    assert tmp["emptyDir"]["medium"] == "Memory", "keys touch no disk"


def test_what_prometheus_asks_for_is_mounted_for_its_own_user_alone(helm: Helm) -> None:
    def mounted(**values: Any) -> list[tuple[str, Object]]:
        spec = pod(helm, **values)
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        paths = [(mount["mountPath"], volumes[mount["name"]]) for mount in spec["containers"][0]["volumeMounts"]]
        return [(path, volume["secret"]) for path, volume in paths if "secret" in volume]

    assert mounted() == []
    (found,) = mounted(prometheus={"secretName": "reader", "bearerTokenFile": "token"})
    assert found == ("/etc/tandem-prometheus", {"secretName": "reader", "defaultMode": 0o440})
    assert "write secretName too" in helm.refusal({"metricsServer": {"prometheus": {"caFile": "ca.crt"}}})


def test_two_pods_on_two_nodes_one_at_a_time(helm: Helm) -> None:
    made = objects(helm)
    deployment = only(made, "Deployment")["spec"]
    assert deployment["replicas"] == 2
    assert only(made, "PodDisruptionBudget")["spec"]["selector"] == deployment["selector"]
    (spread,) = deployment["template"]["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"] == deployment["selector"]
    assert "PodDisruptionBudget" not in kinds(objects(helm, replicas=1)), "it would only stop drains"


def bindings(helm: Helm, **values: Any) -> set[tuple[str, str, str]]:
    """(role, namespace, account) of each binding."""
    return {
        (o["roleRef"]["name"], o["metadata"].get("namespace", ""), o["subjects"][0]["name"])
        for o in objects(helm, **values)
        if o["kind"].endswith("Binding")
    }


def test_who_has_which_role(helm: Helm) -> None:
    assert bindings(helm) == {
        (NAME, "", NAME),
        ("system:auth-delegator", "", NAME),
        ("extension-apiserver-authentication-reader", "kube-system", NAME),
        (f"{NAME}-secret", "tandem-system", NAME),
        (f"{NAME}-reader", "", "tandem-operator"),
        (f"{NAME}-hpa", "", "horizontal-pod-autoscaler"),
    }
    assert f"{NAME}-hpa" not in {role for role, _, _ in bindings(helm, register=False)}


def test_the_autoscaler_may_read_what_it_scales_by_alone(helm: Helm) -> None:
    (rule,) = only(objects(helm), "ClusterRole", f"{NAME}-hpa")["rules"]
    first = next(iter(METRICS))
    assert rule == {"apiGroups": [METRICS_GROUP], "resources": [f"{RESOURCE}/{first}"], "verbs": ["get"]}


def test_people_who_may_read_services_may_read_their_metrics(helm: Helm) -> None:
    def read(values: Values) -> list[list[str]]:
        rules = only(helm.template(values), "ClusterRole", "tandem-view")["rules"]
        return [rule["resources"] for rule in rules if METRICS_GROUP in rule["apiGroups"]]

    assert read({}) == [[f"{RESOURCE}/{metric}" for metric in METRICS]]
    assert read({"metricsServer": {"register": False}}) == [], "nobody serves them here"


def verbs(helm: Helm, resource: str, **values: Any) -> set[str]:
    roles = [o for o in objects(helm, **values) if o["kind"] in ("Role", "ClusterRole")]
    found = [rule for role in roles for rule in role["rules"] if resource in rule.get("resources", ())]
    return {verb for rule in found for verb in rule["verbs"]}


@pytest.mark.parametrize(
    ("certificate", "secrets", "apiservices"),
    [
        ({}, {"get", "create", "update"}, {"get", "patch"}),
        ({"secretName": "mine"}, {"get"}, {"get"}),
    ],
    ids=["its own certificate", "another's: nothing is written"],
)
def test_rights_follow_the_certificate(
    helm: Helm, certificate: Values, secrets: set[str], apiservices: set[str]
) -> None:
    assert verbs(helm, "secrets", certificate=certificate) == secrets
    assert verbs(helm, "apiservices", certificate=certificate) == apiservices


def test_an_administrators_annotations_reach_the_apiservice(helm: Helm) -> None:
    annotations = {"cert-manager.io/inject-ca-from": "tandem-system/mine"}
    certificate = {"secretName": "mine", "apiServiceAnnotations": annotations}
    assert only(objects(helm, certificate=certificate), "APIService")["metadata"]["annotations"] == annotations


def test_registering_is_optional_and_the_notes_say_what_that_means(helm: Helm) -> None:
    assert "APIService" not in kinds(objects(helm, register=False))
    assert "Embedded find no metrics" in notes(helm, {"metricsServer": {"register": False}})
    assert "There is no metrics server (it needs rights in the whole cluster)" in notes(helm, NAMESPACED)
    assert "There is no metrics server:" in notes(helm, ALONE)


def test_network_policy_and_monitor_come_with_the_operators(helm: Helm) -> None:
    values = {"networkPolicy": {"enabled": True}, "metrics": {"podMonitor": {"enabled": True}}}
    made = [o for o in helm.template(values) if o["metadata"]["name"] == NAME]
    selector = only(made, "Deployment")["spec"]["selector"]
    policy = only(made, "NetworkPolicy")["spec"]
    assert policy["podSelector"] == selector
    assert [rule["ports"][0]["port"] for rule in policy["ingress"]] == ["https", "http"]
    assert only(made, "PodMonitor")["spec"]["selector"] == selector


def test_the_chart_has_a_text_for_another_adapter() -> None:
    """Helm looks at the cluster only when it installs: see tests/integration/test_metrics_server.py."""
    text = (CHART / "templates" / "metrics-apiservice.yaml").read_text(encoding="utf-8")
    assert "metricsServer.register=false" in text
