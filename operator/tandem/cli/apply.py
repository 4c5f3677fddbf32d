"""`tandem apply`: checks resources offline, applies them, and waits until the services are Ready."""

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tandem.api import API_VERSION, GROUP, KIND, PLURAL
from tandem.api.conditions import ConditionType
from tandem.api.types import SpeculativeInferenceService
from tandem.api.wire import Object
from tandem.cli.known_settings import known_settings
from tandem.cli.live import parse
from tandem.cli.manifests import Judged, ManifestError, judge_sources, objects, sources
from tandem.cli.services import state
from tandem.client import kubectl
from tandem.settings import Settings

FIELD_MANAGER = "tandem-apply"
"""Not the operator's: what this command applied stays its own."""
POLL_SECONDS = 1.0
STAGES = (
    *(ConditionType.SPEC_ACCEPTED, ConditionType.MODELS_READY, ConditionType.ENGINES_READY),
    *(ConditionType.PAIR_COMPATIBLE, ConditionType.AVAILABLE),
)
"""What a service goes through until it is Ready, in order."""
NOT_ASKED = "the operator's settings cannot be read, so its profiles are not checked: give them with --settings"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Checked:
    """Objects of files whose services are right, as far as is known offline."""

    objects: list[Object]
    judged: list[Judged]
    settings: Settings | None
    """The operator's, by which they were checked; None: not known."""


async def check(files: Iterable[Path], settings_file: Path | None) -> Checked:
    """Read files, and check their services by the settings that are known.

    Raises:
        ManifestError: all that is wrong with any.
        SettingsError: the settings cannot be parsed.
    """
    settings = await known_settings(settings_file)
    read = [replace(each, listed=True) for each in sources(files)]  # one may have other kinds alone
    judged = judge_sources(read, settings)
    if faults := [fault for one in judged for fault in one.faults]:
        raise ManifestError("\n".join(faults))
    return Checked(objects(read), judged, settings)


async def apply(
    found: Sequence[Object], namespace: str | None, *, force: bool, dry_run: bool = False
) -> list[Object]:
    """Apply objects server-side; returns them as the API server has them.

    `force`: take over fields that others manage. Raises kubectl.ClusterError.
    """
    place = ["--namespace", namespace] if namespace else []
    options = ["--server-side", f"--field-manager={FIELD_MANAGER}", "--output=json", "--filename=-"]
    options += ["--force-conflicts"] * force + ["--dry-run=server"] * dry_run
    answer = await kubectl.run("apply", *place, *options, stdin=json.dumps(as_list(found)))
    if answer.code:
        conflict = "conflict" in answer.errors
        hint = "\n--force-conflicts takes the fields over" if conflict else ""
        raise kubectl.ClusterError(f"{answer.errors if conflict else kubectl.explain(answer.error)}{hint}")
    applied = kubectl.parsed(answer.out)
    return list(applied["items"]) if applied["kind"] == "List" else [applied]


def as_list(found: Iterable[Object]) -> Object:
    """Objects as one."""
    return {"apiVersion": "v1", "kind": "List", "items": [*found]}


def services_of(applied: Iterable[Object]) -> list[Object]:
    """The services among objects."""
    return [each for each in applied if (each.get("apiVersion"), each.get("kind")) == (API_VERSION, KIND)]


@dataclass
class Waiting:
    """What was reported of a service that is waited for."""

    started: float
    passed: set[ConditionType] = field(default_factory=set)
    now: str = ""
    """What is in the way."""


async def wait(services: Sequence[Object], seconds: float, done: Say, doing: Say) -> list[str]:
    """Wait until each service is Ready at its present generation, or fails; returns what keeps those that are not.

    `done` gets each stage once, `doing` what is waited for. An API server that is away is asked again.
    """
    failures = await asyncio.gather(*(_wait(service, seconds, done, doing) for service in services))
    return [failure for failure in failures if failure]


async def _wait(service: Object, seconds: float, done: Say, doing: Say) -> str:
    name, seen = service["metadata"]["name"], Waiting(time.monotonic())
    while True:
        elapsed = time.monotonic() - seen.started
        try:
            live = parse(
                await kubectl.get(f"{PLURAL}.{GROUP}", name, "--namespace", service["metadata"]["namespace"])
            )
        except kubectl.ClusterError as error:
            if "(NotFound)" in str(error):
                return f"{name} was deleted meanwhile"
            seen.now = str(error)
        else:
            for line in progress(live, seen, elapsed):
                done(line)
            now = state(live)
            seen.now = f"{now.reason}: {now.message}"
            if now.settled or now.failed:
                return f"{name}: {seen.now}" if now.failed else ""
        if elapsed >= seconds:
            return f"{name} is not Ready after {seconds:.0f} s: {seen.now}"
        doing(f"{name}: {seen.now}")
        await asyncio.sleep(POLL_SECONDS)


def progress(service: SpeculativeInferenceService, seen: Waiting, elapsed: float) -> Iterator[str]:
    """The stages that are new, a line each; notes them in `seen`."""
    status = service.status
    if status.observed_generation != service.generation:
        return
    true = {condition.type: condition for condition in status.conditions if condition.status == "True"}
    final = [ConditionType.READY] if state(service).settled else []
    for stage in (*STAGES, *final):
        if stage in true and stage not in seen.passed:
            seen.passed.add(stage)
            yield f"{service.name}: {stage}: {true[stage].message} ({elapsed:.0f} s)"
