"""Fields of pods that Kubernetes has and the resource leaves out on purpose: why, and what to write instead.

`kubectl apply` calls them unknown fields, as it does misspelt ones.
"""

from collections.abc import Mapping, Sequence

_MODELS = "Tandem sets the probes, which ask the models"
_HOST = "pods share nothing with their node, as Pod Security `restricted` has it: remove it"
_COMMAND = "Tandem starts the server: write runtime.image for another image, or runtime.extraLlmArgs for the engine"
_NAMES = "pods have the names that their Deployment or LeaderWorkerSet gives them: remove it"
_ACCOUNT = "pods have a service account of their own, without rights and without a token: remove it"
_DNS = "pods have the cluster's DNS: remove it"
_TERMINAL = "nobody types into a server: remove it"
_SECURITY = (
    "pods keep Pod Security `restricted`: remove it; the Helm value userIds: Platform leaves users and groups to the"
    " platform"
)
_PLACEMENT = "write spec.placement.{}"
POD: Mapping[str, str] = {
    **{
        name: _PLACEMENT.format(name)
        for name in ("affinity", "nodeSelector", "priorityClassName", "resourceClaims", "runtimeClassName")
    },
    **{name: _PLACEMENT.format(name) for name in ("schedulerName", "tolerations", "topologySpreadConstraints")},
    "activeDeadlineSeconds": "servers run until they are replaced: remove it",
    "automountServiceAccountToken": "pods ask nothing of the Kubernetes API: remove it",
    "dnsConfig": _DNS,
    "dnsPolicy": _DNS,
    "enableServiceLinks": "variables of other Services are left out: remove it, and write env",
    "ephemeralContainers": "write kubectl debug for a container in a pod that runs",
    "evictionResponders": "a PodDisruptionBudget says how many pods may go at once: remove it",
    "hostAliases": "names come from the cluster's DNS: remove it",
    "hostIPC": _HOST,
    "hostNetwork": _HOST,
    "hostPID": _HOST,
    "hostUsers": _HOST,
    "hostname": _NAMES,
    "hostnameOverride": _NAMES,
    "nodeName": _PLACEMENT.format("nodeSelector"),
    "os": "the images are for Linux: remove it",
    "overhead": "it follows from the runtime class: write spec.placement.runtimeClassName",
    "preemptionPolicy": "it follows from the priority class: write spec.placement.priorityClassName",
    "priority": "it follows from the priority class: write spec.placement.priorityClassName",
    "readinessGates": "a pod is ready when its server is: remove it",
    "resources": "write the resources of the container triton",
    "restartPolicy": "servers start again by themselves: remove it",
    "schedulingGates": "pods are for the scheduler at once: remove it",
    "schedulingGroup": "replicas of several pods start together as a LeaderWorkerSet does it: remove it",
    "securityContext": _SECURITY,
    "serviceAccount": _ACCOUNT,
    "serviceAccountName": _ACCOUNT,
    "setHostnameAsFQDN": _NAMES,
    "shareProcessNamespace": "containers see their own processes only: remove it",
    "subdomain": _NAMES,
    "terminationGracePeriodSeconds": "it follows from the longest request: write spec.serving.requestTimeoutSeconds",
}
"""Of a PodSpec."""
CONTAINER: Mapping[str, str] = {
    "args": _COMMAND,
    "command": _COMMAND,
    "image": "write spec.runtime.image",
    "lifecycle": "a pod that is deleted finishes its streams, so Tandem sets the hooks: remove it",
    "livenessProbe": f"{_MODELS}: remove it",
    "ports": "the ports are Triton's, and spec.serving.openAI.port: remove it",
    "readinessProbe": f"{_MODELS}: remove it",
    "resizePolicy": "pods are replaced, not resized: remove it",
    "restartPolicy": "servers start again by themselves: remove it",
    "restartPolicyRules": "servers start again by themselves: remove it",
    "securityContext": _SECURITY,
    "startupProbe": f"{_MODELS}: remove it",
    "stdin": _TERMINAL,
    "stdinOnce": _TERMINAL,
    "terminationMessagePath": "Tandem reads the message: remove it",
    "terminationMessagePolicy": "Tandem reads the message: remove it",
    "tty": _TERMINAL,
    "volumeDevices": "servers read files, no devices: write volumeMounts",
    "workingDir": "the server has its own folder: remove it",
}
"""Of a Container."""
_INIT = "the container `tandem` copies files, and takes only resources: remove it"
INIT_CONTAINER: Mapping[str, str] = {
    **dict.fromkeys([*CONTAINER, "env", "envFrom", "imagePullPolicy", "volumeMounts"], _INIT)
}
"""Of an init container."""
METADATA: Mapping[str, str] = dict.fromkeys(
    ("name", "generateName", "namespace", "finalizers", "ownerReferences"),
    "it follows from the service: remove it; labels and annotations may be added",
)
"""Of a pod's metadata."""
JOBS: Mapping[str, str] = {
    **dict.fromkeys(("nodeSelector", "tolerations", "affinity"), "Jobs run where servers do: write spec.placement"),
    **dict.fromkeys(
        ("volumes", "volumeMounts", "imagePullSecrets"), "Jobs have those of spec.podTemplate: write it there"
    ),
    "securityContext": _SECURITY,
    "serviceAccountName": _ACCOUNT,
}
"""Of `spec.jobs`, which people take for a pod template."""
_PODS: Mapping[tuple[str, ...], Mapping[str, str]] = {
    ("spec", "podTemplate", "metadata"): METADATA,
    ("spec", "podTemplate", "spec"): POD,
    ("spec", "podTemplate", "spec", "containers"): CONTAINER,
    ("spec", "podTemplate", "spec", "initContainers"): INIT_CONTAINER,
    ("spec", "jobs"): JOBS,
}


def why_not(path: Sequence[str | int]) -> str:
    """Why the resource leaves out the field at `path`, and what to write; empty: it is no field that is left out."""
    *parents, field = path
    reason = _PODS.get(tuple(part for part in parents if isinstance(part, str)), {}).get(str(field), "")
    return f"not allowed: {reason}" if reason else ""
