"""`tandem render`: a resource to its children, offline."""

import sys
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from tandem import build
from tandem.accept import Refusal, accept
from tandem.api import KIND
from tandem.api.types import SpeculativeInferenceService
from tandem.errors import TandemError
from tandem.render import LATEST, Record, render
from tandem.settings import Settings
from tandem.sources import CACHE
from tandem.stages import build_tasks, fetch_tasks, makes_cache, preflight_task


class RenderError(TandemError):
    """The resource cannot be rendered; the message says what to write."""


def read_text(file: Path) -> str:
    """The text of `file`, of standard input for `-`. Raises RenderError."""
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return data.decode()
    except OSError as error:
        raise RenderError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RenderError(f"{file} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def render_file(text: str, settings: Settings) -> str:
    """The manifests of all services in `text`, as the operator would apply them for new services.

    Owner references are left out: they need the UID that the API server gives. So does the folder of a model that
    is downloaded: it is named after the content, here after its URI and revision.

    Raises:
        RenderError: no service in it, a wrong field, or a spec that the settings' profiles cannot run.
    """
    try:
        documents = [document for document in yaml.safe_load_all(text) if document]
    except yaml.YAMLError as error:
        raise RenderError(f"not YAML: {error}") from error
    services = [document for document in documents if isinstance(document, dict) and document.get("kind") == KIND]
    if not services:
        raise RenderError(f"no {KIND} in the file")
    manifests = [manifest for service in services for manifest in _children(service, settings)]
    return yaml.safe_dump_all(manifests, sort_keys=False, width=110)


def _children(raw: dict[str, Any], settings: Settings) -> list[dict[str, Any]]:
    raw = {**raw, "metadata": {"namespace": "default", **raw.get("metadata", {})}}
    try:
        service = SpeculativeInferenceService.model_validate(raw)
    except ValidationError as error:
        lines = [f"  {'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        raise RenderError("\n".join([f"{raw['metadata'].get('name')}:", *lines])) from error
    accepted = accept(service.spec, settings)
    if isinstance(accepted, Refusal):
        raise RenderError(f"{service.name}: {accepted.reason}: {accepted.message}")
    fetches = fetch_tasks(service, settings)
    record = Record(
        renderer=LATEST,
        serving_image=settings.serving_image,
        profile=accepted.profile,
        spec=service.spec,
        fetched={role: f"{CACHE}/models/{task.digest}" for role, task in fetches.items()},
    )
    revision = render(record)
    tasks = {task.digest: task for task in [*fetches.values(), *build_tasks(service, revision).values()]}
    policy = build.network_policy(service, revision.nodes, settings.metrics_peers)
    preflight = preflight_task(service, accepted.profile, revision)
    return [
        build.service_account(service),
        build.disruption_budget(service),
        *([policy] if policy else []),
        *([build.cache_claim(service)] if makes_cache(service.spec, accepted.profile) else []),
        build.revision_configmap(service, revision),
        build.endpoint(service),
        *(build.task_job(service, task) for task in [*tasks.values(), preflight]),
        build.workload(service, revision),
    ]
