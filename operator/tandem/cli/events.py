"""`tandem events`: of a service and of all that is its own, the oldest first."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import compress

from rich.table import Table
from rich.text import Text

from tandem import names
from tandem.api import GROUP, KIND, PLURAL
from tandem.api.wire import Object
from tandem.cli.words import NARROW, NONE, age, listing
from tandem.client import kubectl
from tandem.client.generate.format import printable

COLUMNS = ("AGE", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE")
_SUFFIXES = (
    *(names.SERVER, "triton", names.BENCHMARK, "ssh"),
    *(rf"{task}-[0-9a-f]+" for task in names.TASKS),
    "[0-9a-f]{10,}",
)
CHILD = rf"(keda-hpa-)?%s-({'|'.join(_SUFFIXES)})([.-].*)?"
"""Names of a service's children and of what those make, as `tandem.names` and KEDA write them."""


async def read(name: str, namespace: str | None) -> list[Object]:
    """The events, the oldest first. Raises kubectl.ClusterError."""
    place = ["--namespace", namespace] if namespace else []
    service = await kubectl.get(f"{PLURAL}.{GROUP}", name, *place)
    place = ["--namespace", service["metadata"]["namespace"]]
    services = [each["metadata"]["name"] for each in await kubectl.listed(f"{PLURAL}.{GROUP}", *place)]
    cache = service["spec"].get("storage", {}).get("cache", {}).get("claimName") or names.CACHE_CLAIM
    return of_service(await kubectl.listed("events", *place), name, services, cache)


def of_service(events: Iterable[Object], name: str, services: Sequence[str], claim: str) -> list[Object]:
    """The events of a service and its children, those that are gone too, and of its cache's claim, the oldest first.
    `services`: names of all in the namespace. Pure."""
    found = [event for event in events if _concerns(event["involvedObject"], name, services, claim)]
    return sorted(found, key=seen_at)


def _concerns(subject: Object, name: str, services: Sequence[str], claim: str) -> bool:
    kind, subject_name = subject.get("kind"), subject.get("name", "")
    if kind == KIND:
        return bool(subject_name == name)
    if kind == "PersistentVolumeClaim":
        return bool(subject_name == claim)
    # `a-server-server-x` is of the service `a-server`, though `a` has an `a-server`.
    owners = [each for each in services if re.fullmatch(CHILD % re.escape(each), subject_name)]
    return max(owners, key=len, default="") == name


def seen_at(event: Object) -> str:
    """When it was seen last, RFC 3339."""
    series = (event.get("series") or {}).get("lastObservedTime")
    times = (series, event.get("lastTimestamp"), event.get("eventTime"), event["metadata"].get("creationTimestamp"))
    return next((str(time) for time in times if time), "")


def table(events: Sequence[Object], now: datetime, columns: int) -> Table | Text:
    """A row an event, for a terminal of so many columns. Pure."""
    if not events:
        return Text("there are no events: the API server keeps them for an hour by default")
    shown = [column not in ("TYPE", "COUNT") or columns >= NARROW for column in COLUMNS]
    made = listing(compress(COLUMNS, shown), ("REASON", "OBJECT", "MESSAGE"))
    for event in events:
        made.add_row(*compress(_row(event, now), shown))
    return made


def _row(event: Object, now: datetime) -> list[Text]:
    subject, kind = event["involvedObject"], event.get("type", NONE)
    count = (event.get("series") or {}).get("count") or event.get("count") or 1
    at = seen_at(event)
    cells = [
        age(at, now) if at else NONE,
        kind,
        event.get("reason", NONE),
        f"{subject.get('kind')}/{subject['name']}",
    ]
    cells += [str(count), event.get("message", "").strip()]
    return [Text(printable(cell), "yellow" if kind == "Warning" and cell == kind else "") for cell in cells]
