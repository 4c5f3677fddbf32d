"""Secrets and ConfigMaps that a service names. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tandem.api.roles import references as models
from tandem.api.types import ServiceSpec

SECRET, CONFIGMAP = "Secret", "ConfigMap"
TLS, DOCKER = "kubernetes.io/tls", "kubernetes.io/dockerconfigjson"


class Reference(NamedTuple):
    """What is named, and where."""

    kind: str
    name: str
    field: str
    key: str = ""
    """A key that it must have; empty: any."""
    type: str = ""
    """Type of a Secret; empty: any."""


def named(spec: ServiceSpec) -> list[Reference]:
    """All that a service names, but for what is optional."""
    return [*dict.fromkeys((*_of_models(spec), *_of_serving(spec), *_of_jobs(spec), *_of_pods(spec)))]


def _of_models(spec: ServiceSpec) -> Iterator[Reference]:
    for role, source in models(spec).items():
        if source.secret_name:
            yield Reference(SECRET, source.secret_name, f"secretName of the model {role}")
    provided = spec.speculation.user_provided
    if provided and provided.config_map_name:
        yield Reference(CONFIGMAP, provided.config_map_name, "speculation.userProvided.configMapName")


def _of_serving(spec: ServiceSpec) -> Iterator[Reference]:
    openai = spec.serving.open_ai
    if openai.api_key_secret:
        yield Reference(SECRET, openai.api_key_secret, "serving.openAI.apiKeySecret")
    if openai.tls_secret:
        yield Reference(SECRET, openai.tls_secret, "serving.openAI.tlsSecret", type=TLS)


def _of_jobs(spec: ServiceSpec) -> Iterator[Reference]:
    jobs = spec.jobs
    if jobs is None:
        return
    if jobs.ca_config_map:
        yield Reference(CONFIGMAP, jobs.ca_config_map, "jobs.caConfigMap", key=jobs.ca_key)
    yield from _of_variables(jobs.env, jobs.env_from, "jobs")


def _of_pods(spec: ServiceSpec) -> Iterator[Reference]:
    template = spec.pod_template.spec if spec.pod_template else None
    if template is None:
        return
    for pull in template.image_pull_secrets or ():
        yield Reference(SECRET, pull["name"], "podTemplate.spec.imagePullSecrets", type=DOCKER)
    for container in template.containers:
        yield from _of_variables(container.env or (), container.env_from or (), "podTemplate")
    for volume in template.volumes or ():
        where = f"volume {volume.get('name')} of podTemplate"
        if (secret := volume.get("secret")) and not secret.get("optional"):
            yield Reference(SECRET, secret.get("secretName", ""), where)
        if (configmap := volume.get("configMap")) and not configmap.get("optional"):
            yield Reference(CONFIGMAP, configmap.get("name", ""), where)


def _of_variables(env: Any, sources: Any, where: str) -> Iterator[Reference]:
    for variable in env:
        source: Mapping[str, Any] = variable.get("valueFrom") or {}
        for field, kind in (("secretKeyRef", SECRET), ("configMapKeyRef", CONFIGMAP)):
            wanted = source.get(field)
            if wanted and not wanted.get("optional"):
                place = f"variable {variable.get('name')} of {where}"
                yield Reference(kind, wanted.get("name", ""), place, key=wanted.get("key", ""))
    for source in sources:
        for field, kind in (("secretRef", SECRET), ("configMapRef", CONFIGMAP)):
            wanted = source.get(field)
            if wanted and not wanted.get("optional"):
                yield Reference(kind, wanted.get("name", ""), f"envFrom of {where}")
