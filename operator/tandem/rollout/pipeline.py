"""The tasks between a spec and its servers: download the models, build the engines, check that all fit. Pure."""

from collections.abc import Mapping
from typing import Any

from tandem import names
from tandem.api.conditions import ConditionType
from tandem.api.types import Mode, ServiceSpec, Source, SpeculativeInferenceService
from tandem.children import Task
from tandem.children.metadata import pod_with_revision
from tandem.digest import digest
from tandem.render import Revision
from tandem.render.inputs import JobPod
from tandem.render.v1.security import CONTAINER_SECURITY, POD_SECURITY
from tandem.render.v1.sources import CACHE, ENGINES, TOKENIZERS, Role, downloads, drafts_by_heads
from tandem.render.v1.volumes import claim_name, uses_cache
from tandem.rollout.observed import Observed
from tandem.rollout.tasks import pinned
from tandem.settings import Profile, Settings

FETCH_PORT = 8080
"""Where a pod that downloads tells its progress."""
DAY_SECONDS = 24 * 3600
FILES: Mapping[Role, tuple[str, ...]] = {
    **dict.fromkeys(ENGINES.values(), ("*.engine", "config.json")),
    # generation_config.json names the tokens that end a text, config.json where that one is missing.
    **dict.fromkeys(
        TOKENIZERS.values(),
        ("tokenizer*", "special_tokens_map.json", "*.jinja", "generation_config.json", "config.json"),
    ),
}
"""Patterns of the files to fetch where it is no model."""
HEADS = ("*.json", "*.safetensors", "*.bin")
"""The same of heads: some are published as *.bin alone. TensorRT-LLM reads these as weights and nothing else
(`torch.load(weights_only=True)` in its HfWeightLoader), and only where there is no *.safetensors."""


def makes_cache(spec: ServiceSpec, profile: Profile) -> bool:
    """Whether the service needs the namespace's own claim."""
    return uses_cache(spec, profile) and not spec.storage.cache.claim_name


def condition_types(spec: ServiceSpec, profile: Profile) -> tuple[ConditionType, ...]:
    """Types of the conditions that the tasks of a spec decide, in the order in which they do."""
    # Mode LLMAPI: the engine's arguments, which the image's own classes judge.
    engines = spec.runtime.mode is Mode.LLMAPI or profile.engine_backend == "tensorrtllm"
    return (
        ConditionType.MODELS_READY,
        *([ConditionType.ENGINES_READY] if engines else []),
        *([ConditionType.PAIR_COMPATIBLE] if spec.draft else []),
    )


def fetch_tasks(
    service: SpeculativeInferenceService, settings: Settings, observed: Observed | None = None
) -> dict[Role, Task]:
    """Downloads into the cache volume. Models that two roles share are fetched by one of them.

    `observed`: what was fetched once is fetched again in that revision.
    """
    tasks = {role: _fetch(service, settings, role, ref) for role, ref in downloads(service.spec).items()}
    if observed is None:
        return tasks
    pins = {role: pinned(observed, task.name(service.name)) for role, task in tasks.items()}
    return {role: _fetch(service, settings, role, ref, pins[role]) for role, ref in downloads(service.spec).items()}


def _fetch(
    service: SpeculativeInferenceService, settings: Settings, role: Role, reference: Source, pin: str = ""
) -> Task:
    heads = role is Role.DRAFT and drafts_by_heads(service.spec)
    files = HEADS if heads else FILES.get(role, ())
    inputs: dict[str, Any] = {
        "uri": reference.uri,
        "revision": reference.revision or "",
        "secret": reference.secret_name or "",
        **({"files": files} if files else {}),
        **({"claim": claim} if (claim := service.spec.storage.cache.claim_name) else {}),
    }
    return Task(
        component=names.FETCH,
        digest=digest(inputs),
        pod=_fetch_pod(service, settings, reference.model_copy(update={"revision": pin} if pin else {}), files),
        conditions=(ConditionType.MODELS_READY,),
        title=f"downloads {reference.uri}",
        retries=10,
        deadline_seconds=DAY_SECONDS,
        refusal_is_final=False,
        claim=claim_name(service.spec),
    )


def _fetch_pod(
    service: SpeculativeInferenceService, settings: Settings, reference: Source, files: tuple[str, ...]
) -> dict[str, Any]:
    placement = service.spec.placement
    secret = [{"secretRef": {"name": reference.secret_name}}] if reference.secret_name else []
    pod: dict[str, Any] = {
        "serviceAccountName": names.server(service.name),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 10,
        "securityContext": POD_SECURITY,
        "containers": [
            {
                "name": names.FETCH,
                "image": settings.fetcher_image,
                "command": [
                    *("python3", "-m", "tandem_fetcher", "fetch", "--uri", reference.uri, "--cache", CACHE),
                    *(("--revision", reference.revision) if reference.revision else ()),
                    *(word for pattern in files for word in ("--allow", pattern)),
                    *("--port", str(FETCH_PORT), "--termination-log", "/dev/termination-log"),
                ],
                "env": [{"name": "HOME", "value": "/tmp"}],
                **({"envFrom": secret} if secret else {}),
                "securityContext": CONTAINER_SECURITY,
                "resources": {"requests": {"cpu": "200m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}},
                "volumeMounts": [{"name": "cache", "mountPath": CACHE}, {"name": "tmp", "mountPath": "/tmp"}],
                "terminationMessagePolicy": "FallbackToLogsOnError",
            }
        ],
        "volumes": [
            {"name": "cache", "persistentVolumeClaim": {"claimName": claim_name(service.spec)}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
        ],
    }
    # Where the servers run: a volume of one node or zone must be made there.
    if placement.node_selector:
        pod["nodeSelector"] = dict(placement.node_selector)
    if nodes := (placement.affinity or {}).get("nodeAffinity"):
        pod["affinity"] = {"nodeAffinity": nodes}
    if placement.tolerations:
        pod["tolerations"] = [t.model_dump(by_alias=True, exclude_none=True) for t in placement.tolerations]
    template = service.spec.pod_template
    if template and template.spec and template.spec.image_pull_secrets:
        # A registry that wants one for the servers' images may hold the fetcher's too.
        pod["imagePullSecrets"] = template.spec.image_pull_secrets
    return pod


def build_tasks(service: SpeculativeInferenceService, revision: Revision) -> dict[Role, Task]:
    """The engines of a revision."""
    return {
        role: Task(
            component=names.BUILD,
            digest=job.digest,
            pod=_with_revision(service, revision, job),
            conditions=(ConditionType.ENGINES_READY,),
            title=f"builds the {role} engine",
            deadline_seconds=DAY_SECONDS,
            refusal_is_final=False,
            claim=claim_name(service.spec),
            folder=job.folder,
        )
        for role, job in revision.builds.items()
    }


def preflight_task(service: SpeculativeInferenceService, profile: Profile, revision: Revision) -> Task:
    """The check of a revision's models and engines, in its own image."""
    return Task(
        component=names.PREFLIGHT,
        digest=revision.preflight.digest,
        pod=_with_revision(service, revision, revision.preflight),
        conditions=condition_types(service.spec, profile),
        title="checks the models",
        claim=claim_name(service.spec) if uses_cache(service.spec, profile) else "",
    )


def _with_revision(service: SpeculativeInferenceService, revision: Revision, job: JobPod) -> Mapping[str, Any]:
    configmap = names.revision(service.name, revision.digest)
    return pod_with_revision(dict(job.pod), configmap, names.server(service.name))
