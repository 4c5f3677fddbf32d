"""Autoscalers on the real API server and controller-manager: who decides the replicas, and who never does.

No metrics server answers here: what the autoscaler makes of figures is in test_metrics_server.py.
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from cluster.controlplane import HPA_SYNC_SECONDS
from cluster.core import Cluster
from cluster.errors import ClusterError
from support.admission import QUEUE
from support.services import autoscaling_cases, parse
from tandem import children
from tandem.autoscaling.horizontal import TO_ZERO
from tandem.settings import Settings

from .conftest import KEDA_CRD, SERVICE, AuditLog, Namespace, OperatorProcess, install_scaled_objects, quiet, wait_for
from .dry_run import dry_run

EMBEDDED = {"maxReplicas": 9}


@pytest.fixture
def without_keda(cluster: Cluster) -> Iterator[None]:
    """The definition of ScaledObjects is not installed."""
    cluster.kubectl.run("delete", "crd", KEDA_CRD)
    yield
    install_scaled_objects(cluster)


def version(cluster: Cluster) -> tuple[int, int]:
    """Of the API server."""
    shown = json.loads(cluster.kubectl.run("version", "-o", "json"))["serverVersion"]
    return int(shown["major"]), int(shown["minor"])


def replicas(namespace: Namespace) -> tuple[int, int]:
    """Of the service and of its Deployment."""
    deployments = namespace.items("deployments")
    return namespace.get("sis", "svc")["spec"]["replicas"], deployments[0]["spec"]["replicas"] if deployments else 0


def counted(namespace: Namespace) -> set[int]:
    """Replicas of any sort that the status tells."""
    status = namespace.get("sis", "svc")["status"]
    return {status[kind] for kind in ("replicas", "readyReplicas", "updatedReplicas")}


def test_replicas_are_kept_until_somebody_decides(
    cluster: Cluster, operator: OperatorProcess, namespace: Namespace
) -> None:
    """Switched on at 8, without figures, scaled by hand, switched off: nobody but people changes the number."""
    namespace.apply()
    namespace.run("scale", "sis", "svc", "--replicas=8")
    wait_for("the Deployment to follow", lambda: replicas(namespace) == (8, 8))
    namespace.wait("Ready", "True")
    namespace.apply(autoscaling=EMBEDDED)
    hpa = wait_for("the autoscaler", lambda: namespace.get("hpa", "svc-server"), log=operator.log)
    assert hpa["spec"]["metrics"][0]["object"]["metric"]["name"] == "tandem_replicas_needed"
    namespace.wait("ScalingActive", "False/FailedGetObjectMetric")
    assert "replicas stay as they are" in namespace.message("ScalingActive")
    assert replicas(namespace) == (8, 8), "kubectl apply without replicas leaves what is there"
    assert namespace.conditions()["Ready"] == "True/ServersAnswer", "it has no say in Ready"

    namespace.run("scale", "sis", "svc", "--replicas=5")
    wait_for("the Deployment to follow", lambda: replicas(namespace) == (5, 5))
    namespace.wait("Ready", "True")
    wait_for("the status to tell of it", lambda: counted(namespace) == {5}, log=operator.log)
    audit = quiet(cluster, namespace)
    time.sleep(4 * HPA_SYNC_SECONDS)  # looks of the autoscaler, which writes its status each time
    assert replicas(namespace) == (5, 5), "a person's number is not fought over"
    assert audit.operator_writes(namespace) == [], "nor does its counting make writes"

    namespace.apply(autoscaling=None)
    wait_for("the autoscaler to go", lambda: not namespace.get("hpa", "svc-server"), log=operator.log)
    assert replicas(namespace) == (5, 5)
    assert "ScalingActive" not in namespace.conditions()


def test_an_autoscaler_edited_or_deleted_by_hand_comes_back(operator: OperatorProcess, namespace: Namespace) -> None:
    namespace.apply(autoscaling=EMBEDDED)
    wait_for("the autoscaler", lambda: namespace.get("hpa", "svc-server"), log=operator.log)
    namespace.run("patch", "hpa", "svc-server", "--type=merge", "-p", '{"spec":{"maxReplicas":99}}')
    wait_for("its bound", lambda: namespace.get("hpa", "svc-server")["spec"]["maxReplicas"] == 9, log=operator.log)
    before = namespace.get("hpa", "svc-server")["spec"]
    behavior = '{"spec":{"behavior":{"scaleDown":{"selectPolicy":"Disabled"}}}}'
    namespace.run("patch", "hpa", "svc-server", "--type=merge", "-p", behavior)
    wait_for("what was added to go", lambda: namespace.get("hpa", "svc-server")["spec"] == before, log=operator.log)
    namespace.run("delete", "hpa", "svc-server")
    wait_for("it to come back", lambda: namespace.get("hpa", "svc-server"), log=operator.log)


def test_a_behavior_that_is_none_is_told_with_the_api_servers_words(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    namespace.apply(autoscaling={**EMBEDDED, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 99999}}})
    namespace.wait("ScalingActive", "False/ApplyRefused")
    assert "stabilizationWindowSeconds" in namespace.message("ScalingActive")
    namespace.wait("Ready", "True")


def test_keda_that_has_nobody_to_ask_is_told(operator: OperatorProcess, namespace: Namespace) -> None:
    namespace.apply(autoscaling={**EMBEDDED, "source": "KEDA"})
    namespace.wait("ScalingActive", "False/NoMetricsServer")
    namespace.wait("Ready", "True")


def test_one_autoscaler_takes_the_others_place(
    cluster: Cluster, namespace: Namespace, operator_with_server: OperatorProcess
) -> None:
    namespace.apply(autoscaling={**EMBEDDED, "source": "KEDA"})
    wait_for("the ScaledObject", lambda: namespace.get("scaledobject", "svc-server"), log=operator_with_server.log)
    audit = AuditLog(cluster.audit_log)
    namespace.apply(autoscaling={**EMBEDDED, "source": "Embedded"})
    wait_for("the HPA", lambda: namespace.get("hpa", "svc-server"), log=operator_with_server.log)
    assert not namespace.get("scaledobject", "svc-server")
    writes = [w for w in audit.operator_writes(namespace) if "autoscalers" in w or "scaledobjects" in w]
    assert writes == ["delete scaledobjects//svc-server", "patch horizontalpodautoscalers//svc-server"]


def test_keda_that_is_not_installed_is_told(
    without_keda: None, namespace: Namespace, operator_with_server: OperatorProcess
) -> None:
    namespace.apply(autoscaling={**EMBEDDED, "source": "KEDA"})
    namespace.wait("ScalingActive", "False/ScaledObjectMissing")
    assert "install https://keda.sh, or write source: Embedded" in namespace.message("ScalingActive")
    namespace.wait("Ready", "True")
    assert "Stalled" not in namespace.conditions()


@pytest.fixture
def operator_with_server(operator_with: Callable[..., OperatorProcess]) -> OperatorProcess:
    """The operator, with the address of a metrics server (which does not answer)."""
    return operator_with(reports={"url": "http://127.0.0.1:9"})


@pytest.mark.parametrize("case", autoscaling_cases(), ids=[case["case"] for case in autoscaling_cases()])
def test_every_autoscaler_is_as_its_definition_says(case: dict[str, Any], untouched: Namespace) -> None:
    raw = yaml.safe_load(SERVICE)
    raw["metadata"] |= {"namespace": untouched.name}
    service = parse(json.dumps(raw), autoscaling=case["autoscaling"])
    made = children.autoscaler(service, Settings.model_validate(case.get("settings", {})))
    assert made is not None
    if made["spec"].get("minReplicas") == 0 and version(untouched.cluster) < TO_ZERO:
        with pytest.raises(ClusterError, match="minReplicas"):
            dry_run(untouched, made)
    else:
        dry_run(untouched, made)


def test_zero_needs_a_kubernetes_whose_autoscaler_scales_to_it(
    cluster: Cluster, operator: OperatorProcess, namespace: Namespace
) -> None:
    namespace.apply(autoscaling={"minReplicas": 0, "maxReplicas": 9, "metrics": [QUEUE]})
    if version(cluster) >= TO_ZERO:
        hpa = wait_for("the autoscaler", lambda: namespace.get("hpa", "svc-server"), log=operator.log)
        assert hpa["spec"]["minReplicas"] == 0
        namespace.wait("ScalingActive", "False/FailedGetObjectMetric")
    else:
        namespace.wait("SpecAccepted", "False/KubernetesTooOld")
        assert "needs Kubernetes 1.37 or newer" in namespace.message("SpecAccepted")
