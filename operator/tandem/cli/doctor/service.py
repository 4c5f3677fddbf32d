"""Checks of one service: its state, and whether what it names and needs is there. Pure."""

from collections.abc import Iterator

from tandem.accept.storage import SHAREABLE, several
from tandem.api.conditions import ConditionType
from tandem.api.types import ServiceSpec
from tandem.api.wire import Object
from tandem.cli.doctor.cluster import GROUPS, KEDA, PRODUCT, spent
from tandem.cli.doctor.facts import CheckFinding, ClusterFacts, Unread, fail, ok, warn
from tandem.cli.doctor.references import DOCKER, SECRET, Reference, named
from tandem.cli.services import state as state_of
from tandem.cli.words import quantity
from tandem.engines import engine_of
from tandem.plural import counted
from tandem.render.latest import claim_name, uses_cache

REGISTRY_TYPES = (DOCKER, "kubernetes.io/dockercfg")
DO_NOT_SCHEDULE = ("NoSchedule", "NoExecute")


def state(facts: ClusterFacts) -> Iterator[CheckFinding]:
    """What its own status reports."""
    if facts.service:
        now = state_of(facts.service)
        judge = ok if now.settled else fail if now.failed else warn
        yield judge("service", f"{now.reason}: {now.message}")


BROKEN = (ConditionType.PODS_HEALTHY, ConditionType.ENGINE_HEALTHY, ConditionType.RIGHTS_GRANTED)
"""Conditions that a person should look at now while they are False."""
IMPAIRED = (ConditionType.SCALING_ACTIVE, ConditionType.METRICS_AVAILABLE, ConditionType.ROUTE_ACCEPTED)
"""Those without which the service answers all the same; so are all others that warn."""


def conditions(facts: ClusterFacts) -> Iterator[CheckFinding]:
    """What its conditions warn of beside its state: an operator that is at work may be so in vain."""
    judges = {str(kind): warn for kind in ConditionType if kind in IMPAIRED or kind.warns}
    judges |= dict.fromkeys(map(str, BROKEN), fail)
    for each in facts.service.status.conditions if facts.service else ():
        if each.status == "False" and each.type in judges:
            yield judges[each.type](each.type, f"{each.reason}: {each.message}")


def profile(facts: ClusterFacts) -> Iterator[CheckFinding]:
    """Whether its profile is known here, on which the checks of GPUs and storage depend."""
    if facts.service and facts.profile is None:
        name = facts.service.spec.runtime.profile
        yield warn("profile", f"{name} is not known here, so GPUs and storage are not checked: give --settings")


def references(facts: ClusterFacts) -> Iterator[CheckFinding]:
    """Secrets and ConfigMaps that it names: that they are there, with the key and of the type that it takes."""
    for each in named(facts.service.spec) if facts.service else ():
        check = "registry" if each.type == DOCKER else each.kind
        found = (facts.secrets if each.kind == SECRET else facts.configmaps).get(each.name)
        if isinstance(found, Unread):
            yield warn(check, f"{each.name} ({each.field}): not known: {found.why}")
        elif found is None:
            yield fail(check, f"{each.name} ({each.field}) is not there: make it in the service's namespace")
        elif problem := _problem(each, found):
            yield fail(check, f"{each.name} ({each.field}) {problem}")
        else:
            yield ok(check, f"{each.name} ({each.field})")


def _problem(each: Reference, found: Object) -> str:
    kind, keys = found.get("type", ""), {**(found.get("data") or {}), **(found.get("binaryData") or {})}
    wanted = REGISTRY_TYPES if each.type == DOCKER else (each.type,)
    if each.type and kind not in wanted:
        return f"is of type {kind}: make it of type {each.type}"
    return f"has no key {each.key}: add it" if each.key and each.key not in keys else ""


def claim(facts: ClusterFacts) -> Iterator[CheckFinding]:
    """Whether its cache is there, and pods of several nodes can mount it where there may be several."""
    service, check = facts.service, "cache claim"
    engine = engine_of(service.spec, facts.profile) if service and facts.profile else None
    if service is None or engine is None or not uses_cache(service.spec, engine):
        return
    name, why, cache = claim_name(service.spec), several(service.spec, engine), service.spec.storage.cache
    if isinstance(facts.claim, Unread):
        yield warn(check, f"{name}: not known: {facts.claim.why}")
        return
    if facts.claim is None and cache.claim_name:
        yield fail(check, f"{name} (storage.cache.claimName) is not there: make it in the service's namespace")
        return
    modes = facts.claim["spec"].get("accessModes", []) if facts.claim else cache.access_modes
    phase = _phase(facts.claim) if facts.claim else "made by the operator"
    if why and not SHAREABLE & set(modes):
        yield fail(check, f"{name} has access mode {', '.join(modes)}, and {why}: use one with ReadWriteMany")
    elif phase == "Lost":
        yield fail(check, f"{name} has lost its volume: see `kubectl describe pvc {name}`")
    elif facts.claim and phase != "Bound":
        waits = "is being deleted" if phase == "Terminating" else f"is {phase}, without a volume yet"
        yield fail(check, f"{name} {waits}, and pods that mount it wait: see `kubectl describe pvc {name}`")
    else:
        yield ok(check, f"{name}: {phase}, {', '.join(modes)}")
        yield from _class(facts, cache.storage_class_name if facts.claim is None else None)


def _phase(claim: Object) -> str:
    """As kubectl shows it."""
    if "deletionTimestamp" in claim.get("metadata", {}):
        return "Terminating"
    return str(claim.get("status", {}).get("phase", "Pending"))


def _class(facts: ClusterFacts, name: str | None) -> Iterator[CheckFinding]:
    if name and not isinstance(facts.storage_classes, Unread):
        there = {each["metadata"]["name"] for each in facts.storage_classes}
        if name not in there:
            known = ", ".join(sorted(there)) or "none"
            yield fail("StorageClass", f"{name} (storage.cache.storageClassName) is not there; there is {known}")


def gpus(facts: ClusterFacts) -> Iterator[CheckFinding]:
    """Whether nodes have the GPUs of a replica."""
    if facts.service is None or facts.profile is None or isinstance(facts.nodes, Unread):
        return
    spec, check = facts.service.spec, "GPUs of a replica"
    plan = engine_of(spec, facts.profile).gpu_plan(spec)
    if not plan.gpus or plan.resource is None:
        return
    wanted = f"{plan.gpus_per_pod} {plan.resource} a node"
    left = facts.nodes
    for name, holds in _FILTERS:
        kept = [node for node in left if holds(node, spec, plan.resource, plan.gpus_per_pod)]
        if len(kept) < plan.nodes:
            lacking = f"of {counted(len(left), 'node')} {len(kept)} {name}"
            yield fail(check, f"{wanted}, on {counted(plan.nodes, 'node')}: {lacking}")
            return
        left = kept
    yield ok(check, f"{wanted}: {counted(len(left), 'node')} could have it")


def _offers(node: Object, spec: ServiceSpec, resource: str, number: int) -> bool:
    return quantity(node.get("status", {}).get("allocatable", {}).get(resource, "0")) >= number


def _is_product(node: Object, spec: ServiceSpec, resource: str, number: int) -> bool:
    products = spec.placement.gpu.product
    return not products or node["metadata"].get("labels", {}).get(PRODUCT) in products


def _is_selected(node: Object, spec: ServiceSpec, resource: str, number: int) -> bool:
    labels: dict[str, str] = node["metadata"].get("labels", {})
    return spec.placement.node_selector.items() <= labels.items()


def _is_open(node: Object, spec: ServiceSpec, resource: str, number: int) -> bool:
    """Whether its taints are tolerated. The GPUs' own are, which device plugins set and admission adds."""
    taints = [each for each in node["spec"].get("taints", []) if each["effect"] in DO_NOT_SCHEDULE]
    return all(each["key"] == resource or _tolerated(each, spec) for each in taints)


def _tolerated(taint: Object, spec: ServiceSpec) -> bool:
    """https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/."""
    return any(
        each.key in (None, taint["key"])
        and each.effect in (None, taint["effect"])
        and (each.operator == "Exists" or each.value == taint.get("value"))
        for each in spec.placement.tolerations
    )


_FILTERS = (
    ("offer so many: lower the parallel sizes, or add nodes", _offers),
    (f"are of placement.gpu.product by their label {PRODUCT}: check its spelling", _is_product),
    ("have the labels of placement.nodeSelector", _is_selected),
    ("have taints that placement.tolerations tolerate, or none", _is_open),
)
"""What a node must be, as a message goes on after the number that are."""


def quota(facts: ClusterFacts) -> Iterator[CheckFinding]:
    """Whether quotas leave room for the GPUs of a replica, while it has none."""
    if facts.service is None or facts.profile is None or isinstance(facts.quotas, Unread):
        return
    plan = engine_of(facts.service.spec, facts.profile).gpu_plan(facts.service.spec)
    if not plan.gpus or state_of(facts.service).ready:
        return
    for each in facts.quotas:
        for name, hard, used in spent(each):
            left = quantity(hard) - quantity(used)
            if name == f"requests.{plan.resource}" and left < plan.gpus:
                quota_name = each["metadata"]["name"]
                yield fail(
                    "quota", f"{quota_name} leaves {left:.0f} {name}, and a replica takes {plan.gpus}: raise it"
                )


def needed(facts: ClusterFacts) -> Iterator[CheckFinding]:
    """Definitions without which it cannot be served as it asks."""
    if facts.service is None:
        return
    scaling = facts.service.spec.autoscaling
    if scaling and scaling.source == "KEDA" and KEDA in facts.definitions and facts.definitions[KEDA] is None:
        yield fail("KEDA", "autoscaling.source is KEDA, which is not installed: see https://keda.sh")
    spec = facts.service.spec
    nodes = engine_of(spec, facts.profile).gpu_plan(spec).nodes if facts.profile else 1
    if nodes > 1 and GROUPS in facts.definitions and facts.definitions[GROUPS] is None:
        text = f"a replica is on {nodes} nodes, which takes LeaderWorkerSet: see https://lws.sigs.k8s.io"
        yield fail("LeaderWorkerSet", text)


CHECKS = (state, conditions, profile, references, claim, gpus, quota, needed)
