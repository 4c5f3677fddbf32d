"""What the real API server refuses, with the words that the user sees: each says what to write instead."""

import json
from typing import Any

import pytest

from cluster.errors import ClusterError
from support.admission import CPU, CRON, METADATA, NONE_TYPE, QUEUE, ROWS, SCALARS, with_metadata
from tandem.cli.documents import documents

from .conftest import SERVICE, Namespace, edited


@pytest.mark.parametrize(("change", "message", "reason"), ROWS, ids=[row[2] for row in ROWS])
def test_refused(untouched: Namespace, change: dict[str, Any], message: str, reason: str) -> None:
    with pytest.raises(ClusterError) as refused:
        untouched.apply(**change)
    assert message in str(refused.value), reason
    assert untouched.items("sis") == [], "nothing is kept of a refused resource"


@pytest.mark.parametrize("name", ["a" * 41, "0abc", "with.dot"])
def test_refused_names(untouched: Namespace, name: str) -> None:
    raw = edited(SERVICE)
    raw["metadata"]["name"] = name
    with pytest.raises(ClusterError) as refused:
        untouched.run("apply", "-f", "-", stdin=json.dumps(raw))
    assert "DNS-1035 label of at most 40 characters" in str(refused.value)


@pytest.mark.parametrize(("metadata", "path", "reason"), METADATA, ids=[row[2] for row in METADATA])
def test_refused_metadata(untouched: Namespace, metadata: str, path: str, reason: str) -> None:
    with pytest.raises(ClusterError) as refused:
        untouched.run("create", "-f", "-", stdin=with_metadata(SERVICE, metadata))
    assert path in str(refused.value), reason


def test_scalars_are_read_as_kubectl_reads_them(namespace: Namespace) -> None:
    lines = "".join(f"      {line}\n" for line in SCALARS.strip().splitlines())
    service = SERVICE.replace(
        "{mode: BLS, profile: reference}", f"\n    mode: LLMAPI\n    profile: p\n    extraLlmArgs:\n{lines}"
    )
    namespace.run("apply", "-f", "-", stdin=service)
    stored = namespace.get("sis", "svc")["spec"]["runtime"]["extraLlmArgs"]
    (ours,) = documents(SCALARS)
    assert json.dumps(ours, sort_keys=True) == json.dumps(stored, sort_keys=True)


ACCEPTED: list[tuple[dict[str, Any], str]] = [
    ({"maxReplicas": 1}, "one replica is a range too"),
    ({"minReplicas": 0, "maxReplicas": 2, "source": "KEDA", "keda": {"triggers": [CRON]}}, "zero with a trigger"),
    (
        {"maxReplicas": 2, "source": "KEDA", "keda": {"idleReplicaCount": 0, "triggers": [CRON]}},
        "idle at zero with a trigger",
    ),
    (
        {"minReplicas": 0, "maxReplicas": 2, "source": "KEDA", "keda": {"triggers": [CPU, CRON]}},
        "zero with a trigger beside cpu",
    ),
    ({"maxReplicas": 2, "source": "KEDA", "keda": {"triggers": [CPU]}}, "cpu alone, not to zero"),
    ({"minReplicas": 0, "maxReplicas": 2, "metrics": [QUEUE]}, "zero with a metric of one's own"),
    ({"maxReplicas": 2, "objectives": {"timeToFirstToken": "0.5s", "queueLength": 4}}, "half a second"),
]


@pytest.mark.parametrize(("autoscaling", "reason"), ACCEPTED, ids=[row[1] for row in ACCEPTED])
def test_accepted_autoscaling(namespace: Namespace, autoscaling: dict[str, Any], reason: str) -> None:
    namespace.apply(autoscaling=autoscaling)
    assert namespace.get("sis", "svc")["spec"]["autoscaling"]["maxReplicas"] == autoscaling["maxReplicas"], reason


def test_a_fraction_of_a_second_in_line_is_accepted(namespace: Namespace) -> None:
    namespace.apply(serving={"queueTimeoutSeconds": 0.9, "requestTimeoutSeconds": 1})
    assert namespace.get("sis", "svc")["spec"]["serving"]["queueTimeoutSeconds"] == 0.9


def test_defaults_are_written_by_the_api_server(namespace: Namespace) -> None:
    namespace.apply(draft=None, speculation=NONE_TYPE)
    spec = namespace.get("sis", "svc")["spec"]
    assert spec["replicas"] == 1
    assert spec["speculation"]["maxDraftLen"] == 4
    assert spec["speculation"]["adaptive"] == {"enabled": True, "minDraftLen": 0, "probeShare": 0}
    openai = {"enabled": True, "maxBodyMiB": 4, "port": 9000}
    assert spec["serving"] == {"maxBatchSize": 16, "requestTimeoutSeconds": 600, "access": {}, "openAI": openai}
    assert spec["speculation"]["acceptance"] == {"method": "TokenMatch", "fastLogits": False}
    assert spec["placement"] == {"strategy": "Shared", "gpu": {"resourceName": "nvidia.com/gpu", "perNode": 8}}
    assert spec["rollout"] == {"strategy": "Surge", "progressDeadlineSeconds": 3900}
    assert spec["storage"] == {"cache": {"size": "500Gi", "accessModes": ["ReadWriteMany"]}}
