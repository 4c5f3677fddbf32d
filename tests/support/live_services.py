"""A service as a cluster has it, with its pods and its autoscaler; and a `kubectl` that answers with such."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tandem.api.types import SpeculativeInferenceService

SERVICE = """
apiVersion: serving.tandem.dev/v1alpha1
kind: SpeculativeInferenceService
metadata: {name: llama, namespace: team-a, uid: u, generation: 4}
spec:
  runtime: {mode: BLS, profile: reference}
  target: {model: {uri: file:///opt/reference/pair/target}}
  draft: {model: {uri: file:///opt/reference/pair/draft}}
  speculation: {decodingType: DraftTarget}
  replicas: 2
  autoscaling: {maxReplicas: 8}
status:
  observedGeneration: 4
  conditions:
    - type: Ready
      status: "True"
      reason: ServersAnswer
      message: 2 of 2 servers answer
      lastTransitionTime: "2026-01-01T09:00:00Z"
    - type: SpeculationBeneficial
      status: "False"
      reason: Slower
      message: 0.90 times
      lastTransitionTime: "2026-01-01T11:55:00Z"
  replicas: 2
  readyReplicas: 2
  updatedReplicas: 2
  url: http://llama-triton.team-a.svc:8000
  currentRevision: "0123456789"
  updateRevision: "0123456789"
  speculation:
    acceptanceRate: 0.753
    meanAcceptedLength: 3.9
    draftLength: 4.0
    speedup: 0.9
    samples: 12900
    observedAt: "2026-01-01T11:58:00Z"
  autoscaling:
    {desiredReplicas: 3, signal: Demand, message: 40 requests, observedAt: "2026-01-01T11:59:30Z"}
"""
PODS = """
- metadata: {name: llama-server-b, labels: {serving.tandem.dev/revision: "0123456789"}}
  spec: {nodeName: node-1}
  status: {conditions: [{type: Ready, status: "True"}]}
- metadata: {name: llama-server-a, labels: {serving.tandem.dev/revision: "0123456789"}}
  spec: {}
  status: {conditions: [{type: PodScheduled, status: "False", message: 0/3 nodes are available}]}
"""
HPA = """
- kind: HorizontalPodAutoscaler
  metadata: {name: llama-server}
  spec: {minReplicas: 1, maxReplicas: 8}
  status:
    currentReplicas: 2
    desiredReplicas: 3
    currentMetrics: [{type: Object, object: {current: {averageValue: 1310m}}}]
"""


def service(**status_fields: Any) -> SpeculativeInferenceService:
    """`SERVICE`, with these fields of its status."""
    raw = yaml.safe_load(SERVICE)
    raw["status"] |= status_fields
    return SpeculativeInferenceService.model_validate(raw)


def raw_list(*items: SpeculativeInferenceService) -> dict[str, Any]:
    """As `kubectl get -o json` lists them."""
    return {"items": [item.model_dump(by_alias=True, mode="json", exclude_none=True) for item in items]}


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `kubectl` in PATH that answers from the file that its words name; what it has none for is not found."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "kubectl"
    script.write_text(
        f"""#!/bin/bash
cd {folder}; echo "$@" >> calls
for file in *.json; do case " $* " in *"${{file%.json}}"*) cat "$file"; exit 0;; esac; done
echo 'Error from server (NotFound): speculativeinferenceservices.serving.tandem.dev "x" not found' >&2; exit 1
""",
        encoding="utf-8",
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return folder


def answer(folder: Path, words_of_it: str, reply: Any) -> None:
    """What it answers to a command with these words."""
    (folder / f"{words_of_it}.json").write_text(json.dumps(reply), encoding="utf-8")
