"""The pods of a revision: the server, or leader and workers of a group, and the preflight.

They depend on the record alone: names are added later, see `tandem.children.metadata`.
"""

from dataclasses import replace
from typing import Any

from tandem import names
from tandem.api import ports
from tandem.api.roles import Role
from tandem.render.v1 import placement
from tandem.render.v1.every_pod import every_pod
from tandem.render.v1.inputs import Inputs
from tandem.render.v1.openai import POD_IP, with_endpoint
from tandem.render.v1.probes import STOP_SECONDS, grace_seconds, lifecycle, probes
from tandem.render.v1.security import CONTAINER_SECURITY
from tandem.render.v1.strategic_merge import merge
from tandem.render.v1.volumes import MODELS, REVISION, SSH, TANDEM, TMP, mounts, volumes

# Not `ports.SERVER`, which may grow.
PORTS = {"http": ports.HTTP, "grpc": ports.GRPC, "metrics": ports.METRICS}
CPUS_PER_GPU, GIB_PER_GPU = 1, 4
"""What a server asks for unless somebody writes it: little enough for the smallest machines with a GPU, such as
4 CPUs and 16 GiB beside a T4."""
ENTRYPOINT = ["python3", f"{TANDEM}/entrypoint.py"]


def server_pod(inputs: Inputs) -> dict[str, Any]:
    """PodSpec of a Triton server; of the leader where a replica is a group."""
    container = {
        **_container(inputs, "serve", "--revision", REVISION, "--models", MODELS),
        **placement.resources(inputs),
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in PORTS.items()],
        **probes(inputs, [*ENTRYPOINT, "probe"]),
        **lifecycle(),
    }
    container["env"] = [*container["env"], POD_IP]
    return with_endpoint(inputs, _serving(inputs, container, grace_seconds(inputs)))


def worker_pod(inputs: Inputs) -> dict[str, Any] | None:
    """PodSpec of the pods beside the leader, which run the ranks that it starts; None where there are none."""
    worker = inputs.engine.worker
    if inputs.plan.nodes == 1:
        return None
    ports_of = [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in worker.ports.items()]
    container = {
        **_container(inputs, *worker.arguments),
        **placement.resources(inputs),
        **({"ports": ports_of} if ports_of else {}),
    }
    # It ends with the leader, not before.
    return _serving(inputs, container, grace_seconds(inputs) + STOP_SECONDS)


def preflight_pod(inputs: Inputs) -> dict[str, Any]:
    """PodSpec of the preflight: the same images, files and nodes, no accelerator; ends by itself."""
    container = {
        **_container(inputs, "preflight", "--revision", REVISION),
        **({"resources": inputs.profile.resources} if inputs.profile.resources else {}),
    }
    return {**_pod(inputs), "restartPolicy": "Never", "containers": [container]}


def build_pod(inputs: Inputs, role: Role) -> dict[str, Any]:
    """PodSpec of the build of an engine: on a GPU of the kind that serves, with the cache to write to."""
    plan = inputs.plan
    container = {
        **_container(inputs, "build", "--revision", REVISION, "--role", role.value, cache_writable=True),
        # trtllm-build makes the ranks one after the other on as many GPUs as it finds.
        **placement.resources(inputs, replace(plan, gpus=1, nodes=1)),
    }
    return {**_pod(inputs), **placement.claims(inputs), "restartPolicy": "Never", "containers": [container]}


def template_metadata(inputs: Inputs) -> dict[str, dict[str, str]]:
    """The user's labels and annotations of the server pods."""
    template = inputs.spec.pod_template
    if template is None or template.metadata is None:
        return {"labels": {}, "annotations": {}}
    return {"labels": dict(template.metadata.labels), "annotations": dict(template.metadata.annotations)}


def _serving(inputs: Inputs, container: dict[str, Any], grace: int) -> dict[str, Any]:
    """A pod that computes, with the user's additions."""
    if inputs.plan.nodes > 1 and inputs.engine.worker.by_ssh:
        key = {"name": "ssh", "mountPath": SSH, "readOnly": True}
        container = {**container, "volumeMounts": [*container["volumeMounts"], key]}
    pod = {
        **_pod(inputs),
        **placement.spreading(inputs),
        **placement.claims(inputs),
        "terminationGracePeriodSeconds": grace,
        "containers": [container],
    }
    template = inputs.spec.pod_template
    if template and template.spec:
        patch = template.spec.model_dump(by_alias=True, exclude_none=True)
        pod = merge({"spec": pod}, {"spec": patch})["spec"]
    return _with_requests(inputs, pod)


def _with_requests(inputs: Inputs, pod: dict[str, Any]) -> dict[str, Any]:
    """`pod` with requests of the serving container for what nobody wrote any of."""
    (container,) = pod["containers"]
    resources = container.get("resources", {})
    written = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    devices = max(1, inputs.plan.gpus_per_pod)
    asked = {"cpu": str(devices * CPUS_PER_GPU), "memory": f"{devices * GIB_PER_GPU}Gi"}
    missing = {name: amount for name, amount in asked.items() if name not in written}
    resources = {**resources, "requests": {**missing, **(resources.get("requests") or {})}}
    return {**pod, "containers": [{**container, "resources": resources}]}


def _pod(inputs: Inputs) -> dict[str, Any]:
    """What pods with models have in common. Pull secrets of the podTemplate too: the images are the same."""
    scheduling = placement.scheduling(inputs.spec.placement, inputs.engine.oldest_gpu)
    return {
        **every_pod(inputs.pods.user_ids, scheduling, _pull_secrets(inputs)),
        "initContainers": [
            {
                "name": "tandem",
                "image": inputs.serving_image,
                "command": ["cp", "-R", f"{TANDEM}/.", "/target/"],
                "securityContext": CONTAINER_SECURITY,
                "resources": inputs.pods.init_resources,
                "volumeMounts": [{"name": "tandem", "mountPath": "/target"}],
            }
        ],
        "volumes": volumes(inputs.spec, inputs.engine),
    }


def _pull_secrets(inputs: Inputs) -> list[dict[str, Any]]:
    """The administrator's, then the podTemplate's."""
    template = inputs.spec.pod_template
    own = (template.spec.image_pull_secrets if template and template.spec else None) or []
    shared = [{"name": name} for name in inputs.pods.image_pull_secrets]
    return [*(each for each in shared if each not in own), *own]


def _container(inputs: Inputs, verb: str, *args: str, cache_writable: bool = False) -> dict[str, Any]:
    revision = {"name": "revision", "mountPath": REVISION, "readOnly": True}
    return {
        "name": names.CONTAINER,
        "image": inputs.image,
        "command": [*ENTRYPOINT, verb, *args],
        # The image's own home is read-only; libraries keep their caches below it.
        "env": [{"name": "HOME", "value": TMP}],
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [*mounts(inputs.spec, inputs.engine, cache_writable=cache_writable), revision],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
