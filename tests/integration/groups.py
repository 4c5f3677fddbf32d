"""Groups of pods as LeaderWorkerSet's controller makes them, which is not here."""

import copy
import json

from .conftest import (
    Namespace,
)


def leaders(namespace: Namespace, count: int) -> None:
    """Pods of the leader's template: of the workers nothing is asked here."""
    (workload,) = namespace.items("leaderworkersets")
    template = workload["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    for index in range(count):
        pod = {"apiVersion": "v1", "kind": "Pod", **copy.deepcopy(template)}
        pod["metadata"] |= {"name": f"{workload['metadata']['name']}-{index}"}
        pod["metadata"].pop("creationTimestamp", None)
        del pod["spec"]["containers"][0]["resources"]  # simulated nodes have fewer GPUs
        namespace.run("apply", "-f", "-", stdin=json.dumps(pod))


SEVERAL_NODES = """
apiVersion: serving.tandem.dev/v1alpha1
kind: SpeculativeInferenceService
metadata: {name: svc}
spec:
  runtime: {mode: LLMAPI, profile: trtllm-26.07}
  target: {model: {uri: file:///models/deepseek}, tensorParallelSize: 16}
  speculation: {decodingType: None}
"""
