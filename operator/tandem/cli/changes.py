"""What a change of services rolls out: their children before and after, as a diff and in a line each. Pure."""

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import yaml

from tandem import names
from tandem.api.wire import Object
from tandem.children.metadata import identity
from tandem.cli.render import Dumper
from tandem.cluster.manifests import label

WORKLOADS = ("Deployment", "LeaderWorkerSet")
Children = Sequence[Object]
"""Of one service."""
Key = tuple[str, str, str, int]
"""Kind, component, name without what changes with the content, and number among those alike."""


def diff(before: Mapping[str, Children], after: Mapping[str, Children]) -> str:
    """A unified diff of the children of services, which stand under their names. Empty where nothing changes."""
    return "".join(
        line for name in _every(before, after) for line in _diff(before.get(name, ()), after.get(name, ()))
    )


def summaries(before: Mapping[str, Children], after: Mapping[str, Children]) -> list[str]:
    """A line for each service: whether its pods roll."""
    return [f"{name}: {_summary(before.get(name), after.get(name))}" for name in _every(before, after)]


def _every(before: Mapping[str, Children], after: Mapping[str, Children]) -> list[str]:
    return [*after, *(name for name in before if name not in after)]


def _summary(before: Children | None, after: Children | None) -> str:
    if before is None:
        return "new"
    if after is None:
        return "removed: its pods and children go with it"
    changed = [f"{kind} {name}" for kind, name in _changed(before, after)]
    if not changed:
        return "nothing changes"
    rolling = _rolling(_workload(before), _workload(after))
    return rolling or f"pods stay as they are; changes {', '.join(changed)}"


def _rolling(before: Object | None, after: Object | None) -> str:
    if before is None or after is None or pod_templates(before) == pod_templates(after):
        return ""
    return rolls(after, revision_of(before), revision_of(after))


def rolls(workload: Object, here: str, there: str) -> str:
    """How the pods of a workload go from one revision to another."""
    return f"pods roll {how(workload)}: revision {here} to {there}"


def how(workload: Object) -> str:
    """How its pods take each other's place."""
    strategy = workload["spec"].get("strategy", {}).get("type")
    return "all at once, with downtime (strategy Replace)" if strategy == "Recreate" else "one by one"


def pod_templates(workload: Object) -> list[Object]:
    """Of a Deployment, or of a group's leader and workers."""
    spec = workload["spec"]
    if "template" in spec:
        return [spec["template"]]
    group = spec["leaderWorkerTemplate"]
    return [group[name] for name in ("leaderTemplate", "workerTemplate") if name in group]


def revision_of(workload: Object) -> str:
    """The revision that its pods are of."""
    (first, *_) = pod_templates(workload)
    return str(first["metadata"]["labels"].get(names.LABEL_REVISION, "")) or "none"


def _workload(children: Children) -> Object | None:
    return next((child for child in children if child["kind"] in WORKLOADS), None)


def _changed(before: Children, after: Children) -> Iterator[tuple[str, str]]:
    old, new = _keyed(before), _keyed(after)
    for key in (*new, *(key for key in old if key not in new)):
        if old.get(key) != new.get(key):
            yield identity(new.get(key) or old[key])


def _diff(before: Children, after: Children) -> Iterator[str]:
    old, new = _keyed(before), _keyed(after)
    for key in (*new, *(key for key in old if key not in new)):
        one, other = old.get(key), new.get(key)
        if one != other:
            lines = difflib.unified_diff(_lines(one), _lines(other), _title(one), _title(other))
            yield from lines


def _title(child: Object | None) -> str:
    return "/".join(identity(child)) if child else "/dev/null"


def _lines(child: Object | None) -> list[str]:
    text = yaml.dump(child, Dumper=Dumper, sort_keys=False, width=110) if child else ""
    return text.splitlines(keepends=True)


def _keyed(children: Children) -> dict[Key, Object]:
    """Children by what they are for: a ConfigMap or Job that is named by its content has another name afterwards."""
    seen: Counter[tuple[str, str, str]] = Counter()
    found: dict[Key, Object] = {}
    for child in children:
        kind, name = identity(child)
        component = label(child, names.LABEL_COMPONENT)
        named = "" if kind in ("ConfigMap", "Job") else name
        found[kind, component, named, seen[kind, component, named]] = child
        seen[kind, component, named] += 1
    return found
