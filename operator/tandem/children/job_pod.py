"""What the pods of all Jobs have in common: the administrator's defaults and the service's own, with what each needs.

Of two that write the same, the later wins: the administrator (`Settings.jobs`), the servers' podTemplate,
`spec.jobs`, and what Tandem decides. No result depends on it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tandem import names
from tandem.api.types import JobTemplate, ServiceSpec
from tandem.api.types.placement import ContainerTemplate
from tandem.api.wire import Object
from tandem.children.resources import over
from tandem.settings import JobSettings

CA_VOLUME, CA = "tandem-ca", "/etc/tandem/ca"
"""Where the authorities of `caConfigMap` are mounted."""
CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE")
"""What names them to the clients in our images: OpenSSL and rustls, requests, curl, and the AWS SDKs."""
NAMESPACE = {"name": "TANDEM_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
"""Who asks for a folder of the cache volume, which claims of several namespaces may share. A preflight makes none."""
STORAGE = ("persistentVolumeClaim", "ephemeral", "image")
"""Kinds of volumes of the podTemplate that stay with the servers: one node may hold them, or they are large."""
INIT_RESOURCES = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}}
RESOURCES: Mapping[str, Object] = {
    names.FETCH: {"requests": {"cpu": "200m", "memory": "256Mi"}, "limits": {"cpu": "4", "memory": "2Gi"}},
    # It imports the image's TensorRT-LLM.
    names.PREFLIGHT: {"requests": {"cpu": "200m", "memory": "1Gi"}, "limits": {"cpu": "4", "memory": "16Gi"}},
    # What it takes depends on the model, so it has no limit by itself.
    names.BUILD: {"requests": {"cpu": "2", "memory": "16Gi"}},
}
"""Requests and limits by component where nobody writes others; of CPUs too, which a ResourceQuota may ask for."""


@dataclass(frozen=True)
class JobPodTemplate:
    """The pod of a Job: PodSpec, and metadata beside that of Tandem (`labels`, `annotations`)."""

    spec: Object
    metadata: Mapping[str, Mapping[str, str]]


def job_pod(spec: ServiceSpec, defaults: JobSettings, component: str, pod: Mapping[str, Any]) -> JobPodTemplate:
    """`pod`, of a task of `component`, with what its Job has in common with others."""
    layers = [defaults, *([spec.jobs] if spec.jobs else [])]
    (container,) = pod["containers"]
    template = _template(spec)
    files = _files(spec, layers)
    own = [*container.get("env", []), *([] if component == names.PREFLIGHT else [NAMESPACE])]
    merged = {
        **container,
        "env": _by_name([*_ca_variables(layers), *_env(defaults, template, spec.jobs), *own]),
        "envFrom": [*_env_from(defaults, template, spec.jobs), *container.get("envFrom", [])],
        "resources": _resources(spec, defaults, component, container.get("resources") or {}),
        "volumeMounts": [*container["volumeMounts"], *_mounts(template, files)],
        **_pull_policy(container["name"], template),
    }
    shared = [{"name": secret.name} for secret in defaults.image_pull_secrets]
    secrets = _by_name([*shared, *pod.get("imagePullSecrets", [])])
    extended = {
        **pod,
        "containers": [{name: value for name, value in merged.items() if value != []}],
        "volumes": [*pod["volumes"], *files],
        **({"imagePullSecrets": secrets} if secrets else {}),
        **_init(pod, spec, layers),
    }
    return JobPodTemplate(extended, _metadata(spec, layers))


def init_resources(layers: Iterable[JobTemplate]) -> Object:
    """Requests and limits of an init container, which copies a few files."""
    found: Object = INIT_RESOURCES
    for layer in layers:
        found = over(found, layer.resources)
    return found


def _template(spec: ServiceSpec) -> ContainerTemplate | None:
    containers = spec.pod_template.spec.containers if spec.pod_template and spec.pod_template.spec else []
    return containers[0] if containers else None


def _env(*writers: JobTemplate | ContainerTemplate | None) -> list[Object]:
    return [variable for writer in writers if writer for variable in writer.env or []]


def _env_from(*writers: JobTemplate | ContainerTemplate | None) -> list[Object]:
    return [source for writer in writers if writer for source in writer.env_from or []]


def _ca_variables(layers: Sequence[JobTemplate]) -> list[Object]:
    source = _ca(layers)
    return [{"name": name, "value": f"{CA}/{source.ca_key}"} for name in CA_VARIABLES] if source else []


def _ca(layers: Sequence[JobTemplate]) -> JobTemplate | None:
    return next((layer for layer in reversed(layers) if layer.ca_config_map), None)


def _files(spec: ServiceSpec, layers: Sequence[JobTemplate]) -> list[Object]:
    """Volumes beside those that the task needs: the podTemplate's that are no storage, and the authorities'."""
    template = spec.pod_template.spec if spec.pod_template else None
    found = [volume for volume in (template and template.volumes) or [] if not volume.keys() & set(STORAGE)]
    if source := _ca(layers):
        found = [*found, {"name": CA_VOLUME, "configMap": {"name": source.ca_config_map}}]
    return found


def _mounts(template: ContainerTemplate | None, files: Sequence[Object]) -> list[Object]:
    there = {volume["name"] for volume in files}
    own = [mount for mount in (template and template.volume_mounts) or [] if mount["name"] in there]
    ca = [{"name": CA_VOLUME, "mountPath": CA, "readOnly": True}] if CA_VOLUME in there else []
    return [*own, *ca]


def _pull_policy(container: str, template: ContainerTemplate | None) -> Object:
    """The podTemplate's, for the same image."""
    policy = template.image_pull_policy if template and container == names.CONTAINER else None
    return {"imagePullPolicy": policy} if policy else {}


def _resources(spec: ServiceSpec, defaults: JobSettings, component: str, own: Object) -> Object:
    """`own`: the task's, such as its GPU."""
    builds, template, jobs = component == names.BUILD, _template(spec), spec.jobs
    found = over(RESOURCES[component], own)
    for layer in (
        defaults.resources,
        defaults.build_resources if builds else None,
        template.resources if builds and template else None,
        jobs.resources if jobs else None,
        jobs.build_resources if builds and jobs else None,
    ):
        found = over(found, layer)
    return found


def _init(pod: Mapping[str, Any], spec: ServiceSpec, layers: Sequence[JobTemplate]) -> Object:
    template = spec.pod_template.spec if spec.pod_template else None
    own = (template and template.init_containers) or []
    written = own[0].resources if own else None
    resources = over(init_resources(layers), written)
    containers = [{**each, "resources": resources} for each in pod.get("initContainers", [])]
    return {"initContainers": containers} if containers else {}


def _metadata(spec: ServiceSpec, layers: Sequence[JobTemplate]) -> dict[str, dict[str, str]]:
    shared, *own = layers
    template = spec.pod_template.metadata if spec.pod_template else None
    writers = [each for each in (shared, template, *own) if each]
    merged = {
        "labels": {key: value for each in writers for key, value in each.labels.items()},
        "annotations": {key: value for each in writers for key, value in each.annotations.items()},
    }
    return {kind: entries for kind, entries in merged.items() if entries}


def _by_name(items: Iterable[Object]) -> list[Object]:
    """The last of each name, where the first stood."""
    return list({item["name"]: item for item in items}.values())
