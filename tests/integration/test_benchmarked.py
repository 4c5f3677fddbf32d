"""What `tandem bench --record` writes, on the real API server: the operator tells it for as long as it is true."""

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.core import Cluster
from support.completions import completion
from tandem.client.bench.figures import Level, Side, Window
from tandem.client.bench.record import ServedRevision, keep, serving
from tandem.client.kubectl import ClusterError

from .conftest import AuditLog, Namespace, OperatorProcess, wait_for

NGRAM: dict[str, Any] = {
    "draft": None,
    "runtime__mode": "LLMAPI",
    "speculation": {"decodingType": "NGram", "maxDraftLen": 4},
}


@pytest.fixture(autouse=True)
def kubectl(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The cluster's own kubectl, as a person has it."""
    (tmp_path / "kubectl").symlink_to(cluster.kubectl.binary)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))


def measured(streams: int, *pairs: tuple[int, int]) -> Level:
    """Tokens with speculation and without, in windows of 2 s."""
    ended = (completion(2, 1.0, 0.5),)
    ours, alone = (
        Side(tuple(Window(2.0, tokens, ended, ()) for tokens in side)) for side in zip(*pairs, strict=True)
    )
    return Level(streams, ours, alone)


FASTER = [measured(1, (30, 20), (32, 20), (34, 20))]


def record(namespace: Namespace, levels: list[Level]) -> ServedRevision:
    """Measure and keep; what was measured."""
    found = asyncio.run(serving("svc", namespace.name))
    said = asyncio.run(keep(found, levels, "alone"))
    assert said == f"recorded of revision {found.revision}: ConfigMap {namespace.name}/svc-benchmark"
    return found


def speculation(namespace: Namespace) -> dict[str, Any]:
    shown: dict[str, Any] = namespace.get("sis", "svc")["status"].get("speculation", {})
    return shown


def test_it_is_told_while_its_revision_serves(
    cluster: Cluster, operator: OperatorProcess, namespace: Namespace
) -> None:
    namespace.apply(**NGRAM)
    namespace.wait("Ready", "True")
    assert "SpeculationBeneficial" not in namespace.conditions(), "nothing is known of it"
    record(namespace, FASTER)
    namespace.wait("SpeculationBeneficial", "True/Faster")
    assert "1.60 times the target alone (1.50 to 1.70) with 1 stream, by" in namespace.message(
        "SpeculationBeneficial"
    )
    shown = speculation(namespace)
    assert (shown["speedup"], shown["speedupSource"]) == (1.6, "Benchmark")
    assert namespace.conditions()["Ready"] == "True/ServersAnswer", "it has no say in Ready"

    audit = AuditLog(cluster.audit_log)
    record(namespace, [measured(1, (18, 20), (17, 20), (16, 20))])
    namespace.wait("SpeculationBeneficial", "False/Slower")
    assert speculation(namespace)["speedup"] == 0.85
    writes = [write for write in audit.operator_writes(namespace) if not write.startswith("create events")]
    assert writes == ["patch speculativeinferenceservices/status/svc"], "the operator leaves the ConfigMap alone"

    namespace.apply(**NGRAM, speculation__maxDraftLen=3)
    namespace.wait("SpeculationBeneficial", "Unknown/BenchmarkOutdated")
    wait_for("the old speed-up to go", lambda: "speedup" not in speculation(namespace), log=operator.log)
    assert "run it again with --record" in namespace.message("SpeculationBeneficial")


def test_a_stranger_s_words_do_no_harm(operator: OperatorProcess, namespace: Namespace) -> None:
    """Whoever may edit ConfigMaps may write it: anything, and the operator reconciles on."""
    namespace.apply(**NGRAM)
    namespace.wait("Ready", "True")
    record(namespace, FASTER)
    namespace.wait("SpeculationBeneficial", "True/Faster")
    for text in ("[" * 8000, '{"levels": 1}', "x" * 900_000):
        patch = json.dumps([{"op": "add", "path": "/data/result.json", "value": text}])
        file = operator.settings.parent / "patch.json"
        file.write_text(patch, encoding="utf-8")
        namespace.run("patch", "configmap", "svc-benchmark", "--type=json", f"--patch-file={file}")
        namespace.wait("SpeculationBeneficial", "Unknown/BenchmarkUnreadable")
        assert len(namespace.message("SpeculationBeneficial")) < 500
        assert "speedup" not in speculation(namespace)
        record(namespace, FASTER)
        namespace.wait("SpeculationBeneficial", "True/Faster")
    namespace.run("delete", "configmap", "svc-benchmark")
    wait_for("the condition to go", lambda: "SpeculationBeneficial" not in namespace.conditions(), log=operator.log)
    assert namespace.conditions()["Ready"] == "True/ServersAnswer"


def test_it_goes_with_the_service_and_is_nobody_else_s(operator: OperatorProcess, namespace: Namespace) -> None:
    namespace.apply(**NGRAM)
    namespace.wait("Ready", "True")
    namespace.run("create", "configmap", "svc-benchmark", "--from-literal=mine=1")
    with pytest.raises(ClusterError, match="belongs to another owner"):
        record(namespace, FASTER)
    namespace.run("delete", "configmap", "svc-benchmark")
    found = record(namespace, FASTER)
    with pytest.raises(ClusterError, match="not recorded: meanwhile it went from revision older"):
        asyncio.run(keep(replace(found, revision="older"), FASTER, ""))
    namespace.run("delete", "sis", "svc")
    wait_for("its garbage to be collected", lambda: not namespace.get("configmap", "svc-benchmark"))
