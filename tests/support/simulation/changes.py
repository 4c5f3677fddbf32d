"""What users and others change, at any time."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from bench.scale.__main__ import NAME, NAMESPACE
from tandem import names
from tandem.api import KIND
from tandem.cluster.manifests import label

from .api import copied
from .world import OTHER

if TYPE_CHECKING:
    from .interleavings import Interleavings

REFUSED: dict[str, Any] = {"runtime": {"mode": "BLS", "profile": "no-such"}}
ACCEPTED: dict[str, Any] = {"runtime": {"mode": "BLS", "profile": "reference"}}
EDITS: list[dict[str, Any]] = [
    {"replicas": 1},
    {"replicas": 3},
    {"speculation": {"decodingType": "DraftTarget", "maxDraftLen": 2}},
    {"speculation": {"decodingType": "DraftTarget", "maxDraftLen": 4}},
    {"speculation": {"decodingType": "DraftTarget", "maxDraftLen": 6}},
    {"serving": {"access": {"from": [{"podSelector": {}}]}}},
    {"rollout": {"strategy": "Replace"}},
    {"rollout": {"revisionHistoryLimit": 0}},
    REFUSED,
    ACCEPTED,
]
TAKEN = ("Service", f"{NAME}-triton"), ("ServiceAccount", f"{NAME}-server"), ("Deployment", f"{NAME}-server")
COPIED = "ConfigMap", "NetworkPolicy", "Service"
"""Kinds of children that make no pods."""
NAMED = OTHER, "nobody", ""
"""What others write into a child's label for its service; empty: they take the label away."""
Change = Callable[["Interleavings"], None]


def edit(spec: dict[str, Any]) -> Change:
    """The user edits the spec."""

    def change(at: "Interleavings") -> None:
        at.spec = {**at.spec, **spec}
        if service := at.world.service:
            at.cluster.put({**copied(service), "spec": at.spec}, "user")

    return _called(change, f"edit({spec})")


def delete(foreground: bool) -> Change:
    """The user deletes the service, and creates it again where it is gone."""

    def change(at: "Interleavings") -> None:
        service = at.world.service
        if service is None:
            at.world.create(at.spec)
        elif not foreground:
            at.cluster.remove(service, "user")
        elif "deletionTimestamp" not in service["metadata"]:
            meta = {**service["metadata"], "deletionTimestamp": at.world.loop.stamp()}
            at.cluster.put({**service, "metadata": meta}, "user")

    return _called(change, f"delete(foreground={foreground})")


def let_go(again: bool) -> Change:
    """The user deletes the service and not its children (`kubectl delete --cascade=orphan`); or makes it `again`."""

    def change(at: "Interleavings") -> None:
        for child in at.children():
            at.cluster.put({**child, "metadata": {**child["metadata"], "ownerReferences": []}}, "kubernetes")
        if service := at.world.service:
            at.cluster.remove(service, "user")
        if again:
            at.world.create(at.spec)

    return _called(change, f"let_go(again={again})")


def recreate() -> Change:
    """The user deletes the service and creates it again, while its children are still there."""

    def change(at: "Interleavings") -> None:
        if service := at.world.service:
            at.cluster.remove(service, "user")
        at.world.create(at.spec)

    return _called(change, "recreate()")


def drift(which: int, deletes: bool) -> Change:
    """Somebody deletes a child, or changes it."""

    def change(at: "Interleavings") -> None:
        if not (children := at.children()):
            return
        child = copied(children[which % len(children)])
        if deletes:
            at.cluster.remove(child, "user")
            return
        if child["kind"] == "Deployment":
            child["spec"]["replicas"] = 7
        child["metadata"].setdefault("labels", {})["app.kubernetes.io/name"] = "drifted"
        at.cluster.put(child, "user")

    return _called(change, f"drift({which}, deletes={deletes})")


def take(kind: str, name: str) -> Change:
    """Somebody else makes an object of a child's name, in its place where there is one."""

    def change(at: "Interleavings") -> None:
        if there := at.cluster.get(kind, name):
            at.cluster.remove(there, "user")
        spec = {"replicas": 0, "template": {"metadata": {}, "spec": {}}} if kind == "Deployment" else {}
        meta = {"name": name, "namespace": NAMESPACE}
        made = at.cluster.put({"kind": kind, "apiVersion": "v1", "metadata": meta, "spec": spec}, "somebody")
        at.world.judge.foreign.add(made["metadata"]["uid"])

    return _called(change, f"take({kind}/{name})")


def copy(which: int) -> Change:
    """Somebody else copies a child, labels and all, as by `kubectl get -o yaml` with another name in it."""

    def change(at: "Interleavings") -> None:
        children = [child for child in at.children() if child["kind"] in COPIED]
        if not children:
            return
        child = copied(children[which % len(children)])
        name = f"copy-{at.cluster.version}"
        meta = {"name": name, "namespace": NAMESPACE, "labels": child["metadata"].get("labels", {})}
        made = at.cluster.put({**child, "metadata": meta}, "somebody")
        at.world.judge.foreign.add(made["metadata"]["uid"])

    return _called(change, f"copy({which})")


def relabel(which: int, to: str) -> Change:
    """Somebody gives a child the label of another service, or none."""

    def change(at: "Interleavings") -> None:
        if children := at.children():
            child = copied(children[which % len(children)])
            child["metadata"].setdefault("labels", {}).pop(names.LABEL_SERVICE, None)
            child["metadata"]["labels"] |= {names.LABEL_SERVICE: to} if to else {}
            at.cluster.put(child, "user")

    return _called(change, f"relabel({which}, to={to!r})")


def give_away(which: int, to: str) -> Change:
    """Somebody makes another service the owner of a child, or removes its owner where no such service exists."""

    def change(at: "Interleavings") -> None:
        children = [child for child in at.children() if label(child, names.LABEL_SERVICE) == NAME]
        if not children:
            return
        child, owner = copied(children[which % len(children)]), at.cluster.get(KIND, to)
        [reference] = child["metadata"]["ownerReferences"]
        owners = [reference | {"name": to, "uid": owner["metadata"]["uid"]}] if owner else []
        child["metadata"]["ownerReferences"] = owners
        at.cluster.put(child, "user")
        if owners:
            at.world.judge.foreign.add(child["metadata"]["uid"])

    return _called(change, f"give_away({which}, to={to!r})")


def _called(change: Change, name: str) -> Change:
    """With a name for the story that is printed."""
    change.__qualname__ = name
    return change


CHANGES = st.one_of(
    st.sampled_from(EDITS).map(edit),
    st.booleans().map(delete),
    st.builds(recreate),
    st.booleans().map(let_go),
    st.builds(drift, st.integers(0, 7), st.booleans()),
    st.sampled_from(TAKEN).map(lambda taken: take(*taken)),
    st.integers(0, 7).map(copy),
    st.builds(relabel, st.integers(0, 7), st.sampled_from(NAMED)),
    st.builds(give_away, st.integers(0, 7), st.sampled_from(NAMED)),
)
