"""Pod templates that change what Tandem decides, or are not safe: each is refused and told what to write."""

import pytest
import yaml

from support.services import QUICKSTART, parse
from tandem.accept.pod_template import RULES
from tandem.api.profile import Profile
from tandem.api.types import PodTemplate
from tandem.engines import engine_of
from tandem.engines.rule import Refusal

PROFILE = Profile.model_validate(
    {
        "name": "own",
        "image": "own:1",
        "engine": {"kind": "Tandem", "env": {"ENGINE_THREADS": "1"}},
    }
)

ROWS = [
    ("spec: {volumes: [{name: h, hostPath: {path: /}}]}", "volumes of kind 'hostPath' are not safe: write one of"),
    ("spec: {volumes: [{name: n, nfs: {server: s, path: /}}]}", "volumes of kind 'nfs' are not safe"),
    ("spec: {volumes: [{name: n}]}", "spec.volumes[0] has 0 kinds: write exactly one of"),
    ("spec: {volumes: [{name: n, emptyDir: {}, secret: {secretName: s}}]}", "has 2 kinds"),
    ("spec: {volumes: [{emptyDir: {}}]}", "spec.volumes[0] has no name: write one"),
    (
        "spec: {volumes: [{name: n, projected: {sources: [{secret: {}}, {serviceAccountToken: {path: t}}]}}]}",
        "spec.volumes[0]: serviceAccountToken would give the pods a token for the Kubernetes API",
    ),
    (
        "spec: {volumes: [{name: n, persistentVolumeClaim: {claimName: tandem-cache}}]}",
        "spec.volumes[0]: the claim tandem-cache is the cache of models and engines, which servers may not change:"
        " write persistentVolumeClaim.readOnly: true",
    ),
    (
        "spec: {volumes: [{name: n, persistentVolumeClaim: {claimName: mine, readOnly: false}}]}",
        "the claim mine is the cache of models and engines",
    ),
    ("spec: {volumes: [{name: revision, emptyDir: {}}]}", "the volume 'revision' is Tandem's own"),
    ("spec: {volumes: [{name: ssh, secret: {secretName: s}}]}", "the volume 'ssh' is Tandem's own"),
    ("spec: {volumes: [{name: source-target, emptyDir: {}}]}", "the volume 'source-target' is Tandem's own"),
    (
        "spec: {containers: [{name: triton, volumeMounts: [{name: cache, mountPath: /mine}]}]}",
        "there is no volume 'cache' in podTemplate.spec.volumes: add it there",
    ),
    ("mount: /opt/tandem", "mountPath '/opt/tandem' would hide or change /opt/tandem"),
    ("mount: /opt/tandem/models/x", "would hide or change /opt/tandem"),
    ("mount: /opt//tandem/", "would hide or change /opt/tandem"),
    ("mount: /mine/../opt/tandem", "would hide or change /opt/tandem"),
    ("mount: /", "would hide or change"),
    ("mount: /dev", "would hide or change /dev/shm"),
    ("mount: /sources/target", "would hide or change /sources"),
    ("mount: mine", "mountPath 'mine' is no absolute path"),
    (
        "spec: {containers: [{name: triton, env: [{name: HOME, value: /root}]}]}",
        "spec.containers[0].env[0]: HOME is set by Tandem: remove it",
    ),
    ("spec: {containers: [{name: triton, env: [{name: LWS_GROUP_SIZE, value: '1'}]}]}", "LWS_GROUP_SIZE is set"),
    ("spec: {containers: [{name: triton, env: [{name: ENGINE_THREADS, value: '9'}]}]}", "ENGINE_THREADS is set"),
    ("spec: {containers: [{name: triton, env: [{value: '1'}]}]}", "spec.containers[0].env[0] has no name"),
    (
        "spec: {containers: [{name: triton, resources: {limits: {nvidia.com/gpu: 8}}}]}",
        "nvidia.com/gpu follows from the models' parallel sizes: write target.tensorParallelSize",
    ),
    ("spec: {containers: [{name: triton, resources: {requests: {nvidia.com/gpu: 0}}}]}", "resources.requests"),
    (
        "spec: {containers: [{name: triton, resources: {claims: [{name: gpus}]}}]}",
        "write placement.resourceClaims instead",
    ),
    (
        "spec: {containers: [{name: triton, env: [{name: HOME, $patch: delete}]}]}",
        "spec.containers[0].env[0].$patch is a directive of merge patches",
    ),
    ("spec: {volumes: [{$patch: replace}]}", "spec.volumes[0].$patch is a directive"),
    ("spec: {imagePullSecrets: [{name: [a]}]}", "spec.imagePullSecrets[0] has no name: write one"),
    ("spec: {imagePullSecrets: [{}]}", "spec.imagePullSecrets[0] has no name: write one"),
    (
        "spec: {containers: [{name: triton, volumeMounts: [{name: [a], mountPath: /a}]}]}",
        "spec.containers[0].volumeMounts[0]: there is no volume ['a']",
    ),
    ("spec: {containers: [{name: triton, resources: {limits: 3}}]}", "resources.limits must be a mapping"),
    ("spec: {initContainers: [{name: tandem, resources: {limits: 3}}]}", "initContainers[0].resources.limits must"),
    ("metadata: {labels: {serving.tandem.dev/service: other}}", "'serving.tandem.dev/service' is not for users"),
    ("metadata: {labels: {app.kubernetes.io/name: other}}", "metadata.labels: 'app.kubernetes.io/name'"),
    ("metadata: {labels: {pod-template-hash: x}}", "'pod-template-hash' is not for users: choose another key"),
    ("metadata: {annotations: {serving.tandem.dev/x: y}}", "metadata.annotations: 'serving.tandem.dev/x'"),
    (
        "metadata: {annotations: {container.apparmor.security.beta.kubernetes.io/triton: unconfined}}",
        "is not for users",
    ),
]


JOBS = [
    ("labels: {serving.tandem.dev/service: other}", "jobs.labels: 'serving.tandem.dev/service' is not for users"),
    ("annotations: {app.kubernetes.io/x: y}", "jobs.annotations: 'app.kubernetes.io/x' is not for users"),
    ("env: [{name: HOME, value: /root}]", "jobs.env[0]: HOME is set by Tandem: remove it"),
    ("env: [{value: a}]", "jobs.env[0] has no name: write one"),
    ("env: [{name: A, $patch: delete}]", "jobs.env[0].$patch is a directive"),
    ("resources: {limits: 3}", "jobs.resources.limits must be a mapping"),
    ("resources: {limits: {nvidia.com/gpu: 1}}", "jobs.resources.limits: nvidia.com/gpu follows from"),
    ("buildResources: {claims: []}", "jobs.buildResources.claims: write placement.resourceClaims instead"),
]


@pytest.mark.parametrize(("text", "message"), JOBS, ids=[row[0] for row in JOBS])
def test_what_jobs_may_not_have(text: str, message: str) -> None:
    spec = parse(QUICKSTART, jobs=yaml.safe_load(text)).spec
    found = next((found for rule in RULES if (found := rule(spec, engine_of(spec, PROFILE)))), None)
    assert found
    assert (found.reason, found.message[: len(message)]) == ("PodTemplateRefused", message)


def refusal(text: str) -> Refusal | None:
    raw = yaml.safe_load(text)
    if "mount" in raw:
        mount = {"name": "own", "mountPath": raw["mount"]}
        container = {"name": "triton", "volumeMounts": [mount]}
        raw = {"spec": {"volumes": [{"name": "own", "emptyDir": {}}], "containers": [container]}}
    template = PodTemplate.model_validate(raw)
    spec = parse(QUICKSTART, storage__cache__claimName="mine").spec.model_copy(update={"pod_template": template})
    return next((found for rule in RULES if (found := rule(spec, engine_of(spec, PROFILE)))), None)


@pytest.mark.parametrize(("text", "message"), ROWS, ids=[row[0] for row in ROWS])
def test_refused(text: str, message: str) -> None:
    found = refusal(text)
    assert found is not None
    assert found.reason == "PodTemplateRefused"
    assert found.message.startswith("podTemplate.")
    assert message in found.message


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "metadata: {labels: {team: a}, annotations: {sidecar.istio.io/inject: 'false'}}",
        "mount: /opt/tandem-extras",
        "spec: {volumes: [{name: w, image: {reference: x}}, {name: p, projected: {sources: []}}]}",
        "spec: {volumes: [{name: c, persistentVolumeClaim: {claimName: mine, readOnly: true}}]}",
        "spec: {volumes: [{name: c, persistentVolumeClaim: {claimName: other}}]}",
        "spec: {containers: [{name: triton, resources: {limits: {memory: null, cpu: 4}}, env: [{name: A}]}]}",
    ],
)
def test_accepted(text: str) -> None:
    assert refusal(text) is None
