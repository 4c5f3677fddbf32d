"""The tasks between a spec and its servers: download the models, build the engines, check that all fit. Pure."""

from collections.abc import Mapping
from typing import Any

from tandem import names
from tandem.api.conditions import ConditionType
from tandem.api.roles import ENGINES, TOKENIZERS, Role, downloads, drafts_by_heads
from tandem.api.types import ServiceSpec, Source, SpeculativeInferenceService
from tandem.children import Task
from tandem.children.fetch import fetch_pod
from tandem.children.job_pod import JobPodTemplate, job_pod
from tandem.children.metadata import pod_with_revision
from tandem.digest import digest
from tandem.engines import Engine
from tandem.render import Revision
from tandem.render.latest import claim_name, pod_security, uses_cache
from tandem.render.rendered import JobPod
from tandem.rollout.observed import Observed
from tandem.settings import Settings

DAY_SECONDS = 24 * 3600
FILES: Mapping[Role, tuple[str, ...]] = {
    **dict.fromkeys(ENGINES.values(), ("*.engine", "config.json")),
    # generation_config.json names the tokens that end a text, config.json where that one is missing.
    **dict.fromkeys(
        TOKENIZERS.values(),
        ("tokenizer*", "special_tokens_map.json", "*.jinja", "generation_config.json", "config.json"),
    ),
    Role.MEDUSA_HEADS: ("*.json", "*.safetensors"),
}
"""Patterns of the files to fetch where it is no model."""
HEADS = ("*.json", "*.safetensors", "*.bin")
"""The same of heads: some are published as *.bin alone. TensorRT-LLM reads these as weights and nothing else
(`torch.load(weights_only=True)` in its HfWeightLoader), and only where there is no *.safetensors. The fetcher leaves
out the state of a training, and *.bin next to *.safetensors."""


def makes_cache(spec: ServiceSpec, engine: Engine) -> bool:
    """Whether the service needs the namespace's own claim."""
    return uses_cache(spec, engine) and not spec.storage.cache.claim_name


def condition_types(spec: ServiceSpec, engine: Engine) -> tuple[ConditionType, ...]:
    """Types of the conditions that the tasks of a spec decide, in the order in which they do."""
    return (
        ConditionType.MODELS_READY,
        *([ConditionType.ENGINES_READY] if engine.judges_arguments else []),
        *([ConditionType.PAIR_COMPATIBLE] if spec.draft else []),
    )


def fetch_tasks(service: SpeculativeInferenceService, settings: Settings, observed: Observed) -> dict[Role, Task]:
    """Downloads into the cache volume. Models that two roles share are fetched by one of them."""
    return {role: _fetch(service, settings, observed, role, ref) for role, ref in downloads(service.spec).items()}


def _fetch(
    service: SpeculativeInferenceService, settings: Settings, observed: Observed, role: Role, reference: Source
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
    fetched = observed.result(names.task(service.name, names.FETCH, digest(inputs)))
    # A branch may have moved on since: what is fetched again is what was there.
    pinned = {"revision": fetched.verdict.commit} if fetched and fetched.verdict.commit else {}
    bare = fetch_pod(service, settings, reference.model_copy(update=pinned), files)
    pod = job_pod(service.spec, settings.jobs, names.FETCH, bare)
    return Task(
        service=service.name,
        component=names.FETCH,
        digest=digest(inputs),
        pod=pod.spec,
        conditions=(ConditionType.MODELS_READY,),
        title=f"downloads {reference.uri}",
        retries=10,
        deadline_seconds=DAY_SECONDS,
        refusal_is_final=False,
        claim=claim_name(service.spec),
        metadata=pod.metadata,
    )


def build_tasks(service: SpeculativeInferenceService, settings: Settings, revision: Revision) -> dict[Role, Task]:
    """The engines of a revision."""
    return {role: _build(service, settings, revision, role) for role in revision.builds}


def _build(service: SpeculativeInferenceService, settings: Settings, revision: Revision, role: Role) -> Task:
    job = revision.builds[role]
    pod = _of_revision(service, settings, revision, names.BUILD, job)
    return Task(
        service=service.name,
        component=names.BUILD,
        digest=job.digest,
        pod=pod.spec,
        conditions=(ConditionType.ENGINES_READY,),
        title=f"builds the {role} engine",
        deadline_seconds=DAY_SECONDS,
        refusal_is_final=False,
        claim=claim_name(service.spec),
        folder=job.folder,
        metadata=pod.metadata,
    )


def preflight_task(service: SpeculativeInferenceService, settings: Settings, revision: Revision) -> Task:
    """The check of a revision's models and engines, in its own image."""
    engine = revision.record.engine
    pod = _of_revision(service, settings, revision, names.PREFLIGHT, revision.preflight)
    return Task(
        service=service.name,
        component=names.PREFLIGHT,
        digest=revision.preflight.digest,
        pod=pod.spec,
        conditions=condition_types(service.spec, engine),
        title="checks the models",
        claim=claim_name(service.spec) if uses_cache(service.spec, engine) else "",
        metadata=pod.metadata,
    )


def _of_revision(
    service: SpeculativeInferenceService, settings: Settings, revision: Revision, component: str, job: JobPod
) -> JobPodTemplate:
    """The pod of a task with the revision's files. Its users are today's: the revision may be older."""
    configmap = names.revision(service.name, revision.digest)
    pod = pod_with_revision(dict(job.pod), configmap, names.server(service.name))
    pod = {**pod, "securityContext": pod_security(settings.user_ids)}
    return job_pod(service.spec, settings.jobs, component, pod)
