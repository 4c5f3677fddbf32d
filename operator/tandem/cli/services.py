"""`tandem status` without a name: the services of a namespace, or of all, each with its state."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import typer
from rich.table import Table
from rich.text import Text

from tandem.api import GROUP, PLURAL
from tandem.api.conditions import ConditionType, ServingReason
from tandem.api.types import Condition, SpeculativeInferenceService
from tandem.cli.live import parse
from tandem.cli.words import NARROW, NONE, listing
from tandem.client import kubectl
from tandem.client.generate.format import printable

WIDE = ("PROFILE", "REVISION", "URL")
COLUMNS = ("NAMESPACE", "NAME", "MODE", "TYPE", "READY", "REPLICAS", *WIDE, "STATE")
NOT_LOOKED_AT = "the operator has not acted on this spec yet: check that it runs"


class ServiceState(NamedTuple):
    """How far a service is: by kstatus, its status must be of the present generation."""

    ready: bool
    """Its pods answer."""
    settled: bool
    """And the operator has nothing left to do."""
    failed: bool
    """A person must act."""
    reason: str
    message: str


def state(service: SpeculativeInferenceService) -> ServiceState:
    """https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md. Pure."""
    shown = {str(condition.type): condition for condition in service.status.conditions}
    if service.status.observed_generation != service.generation or ConditionType.READY not in shown:
        return ServiceState(False, False, False, "NotObserved", NOT_LOOKED_AT)
    ready, stalled = shown[ConditionType.READY], _true(shown.get(ConditionType.STALLED))
    reconciling = _true(shown.get(ConditionType.RECONCILING))
    why = stalled or reconciling or ready
    is_ready = ready.status == "True"
    return ServiceState(
        is_ready, is_ready and not (stalled or reconciling), bool(stalled), str(why.reason), why.message
    )


def _true(condition: Condition | None) -> Condition | None:
    return condition if condition and condition.status == "True" else None


async def read(namespace: str | None, everywhere: bool) -> list[SpeculativeInferenceService]:
    """Services of a namespace (the context's when None), or of all, by name. Those of a newer version are left out
    with a warning. Raises kubectl.ClusterError, also where all are."""
    place = ["--all-namespaces"] if everywhere else ["--namespace", namespace] if namespace else []
    found, unknown = list[SpeculativeInferenceService](), list[kubectl.ClusterError]()
    for item in await kubectl.listed(f"{PLURAL}.{GROUP}", *place):
        try:
            found.append(parse(item))
        except kubectl.ClusterError as error:
            unknown.append(error)
    if unknown and not found:
        raise unknown[0]
    for each in unknown:
        typer.secho(f"warning: {each}", fg=typer.colors.YELLOW, err=True)
    return sorted(found, key=lambda service: (service.namespace, service.name))


def summary(service: SpeculativeInferenceService) -> dict[str, Any]:
    """One service for programs; what is not known is null. Pure."""
    spec, status, now = service.spec, service.status, state(service)
    return {
        "namespace": service.namespace,
        "name": service.name,
        "mode": str(spec.runtime.mode),
        "decodingType": str(spec.speculation.decoding_type),
        "profile": spec.runtime.profile,
        "ready": now.ready,
        "reconciling": not (now.settled or now.failed),
        "stalled": now.failed,
        "reason": now.reason,
        "message": now.message,
        "deleting": "deletionTimestamp" in service.metadata,
        "url": status.url,
        "openAIURL": status.openai_url,
        "currentRevision": status.current_revision,
        "updateRevision": status.update_revision,
        "replicas": spec.replicas,
        "readyReplicas": status.ready_replicas or 0,
    }


def table(
    services: Sequence[SpeculativeInferenceService], *, everywhere: bool, wide: bool, columns: int
) -> Table | Text:
    """One row a service, for a terminal of so many columns. Pure."""
    if not services:
        return Text(none_here(everywhere))
    left_out = {*(() if everywhere else ("NAMESPACE",)), *(() if wide else WIDE)}
    left_out |= {"MODE", "TYPE", "REPLICAS"} if columns < NARROW else set()
    shown = [column for column in COLUMNS if column not in left_out]
    made = listing(shown, ("NAMESPACE", "NAME", "URL", "STATE"))
    for service in services:
        cells = _cells(service)
        made.add_row(*(cells[column] for column in shown))
    return made


def _cells(service: SpeculativeInferenceService) -> dict[str, Text]:
    spec, status, now = service.spec, service.status, state(service)
    good = now.settled and now.reason == ServingReason.SERVERS_ANSWER
    cells = {
        "NAMESPACE": service.namespace,
        "NAME": service.name,
        "MODE": str(spec.runtime.mode),
        "TYPE": str(spec.speculation.decoding_type),
        "READY": str(now.ready),
        "REPLICAS": f"{status.ready_replicas or 0}/{spec.replicas}",
        "PROFILE": spec.runtime.profile,
        "REVISION": status.current_revision or NONE,
        "URL": status.url or NONE,
        "STATE": printable(now.reason if good else f"{now.reason}: {now.message}"),
    }
    colours = {"READY": "green" if now.ready else "red" if now.failed else "yellow"}
    return {column: Text(text, colours.get(column, "")) for column, text in cells.items()}


def none_here(everywhere: bool) -> str:
    """Where there are no services."""
    return "there are no services" + ("" if everywhere else " here; -A shows those of all namespaces")
