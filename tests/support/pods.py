"""What each row of a pod template, a placement or a volume adds to a base pod, as YAML."""

from typing import Any

import yaml

from tandem.api.folders import folders
from tandem.api.profile import Profile
from tandem.api.roles import Role
from tandem.api.types import ServiceSpec
from tandem.render.v1.inputs import Inputs

BASE = """
apiVersion: serving.tandem.dev/v1alpha1
kind: SpeculativeInferenceService
metadata: {name: llama, namespace: team-a}
spec:
  runtime: {mode: LLMAPI, profile: own}
  target: {model: {uri: file:///models/target}}
  speculation: {decodingType: None}
  serving: {openAI: {enabled: false}}
"""
PROFILE = Profile.model_validate(
    {
        "name": "own",
        "image": "own:1",
        "engine": {"kind": "TensorRT-LLM", "version": "1.2"},
        "resources": {"requests": {"cpu": "4"}, "limits": {"memory": "64Gi"}},
    }
)


def rendered(changes: str, profile: Profile = PROFILE) -> Inputs:
    """The base with `changes` (YAML) merged into its spec."""
    spec = ServiceSpec.model_validate(merged(yaml.safe_load(BASE)["spec"], yaml.safe_load(changes)))
    return Inputs(spec, profile, "serving:1", folders(spec, dict.fromkeys(Role, "/cache/x")))


def merged(base: Any, change: Any) -> Any:
    """`base` with the keys of `change` instead of its own, at all depths."""
    if isinstance(base, dict) and isinstance(change, dict):
        return {**base, **{key: merged(base.get(key), value) for key, value in change.items()}}
    return change


# changes of the spec, what they add to the server's pod, why
ROWS = yaml.safe_load("""
- reason: parallel ranks are GPUs of the pod, which talk through shared memory
  spec: {target: {tensorParallelSize: 4}}
  pod:
    containers: [{resources: {limits: {nvidia.com/gpu: "4"}}}]
    volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 5Gi}}]
- reason: a MIG slice is a resource like another
  spec: {placement: {gpu: {resourceName: nvidia.com/mig-3g.40gb}}}
  pod:
    containers: [{resources: {limits: {nvidia.com/gpu: null, nvidia.com/mig-3g.40gb: "1"}}}]
- reason: claims stand for the extended resource
  spec: {placement: {resourceClaims: [{name: gpus, resourceClaimTemplateName: four-gpus}]}}
  pod:
    resourceClaims: [{name: gpus, resourceClaimTemplateName: four-gpus}]
    containers:
      - resources: {limits: {nvidia.com/gpu: null}, claims: [{name: gpus}]}
- reason: where to run, as in a PodSpec
  spec:
    placement:
      nodeSelector: {pool: gpu}
      tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
      priorityClassName: serving
      runtimeClassName: nvidia
      schedulerName: kai
      topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
  pod:
    nodeSelector: {pool: gpu}
    tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
    priorityClassName: serving
    runtimeClassName: nvidia
    schedulerName: kai
    topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
- reason: GPU products are a requirement beside their age
  spec: {placement: {gpu: {product: [NVIDIA-H100-80GB-HBM3, NVIDIA-H200]}}}
  pod:
    affinity:
      nodeAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
            - matchExpressions:
                - {key: nvidia.com/gpu.product, operator: In, values: [NVIDIA-H100-80GB-HBM3, NVIDIA-H200]}
- reason: the user's terms are alternatives, so the product narrows each; the rest of the affinity stays
  spec:
    placement:
      gpu: {product: [NVIDIA-H200]}
      affinity:
        podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}
        nodeAffinity:
          preferredDuringSchedulingIgnoredDuringExecution: []
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
              - matchExpressions: [{key: zone, operator: In, values: [a]}]
              - matchFields: [{key: metadata.name, operator: In, values: [n1]}]
  pod:
    affinity:
      podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}
      nodeAffinity:
        preferredDuringSchedulingIgnoredDuringExecution: []
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
            - matchExpressions:
                - {key: zone, operator: In, values: [a]}
                - {key: nvidia.com/gpu.compute.major, operator: NotIn, values: ["1", "2", "3", "4", "5", "6", "7"]}
                - {key: nvidia.com/gpu.product, operator: In, values: [NVIDIA-H200]}
            - matchFields: [{key: metadata.name, operator: In, values: [n1]}]
              matchExpressions:
                - {key: nvidia.com/gpu.compute.major, operator: NotIn, values: ["1", "2", "3", "4", "5", "6", "7"]}
                - {key: nvidia.com/gpu.product, operator: In, values: [NVIDIA-H200]}
- reason: downloads are in the namespace's cache, read-only
  spec: {target: {model: {uri: hf://org/model}}}
  pod:
    volumes: [{name: cache, persistentVolumeClaim: {claimName: tandem-cache}}]
    containers: [{volumeMounts: [{name: cache, mountPath: /cache, readOnly: true}]}]
- reason: a cache of the user's own
  spec: {target: {model: {uri: s3://bucket/model}}, storage: {cache: {claimName: fast}}}
  pod:
    volumes: [{name: cache, persistentVolumeClaim: {claimName: fast}}]
    containers: [{volumeMounts: [{name: cache, mountPath: /cache, readOnly: true}]}]
- reason: a claim with a model is mounted at the role's place, from the path on
  spec: {target: {model: {uri: pvc://models/llama/70b/}}}
  pod:
    volumes: [{name: source-target, persistentVolumeClaim: {claimName: models, readOnly: true}}]
    containers:
      - volumeMounts: [{name: source-target, mountPath: /sources/target, readOnly: true, subPath: llama/70b}]
- reason: an image with a model is an image volume
  spec: {target: {model: {uri: "oci://registry.example:5000/models/llama:1"}}}
  pod:
    volumes: [{name: source-target, image: {reference: "registry.example:5000/models/llama:1"}}]
    containers: [{volumeMounts: [{name: source-target, mountPath: /sources/target, readOnly: true}]}]
- reason: a tokenizer that is elsewhere is a volume like a model
  spec: {target: {model: {uri: file:///models/target, tokenizer: {uri: pvc://models/tokenizer}}}}
  pod:
    volumes: [{name: source-target-tokenizer, persistentVolumeClaim: {claimName: models, readOnly: true}}]
    containers:
      - volumeMounts:
          - {name: source-target-tokenizer, mountPath: /sources/target-tokenizer, readOnly: true, subPath: tokenizer}
- reason: the drafter's code comes from the user's ConfigMap
  spec:
    speculation: {decodingType: UserProvided, userProvided: {entryPoint: "mine:make", configMapName: mine}}
  pod:
    volumes: [{name: drafter, configMap: {name: mine}}]
    containers: [{volumeMounts: [{name: drafter, mountPath: /etc/tandem/drafter, readOnly: true}]}]
- reason: logits of 16 sequences x 8 draft tokens x 262,144 words x 4 bytes, twice
  spec: {runtime: {mode: BLS}, speculation: {maxDraftLen: 8, acceptance: {method: Logits}}}
  pod:
    volumes:
      - {name: shm, emptyDir: {medium: Memory, sizeLimit: 3Gi}}
      - {name: cache, persistentVolumeClaim: {claimName: tandem-cache}}
    containers: [{volumeMounts: [{name: cache, mountPath: /cache, readOnly: true}]}]
- reason: streams have the whole of their time to finish when a pod stops
  spec: {serving: {requestTimeoutSeconds: 60}}
  pod: {terminationGracePeriodSeconds: 75}
- reason: the user's template is merged into ours
  spec:
    podTemplate:
      spec:
        imagePullSecrets: [{name: registry}]
        volumes: [{name: certificates, secret: {secretName: ca}}]
        containers:
          - name: triton
            resources: {limits: {memory: 128Gi}}
            env: [{name: NCCL_DEBUG, value: INFO}]
            volumeMounts: [{name: certificates, mountPath: /etc/certificates, readOnly: true}]
            imagePullPolicy: Always
  pod:
    imagePullSecrets: [{name: registry}]
    volumes: [{name: certificates, secret: {secretName: ca}}]
    containers:
      - resources: {limits: {memory: 128Gi}}
        env: [{name: NCCL_DEBUG, value: INFO}]
        volumeMounts: [{name: certificates, mountPath: /etc/certificates, readOnly: true}]
        imagePullPolicy: Always
""")
