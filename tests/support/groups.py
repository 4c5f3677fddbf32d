"""A service whose replicas are groups of pods, and its revision."""

from support.pods import PROFILE
from tandem.api.folders import folders
from tandem.api.types import SpeculativeInferenceService
from tandem.render import LATEST, Record, Revision
from tandem.render.rendered import JobPod
from tandem.render.v1.inputs import Inputs
from tandem.render.v1.pod import server_pod, template_metadata, worker_pod

GROUPS = """
apiVersion: serving.tandem.dev/v1alpha1
kind: SpeculativeInferenceService
metadata: {name: deepseek, namespace: team-a, uid: uid-1, generation: 1}
spec:
  runtime: {mode: LLMAPI, profile: own}
  target: {model: {uri: pvc://models/deepseek-r1}, tensorParallelSize: 16}
  speculation: {decodingType: MTP, maxDraftLen: 3}
  placement:
    topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
  serving: {access: {from: [{podSelector: {matchLabels: {app: chat}}}]}}
  podTemplate: {metadata: {labels: {team: a}, annotations: {note: b}}}
  replicas: 2
"""


def revision(service: SpeculativeInferenceService, digest: str = "0123456789") -> Revision:
    """What the renderer makes of the pods; files and Jobs are not looked at here."""
    inputs = Inputs(service.spec, PROFILE, "serving:1", folders(service.spec, {}))
    worker = worker_pod(inputs)
    return Revision(
        digest=digest,
        record=Record(renderer=LATEST, serving_image="serving:1", profile=PROFILE, spec=service.spec),
        files={},
        pod=server_pod(inputs),
        worker=worker,
        nodes=2 if worker else 1,
        metadata=template_metadata(inputs),
        preflight=JobPod({}, "p"),
        builds={},
    )
