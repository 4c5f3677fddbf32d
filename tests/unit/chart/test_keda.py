"""What the chart makes for KEDA: an account that reads reports, and credentials for a Prometheus."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from support.services import QUICKSTART, parse
from tandem import children
from tandem.metrics_server.authentication import AUDIENCE
from tandem.settings import load_settings

from .conftest import Helm, Values, kinds, notes, only


def test_the_notes_tell_what_only_kedas_own_values_can_say(helm: Helm) -> None:
    said = notes(helm, {"keda": {"enabled": True, "namespace": "scaler"}})
    assert AUDIENCE in said
    assert "scaler/tandem-metrics-keda" in said
    assert AUDIENCE not in notes(helm, {})


def test_keda_gets_an_account_that_reads_reports_alone(helm: Helm) -> None:
    kinds_of_keda = set(kinds(helm.template({"keda": {"enabled": True}}))) - set(kinds(helm.template()))
    assert kinds_of_keda == {"ClusterTriggerAuthentication"}
    objects = helm.template({"keda": {"enabled": True, "namespace": "scaler", "operatorServiceAccount": "op"}})
    trigger = only(objects, "ClusterTriggerAuthentication")
    account = only(objects, "ServiceAccount", "tandem-metrics-keda")["metadata"]
    assert trigger["spec"]["boundServiceAccountToken"] == [
        {"parameter": "token", "serviceAccountName": account["name"]}
    ]
    assert account["namespace"] == "scaler"
    reader = only(objects, "ClusterRoleBinding", "tandem-metrics-keda")
    assert reader["roleRef"]["name"] == "tandem-metrics-reader"
    (rule,) = only(objects, "Role", "tandem-metrics-keda")["rules"]
    assert (rule["resources"], rule["resourceNames"]) == (["serviceaccounts/token"], [account["name"]])
    (maker,) = only(objects, "RoleBinding", "tandem-metrics-keda")["subjects"]
    assert (maker["name"], maker["namespace"]) == ("op", "scaler")
    settings = yaml.safe_load(only(objects, "ConfigMap")["data"]["settings.yaml"])
    assert settings["keda"]["authentication"] == trigger["metadata"]["name"]


def test_the_operator_knows_the_metrics_server_and_its_authority(helm: Helm) -> None:
    objects = helm.template()
    settings = yaml.safe_load(only(objects, "ConfigMap")["data"]["settings.yaml"])
    service = only(objects, "Service", "tandem-metrics")["metadata"]
    assert settings["reports"]["url"] == f"https://{service['name']}.{service['namespace']}.svc"
    spec = only(objects, "Deployment", "tandem-operator")["spec"]["template"]["spec"]
    (mount,) = [m for m in spec["containers"][0]["volumeMounts"] if m["name"] == "metrics-server"]
    (volume,) = [v for v in spec["volumes"] if v["name"] == "metrics-server"]
    assert settings["reports"]["caFile"] == f"{mount['mountPath']}/ca.crt"
    secret, token = volume["projected"]["sources"]
    assert secret["secret"]["name"] == settings["metricsServer"]["secret"]
    assert secret["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}], "not its key"
    assert secret["secret"]["optional"] is True
    assert settings["reports"]["tokenFile"] == f"{mount['mountPath']}/{token['serviceAccountToken']['path']}"
    assert token["serviceAccountToken"]["audience"] == AUDIENCE, "the operator's own would open the API server"
    without = helm.template({"metricsServer": {"enabled": False}})
    assert "reports" not in yaml.safe_load(only(without, "ConfigMap")["data"]["settings.yaml"])


PROMETHEUS = "https://mimir.monitoring.svc/prometheus"


def keda_asks(**prometheus: Any) -> Values:
    return {"keda": {"prometheusUrl": PROMETHEUS, "prometheus": prometheus}}


def test_keda_gets_the_prometheus_credentials_by_reference(helm: Helm) -> None:
    keys = {"bearerToken": "token", "ca": "ca.crt"}
    made = only(helm.template(keda_asks(secretName="reader", parameters=keys)), "ClusterTriggerAuthentication")
    assert made["metadata"]["name"] == "tandem-metrics-prometheus"
    assert made["spec"] == {
        "secretTargetRef": [
            {"parameter": "bearerToken", "name": "reader", "key": "token"},
            {"parameter": "ca", "name": "reader", "key": "ca.crt"},
        ]
    }
    both = helm.template({"keda": {**keda_asks(secretName="reader", parameters=keys)["keda"], "enabled": True}})
    names = [o["metadata"]["name"] for o in both if o["kind"] == "ClusterTriggerAuthentication"]
    assert names == ["tandem-metrics", "tandem-metrics-prometheus"]


def test_services_use_them(helm: Helm, tmp_path: Path) -> None:
    """From the chart's values to the ScaledObject's trigger."""
    objects = helm.template(keda_asks(secretName="reader", parameters={"username": "name", "password": "password"}))
    file = tmp_path / "settings.yaml"
    file.write_text(only(objects, "ConfigMap")["data"]["settings.yaml"], encoding="utf-8")
    service = parse(QUICKSTART, autoscaling={"maxReplicas": 4, "source": "KEDA"})
    scaled = children.autoscaler(service, load_settings(file))
    assert scaled is not None
    (trigger,) = scaled["spec"]["triggers"]
    assert trigger["metadata"]["authModes"] == "basic"
    authentication = only(objects, "ClusterTriggerAuthentication")
    assert trigger["authenticationRef"] == {
        "name": authentication["metadata"]["name"],
        "kind": authentication["kind"],
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"keda": {"prometheus": {"secretName": "s", "parameters": {"bearerToken": "t"}}}}, "keda.prometheusUrl"),
        (keda_asks(secretName="s"), "secretName and parameters (its keys) go together"),
        (keda_asks(parameters={"bearerToken": "t"}), "secretName and parameters (its keys) go together"),
        (keda_asks(secretName="s", parameters={"ca": "ca.crt"}), "put it into KEDA's own /custom/ca"),
        (keda_asks(secretName="s", parameters={"bearerToken": "t", "username": "u"}), "not both"),
    ],
    ids=["no Prometheus", "a Secret without keys", "keys of no Secret", "an authority alone", "two who ask"],
)
def test_credentials_that_keda_would_not_use_are_refused(helm: Helm, values: Values, message: str) -> None:
    assert message in helm.refusal(values)
