"""An engine that fails, by what the kubelet says of its pod: a condition, and once an Event and a count."""

import json
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from .conftest import AuditLog, Namespace, OperatorProcess, wait_for

ERROR = "[TensorRT-LLM][ERROR] CUDA runtime error: an illegal memory access was encountered"
SAID = json.dumps({"engineFailure": {"model": "tensorrt_llm", "reason": "EngineFailing", "message": ERROR}})
HEALTHY_SECONDS = 600


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def fail_engine(namespace: Namespace, seconds_ago: float, container: str = "containerd://first") -> str:
    """The pod of `svc` as after a failure of its engine: its container ended, and runs again since then. Its name."""
    (name,) = namespace.server_pods()
    status = next(
        each for each in namespace.get("pod", name)["status"]["containerStatuses"] if each["name"] == "triton"
    )
    end = {"exitCode": 1, "reason": "Error", "message": SAID, "containerID": container}
    proxy = {**status, "name": "istio-proxy", "lastState": {"terminated": {**end, "message": "no pilot"}}}
    ours = {
        "state": {"running": {"startedAt": ago(seconds_ago)}},
        "lastState": {"terminated": end | {"startedAt": ago(seconds_ago + 60), "finishedAt": ago(seconds_ago)}},
        "restartCount": status["restartCount"] + 1,
    }
    statuses = [proxy, {**status, "started": True, **ours}]
    patch = json.dumps({"status": {"containerStatuses": statuses}})
    namespace.run("patch", "pod", name, "--subresource=status", "--type=merge", "-p", patch)
    return name


def counted(operator: OperatorProcess, namespace: Namespace) -> float:
    """`tandem_engine_failures_total` of the namespace, as the operator tells it."""
    with urllib.request.urlopen(f"http://127.0.0.1:{operator.port}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    wanted = f'tandem_engine_failures_total{{namespace="{namespace.name}",'
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(wanted))


def condition(namespace: Namespace) -> dict[str, Any] | None:
    conditions = namespace.get("sis", "svc")["status"]["conditions"]
    return next((c for c in conditions if c["type"] == "EngineHealthy"), None)


def failed(namespace: Namespace) -> list[str]:
    return [reason for reason in namespace.events() if reason == "EngineFailed"]


def test_a_failure_is_told_once_whoever_looks(
    operator: OperatorProcess, namespace: Namespace, audit: Callable[[], AuditLog]
) -> None:
    namespace.apply()
    namespace.wait_settled()
    assert condition(namespace) is None
    pod = fail_engine(namespace, 5)
    namespace.wait("EngineHealthy", "False/EngineFailing")
    assert ERROR in namespace.message("EngineHealthy")
    assert pod in namespace.message("EngineHealthy")
    assert namespace.conditions()["Ready"] == "True/ServersAnswer", "Ready follows the pods' readiness"
    wait_for("the Event", lambda: failed(namespace))
    wait_for("the count", lambda: counted(operator, namespace) == 1)

    shown = condition(namespace)
    operator.kill()
    listening = audit()
    operator.start().wait_ready()
    namespace.run("annotate", "sis", "svc", "note=1")
    namespace.run("delete", "serviceaccount", "svc-server")
    wait_for("the operator to have looked at it", lambda: namespace.get("serviceaccount", "svc-server"))
    assert condition(namespace) == shown
    assert failed(namespace) == ["EngineFailed"]
    assert counted(operator, namespace) == 0, "it was counted by the process before"
    writes = [w.rpartition("/")[0] for w in listening.operator_writes(namespace) if "serviceaccounts" not in w]
    assert writes == ["create events/"], "it learns by trying that the Event is there"

    fail_engine(namespace, 0, "containerd://second")
    wait_for("the next failure", lambda: failed(namespace) == ["EngineFailed"] * 2)
    wait_for("its count", lambda: counted(operator, namespace) == 1)


def test_time_alone_ends_it(operator: OperatorProcess, namespace: Namespace) -> None:
    namespace.apply()
    namespace.wait_settled()
    fail_engine(namespace, HEALTHY_SECONDS - 45)
    namespace.wait("EngineHealthy", "False")
    wait_for("the condition to go", lambda: condition(namespace) is None, log=operator.log)
    assert failed(namespace) == ["EngineFailed"]


def test_what_failed_long_ago_is_none_of_a_new_operator_s_news(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    namespace.apply()
    namespace.wait_settled()
    operator.kill()
    fail_engine(namespace, 3600)
    operator.start().wait_ready()
    namespace.run("delete", "serviceaccount", "svc-server")
    wait_for("the operator to have looked at it", lambda: namespace.get("serviceaccount", "svc-server"))
    assert condition(namespace) is None
    assert failed(namespace) == []
    assert counted(operator, namespace) == 0
