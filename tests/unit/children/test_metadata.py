"""What is added to a pod after the digest of its revision was taken: names and labels, nothing else.

Written out: a change restarts the pods of every service.
"""

from typing import Any

from support.services import parse
from tandem.api.profile import Profile
from tandem.children import workload
from tandem.render import LATEST, Record, Revision, render

GROUP = """
apiVersion: serving.tandem.dev/v1alpha1
kind: SpeculativeInferenceService
metadata: {name: llama, namespace: team-a, uid: "1234"}
spec:
  runtime: {mode: LLMAPI, profile: own}
  target: {model: {uri: file:///models/target}, tensorParallelSize: 16}
  speculation: {decodingType: None}
  placement:
    topologySpreadConstraints:
    - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}
    - {maxSkew: 1, topologyKey: rack, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {own: a}}}
  podTemplate: {metadata: {labels: {team: a, tandem: b}, annotations: {note: b}}}
"""
PROFILE = Profile.model_validate(
    {"name": "own", "image": "own:1", "engine": {"kind": "TensorRT-LLM", "version": "1.2"}}
)


def labels(component: str, digest: str) -> dict[str, str]:
    return {
        "team": "a",
        "tandem": "b",
        "app.kubernetes.io/name": "tandem",
        "app.kubernetes.io/instance": "llama",
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/managed-by": "tandem",
        "serving.tandem.dev/service": "llama",
        "serving.tandem.dev/component": component,
        "serving.tandem.dev/revision": digest,
    }


def named(pod: Any, component: str, revision: Revision) -> dict[str, Any]:
    """The rendered pod, with what each name adds."""
    selector = {"serving.tandem.dev/service": "llama", "serving.tandem.dev/component": component}
    zone, rack = pod["topologySpreadConstraints"]
    return {
        **pod,
        "serviceAccountName": "llama-server",
        "volumes": [
            *pod["volumes"],
            {"name": "revision", "configMap": {"name": f"llama-{revision.digest}"}},
            {"name": "ssh", "secret": {"secretName": "llama-ssh-637a76f73d", "defaultMode": 0o440}},
        ],
        "topologySpreadConstraints": [{**zone, "labelSelector": {"matchLabels": selector}}, rack],
    }


def test_names_alone_are_added_to_what_the_digest_covers() -> None:
    service = parse(GROUP)
    revision = render(Record(renderer=LATEST, serving_image="serving:1", profile=PROFILE, spec=service.spec))
    group = workload(service, revision)["spec"]["leaderWorkerTemplate"]
    for made, pod, component in (
        (group["leaderTemplate"], revision.pod, "server"),
        (group["workerTemplate"], revision.worker, "worker"),
    ):
        metadata = {"labels": labels(component, revision.digest), "annotations": {"note": "b"}}
        assert made == {"metadata": metadata, "spec": named(pod, component, revision)}
