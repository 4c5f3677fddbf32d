"""What the user adds to pods (`podTemplate`, `jobs`, `serving.openAI.resources`): it changes nothing that Tandem
decides."""

import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from tandem.accept.pod_volumes import volumes_that_undo
from tandem.api import GROUP
from tandem.api.conditions import SpecReason
from tandem.api.types import ServiceSpec
from tandem.api.types.placement import ContainerTemplate, JobTemplate, PodTemplate
from tandem.engines import Engine
from tandem.engines.rule import Refusal, Rule
from tandem.render.latest import OWN_PATHS, OWN_VOLUMES, SOURCE_PREFIX, claim_name

VOLUME_KINDS = (
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
)
"""Kinds that Pod Security `restricted` allows."""
OWN_ENV = ("HOME",)
OWN_ENV_PREFIXES = ("TANDEM_", "LWS_")
OWN_METADATA_PREFIXES = (
    f"{GROUP}/",
    "app.kubernetes.io/",
    "leaderworkerset.sigs.k8s.io/",
    "container.apparmor.security.beta.kubernetes.io/",
    "seccomp.security.alpha.kubernetes.io/",
)
OWN_LABELS = ("pod-template-hash", "controller-revision-hash", "statefulset.kubernetes.io/pod-name")


def _pod_template(spec: ServiceSpec, engine: Engine) -> Refusal | None:
    template = spec.pod_template
    if template is None:
        return None
    found = [f"podTemplate.{problem}" for problem in _problems(template, spec, engine)]
    return Refusal(SpecReason.POD_TEMPLATE_REFUSED, "; ".join(found)) if found else None


def _jobs(spec: ServiceSpec, engine: Engine) -> Refusal | None:
    if spec.jobs is None:
        return None
    problem = next(_problems_of_jobs(spec.jobs, spec, engine), None)
    return Refusal(SpecReason.POD_TEMPLATE_REFUSED, f"jobs.{problem}") if problem else None


def _endpoint(spec: ServiceSpec, engine: Engine) -> Refusal | None:
    problem = next(_resources("serving.openAI.resources", spec.serving.open_ai.resources, spec), None)
    return Refusal(SpecReason.POD_TEMPLATE_REFUSED, problem) if problem else None


def _problems_of_jobs(jobs: JobTemplate, spec: ServiceSpec, engine: Engine) -> Iterator[str]:
    for path in _directives(jobs.model_dump(by_alias=True, exclude_none=True), ""):
        yield f"{path} is a directive of merge patches: write the fields themselves"
    for kind, entries in {"labels": jobs.labels, "annotations": jobs.annotations}.items():
        yield from _keys(kind, entries)
    yield from _environment("env", jobs.env, _own_env(spec, engine))
    yield from _resources("resources", jobs.resources, spec)
    yield from _resources("buildResources", jobs.build_resources, spec)


def _problems(template: PodTemplate, spec: ServiceSpec, engine: Engine) -> Iterator[str]:
    patch = template.model_dump(by_alias=True, exclude_none=True)
    for path in _directives(patch, ""):
        yield f"{path} is a directive of merge patches: write the fields themselves"
    yield from _metadata(patch.get("metadata", {}))
    if template.spec is None:
        return
    yield from _volumes(template.spec.volumes or [])
    yield from volumes_that_undo(template.spec, claim_name(spec))
    for index, secret in enumerate(template.spec.image_pull_secrets or []):
        if not isinstance(secret.get("name"), str):
            yield f"spec.imagePullSecrets[{index}] has no name: write one"
    own = {str(volume.get("name")) for volume in template.spec.volumes or []}
    for container in template.spec.containers:
        yield from _environment("spec.containers[0].env", container.env or [], _own_env(spec, engine))
        yield from _mounts(container, own)
        yield from _resources("spec.containers[0].resources", container.resources, spec)
    for init in template.spec.init_containers or []:
        yield from _resources("spec.initContainers[0].resources", init.resources, spec)


def _directives(value: Any, path: str) -> Iterator[str]:
    """Paths of keys that begin with `$`, at any depth."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            here = f"{path}.{key}" if path else str(key)
            if str(key).startswith("$"):
                yield here
            yield from _directives(inner, here)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for index, inner in enumerate(value):
            yield from _directives(inner, f"{path}[{index}]")


def _metadata(metadata: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    for kind, entries in metadata.items():
        yield from (f"metadata.{problem}" for problem in _keys(kind, entries))


def _keys(kind: str, entries: Mapping[str, str]) -> Iterator[str]:
    for key in entries:
        if key.startswith(OWN_METADATA_PREFIXES) or (kind == "labels" and key in OWN_LABELS):
            yield f"{kind}: {key!r} is not for users: choose another key"


def _volumes(volumes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for index, volume in enumerate(volumes):
        where, name = f"spec.volumes[{index}]", volume.get("name")
        if not isinstance(name, str) or not name:
            yield f"{where} has no name: write one"
        elif name in OWN_VOLUMES or name.startswith(SOURCE_PREFIX):
            yield f"{where}: the volume {name!r} is Tandem's own: choose another name"
        kinds = [key for key, value in volume.items() if key != "name" and value is not None]
        unsafe = [kind for kind in kinds if kind not in VOLUME_KINDS]
        if unsafe:
            yield f"{where}: volumes of kind {unsafe[0]!r} are not safe: write one of {', '.join(VOLUME_KINDS)}"
        elif len(kinds) != 1:
            yield f"{where} has {len(kinds)} kinds: write exactly one of {', '.join(VOLUME_KINDS)}"


def _own_env(spec: ServiceSpec, engine: Engine) -> Collection[str]:
    """Variables that Tandem sets, or that would change what it decides."""
    return {*OWN_ENV, *engine.own_environment, *engine.profile.engine.env, *engine.environment(engine.gpu_plan(spec))}


def _environment(field: str, variables: Sequence[Mapping[str, Any]], own: Collection[str]) -> Iterator[str]:
    for index, variable in enumerate(variables):
        where, name = f"{field}[{index}]", variable.get("name")
        if not isinstance(name, str) or not name:
            yield f"{where} has no name: write one"
        elif name in own or name.startswith(OWN_ENV_PREFIXES):
            yield f"{where}: {name} is set by Tandem: remove it"


def _mounts(container: ContainerTemplate, own: set[str]) -> Iterator[str]:
    for index, mount in enumerate(container.volume_mounts or []):
        where = f"spec.containers[0].volumeMounts[{index}]"
        name, path = mount.get("name"), mount.get("mountPath")
        if not isinstance(name, str) or name not in own:
            yield f"{where}: there is no volume {name!r} in podTemplate.spec.volumes: add it there"
        if not isinstance(path, str) or not path.startswith("/"):
            yield f"{where}: mountPath {path!r} is no absolute path: write one"
        elif taken := next((t for t in OWN_PATHS if _overlap(posixpath.normpath(path), t)), None):
            yield f"{where}: mountPath {path!r} would hide or change {taken}: choose another path"


def _overlap(one: str, other: str) -> bool:
    """Whether one path is, or is below, the other."""
    nested = f"{one}/", f"{other}/"
    return one == "/" or nested[0].startswith(nested[1]) or nested[1].startswith(nested[0])


def _resources(field: str, resources: Mapping[str, Any] | None, spec: ServiceSpec) -> Iterator[str]:
    name = spec.placement.gpu.resource_name
    if "claims" in (resources or {}):
        yield f"{field}.claims: write placement.resourceClaims instead"
    for kind in ("limits", "requests"):
        amounts = (resources or {}).get(kind) or {}
        if not isinstance(amounts, Mapping):
            yield f"{field}.{kind} must be a mapping: write it as in a Container"
        elif name in amounts:
            yield (
                f"{field}.{kind}: {name} follows from the models' parallel sizes: write target.tensorParallelSize, or"
                " placement.gpu.resourceName for other devices"
            )


RULES: tuple[Rule, ...] = (_pod_template, _jobs, _endpoint)
