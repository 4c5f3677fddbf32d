"""Checks of the cluster: Kubernetes, Tandem itself, storage, GPUs, what scaling takes, the user's rights. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import tandem
from tandem.api import GROUP, PLURAL
from tandem.api.crd import crd
from tandem.api.wire import Object
from tandem.cli.doctor.facts import CheckFinding, ClusterFacts, One, Right, Unread, fail, ok, warn
from tandem.cli.words import quantity
from tandem.client.kubectl import API_SERVICE
from tandem.cluster.manifests import condition, is_true
from tandem.plural import counted

LEAST_KUBERNETES = (1, 30)
"""As the chart's kubeVersion."""
DEFINITION = f"{PLURAL}.{GROUP}"
KEDA, PROMETHEUS = "scaledobjects.keda.sh", "podmonitors.monitoring.coreos.com"
GROUPS = "leaderworkersets.leaderworkerset.x-k8s.io"
DEFINITIONS = (DEFINITION, KEDA, PROMETHEUS, GROUPS)
OPTIONAL = {
    KEDA: ("KEDA", "services with autoscaling.source KEDA; install https://keda.sh"),
    PROMETHEUS: ("Prometheus Operator", "the chart's PodMonitors; install https://prometheus-operator.dev"),
    GROUPS: ("LeaderWorkerSet", "replicas over several nodes; install https://lws.sigs.k8s.io"),
}
"""What it is, and what it is for."""
UPGRADE = "helm upgrade the chart"
VERSION = "app.kubernetes.io/version"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
SHARED_DRIVERS = re.compile(
    r"nfs|efs\.csi\.aws|fsx\.csi\.aws|filestore|file\.csi\.azure|cephfs|lustre|weka|juicefs|longhorn|beegfs"
    r"|spectrumscale|trident|portworx|quobyte|gluster|vast"
)
"""Names of drivers whose volumes pods of several nodes can write. A StorageClass itself does not have it."""
GPU = re.compile(r"nvidia\.com/(gpu|mig-.+)(\.shared)?")
PRODUCT, DRIVER = "nvidia.com/gpu.product", "nvidia.com/cuda.driver-version.full"
RIGHTS = (
    *(Right(verb, GROUP, PLURAL, "tandem status, top") for verb in ("get", "list")),
    *(Right(verb, GROUP, PLURAL, "tandem apply, diff") for verb in ("create", "patch")),
    Right("list", "", "pods", "tandem status, logs"),
    Right("get", "", "pods/log", "tandem logs"),
    Right("list", "", "events", "tandem events"),
    Right("create", "", "pods/portforward", "tandem generate, bench, conformance by a service's name"),
    Right("patch", "", "configmaps", "tandem bench --record"),
    Right("create", "batch", "jobs", "tandem cache prune"),
)


def kubernetes(facts: ClusterFacts) -> Iterator[CheckFinding]:
    """Whether the API server is new enough."""
    check = "Kubernetes"
    if not isinstance(facts.version, dict):
        yield _unread(check, facts.version)
        return
    server = facts.version.get("serverVersion", {})
    digits = [re.match(r"\d+", str(server.get(part, ""))) for part in ("major", "minor")]
    shown, least = server.get("gitVersion", "?"), ".".join(map(str, LEAST_KUBERNETES))
    if None in digits:
        yield warn(check, f"its version {shown} is not understood; it takes {least} or newer")
    elif tuple(int(each[0]) for each in digits if each) < LEAST_KUBERNETES:
        yield fail(check, f"{shown} is older than {least}: upgrade the cluster")
    else:
        yield ok(check, str(shown))


def definition(facts: ClusterFacts) -> Iterator[CheckFinding]:
    """Whether the resource is defined, as this command knows it."""
    check, found = "CRD", facts.definitions.get(DEFINITION)
    if found is None:
        yield fail(check, "it is not there: install Tandem's chart")
    elif isinstance(found, Unread):
        yield _unread(check, found)
    elif not is_true(found, "Established"):
        yield fail(check, "it is not Established: see `kubectl describe crd " + DEFINITION + "`")
    else:
        yield _same_fields(check, found)


def _same_fields(check: str, live: Object) -> CheckFinding:
    here, there = _fields(_schema(crd())), _fields(_schema(live))
    if missing := sorted(here - there):
        return warn(check, f"it lacks {missing[0]}{_more(missing)}, which this command knows: {UPGRADE}")
    if unknown := sorted(there - here):
        return warn(check, f"it has {unknown[0]}{_more(unknown)}, which this command lacks: use the chart's version")
    return ok(check, f"as of this command, {tandem.__version__}")


def _more(names: list[str]) -> str:
    return f" and {counted(len(names) - 1, 'other')}" if len(names) > 1 else ""


def _schema(definition: Object) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def _fields(schema: Mapping[str, Any], path: str = "") -> set[str]:
    """Paths of all fields of a schema."""
    found = set[str]()
    for name, child in schema.get("properties", {}).items():
        found |= {f"{path}{name}", *_fields(child, f"{path}{name}.")}
    return found | (_fields(schema["items"], f"{path}[].") if "items" in schema else set())


def operator(facts: ClusterFacts) -> Iterator[CheckFinding]:
    """Whether an operator runs, of this version."""
    check = "operator"
    if isinstance(facts.operators, Unread):
        yield _unread(check, facts.operators)
    elif not facts.operators:
        yield fail(check, "no Deployment of it is there: install Tandem's chart")
    for each in [] if isinstance(facts.operators, Unread) else facts.operators:
        yield _operator(check, each)


def _operator(check: str, deployment: Object) -> CheckFinding:
    meta, status = deployment["metadata"], deployment.get("status", {})
    where, version = f"{meta['namespace']}/{meta['name']}", meta.get("labels", {}).get(VERSION, "?")
    if not status.get("availableReplicas"):
        why = (condition(deployment, "Available") or {}).get("message", "no pod is available")
        return fail(check, f"{where} does not run: {why}: see `kubectl -n {meta['namespace']} describe pods`")
    if version != tandem.__version__:
        return warn(check, f"{where} is {version}, this command {tandem.__version__}: {UPGRADE}, or use its command")
    return ok(check, f"{where} {version}, {counted(status['availableReplicas'], 'pod')} available")


def metrics_api(facts: ClusterFacts) -> Iterator[CheckFinding]:
    """Whether the custom metrics API is served, which HorizontalPodAutoscalers and `tandem top` read."""
    check, found = "custom metrics API", facts.metrics_api
    without = "services do not scale by HorizontalPodAutoscalers, and tandem top shows no load"
    if isinstance(found, Unread):
        yield _unread(check, found)
    elif found is None:
        yield warn(check, f"{API_SERVICE} is not registered: {without} (chart value metricsServer.register)")
    else:
        served = found["spec"].get("service") or {}
        by = f"{served.get('namespace')}/{served.get('name')}"
        available = condition(found, "Available") or {}
        if available.get("status") == "True":
            yield ok(check, f"served by {by}")
        else:
            message = available.get("message", "it is not Available")
            yield fail(check, f"{by} does not answer: {message}: see its pods; {without}")


def optional(facts: ClusterFacts) -> Iterator[CheckFinding]:
    """What only some services need."""
    for name, (what, needed_for) in OPTIONAL.items():
        found = facts.definitions.get(name)
        if isinstance(found, Unread):
            yield _unread(what, found)
        elif found and not is_true(found, "Established"):
            yield warn(what, f"its CRD is not Established: see `kubectl describe crd {name}`")
        else:
            yield ok(what, "installed" if found else f"not installed; only for {needed_for}")


def storage(facts: ClusterFacts) -> Iterator[CheckFinding]:
    """Whether a claim for the cache can be provisioned: by the default class, and for several nodes."""
    check = "StorageClass"
    if isinstance(facts.storage_classes, Unread):
        yield _unread(check, facts.storage_classes)
        return
    shared = [each for each in facts.storage_classes if SHARED_DRIVERS.search(each.get("provisioner", ""))]
    default = next((each for each in facts.storage_classes if _is_default(each)), None)
    named = ", ".join(each["metadata"]["name"] for each in shared)
    if not facts.storage_classes:
        yield warn(check, "there is none: make a ReadWriteMany claim by hand, and name it in storage.cache.claimName")
    elif not shared:
        yield warn(
            check,
            "none whose driver is known for ReadWriteMany: the cache needs it for more than one replica; install"
            " one (NFS, CephFS, a cloud's file store), or name a claim in storage.cache.claimName",
        )
    elif default is None or default not in shared:
        text = f"{named} can share volumes, and is not the default: name it in storage.cache.storageClassName"
        yield ok(check, text)
    else:
        yield ok(check, f"{named}; the default is {default['metadata']['name']}")


def _is_default(each: Object) -> bool:
    return bool(each["metadata"].get("annotations", {}).get(DEFAULT_CLASS) == "true")


def gpus(facts: ClusterFacts) -> Iterator[CheckFinding]:
    """What nodes offer."""
    check = "GPUs"
    if isinstance(facts.nodes, Unread):
        yield _unread(check, facts.nodes)
        return
    totals: dict[str, float] = {}
    for node in facts.nodes:
        for name, amount in node.get("status", {}).get("allocatable", {}).items():
            if GPU.fullmatch(name):
                totals[name] = totals.get(name, 0) + quantity(amount)
    if not any(totals.values()):
        yield warn(
            check,
            "no node offers nvidia.com/gpu: install NVIDIA's GPU operator, or its device plugin; only profiles"
            " without GPUs can serve (reference)",
        )
        return
    offered = ", ".join(f"{total:.0f} {name}" for name, total in sorted(totals.items()) if total)
    nodes = [node for node in facts.nodes if any(map(GPU.fullmatch, node["status"].get("allocatable", {})))]
    unlabelled = [node["metadata"]["name"] for node in nodes if PRODUCT not in node["metadata"].get("labels", {})]
    yield ok(check, f"{offered} on {counted(len(nodes), 'node')}{_drivers(nodes)}")
    if unlabelled:
        yield warn(
            "GPU labels",
            f"{unlabelled[0]}{_more(unlabelled)} has no label {PRODUCT}: install GPU feature discovery, or write no"
            " placement.gpu.product",
        )


def _drivers(nodes: list[Object]) -> str:
    found = sorted({node["metadata"].get("labels", {}).get(DRIVER, "") for node in nodes} - {""})
    return f", driver {', '.join(found)}" if found else ""


def quotas(facts: ClusterFacts) -> Iterator[CheckFinding]:
    """Quotas of the namespace that are used up."""
    check = "quota"
    if isinstance(facts.quotas, Unread):
        yield _unread(check, facts.quotas)
        return
    full = [
        f"{name} of {quota['metadata']['name']} ({used} of {hard})"
        for quota in facts.quotas
        for name, hard, used in spent(quota)
        if quantity(used) >= quantity(hard)
    ]
    if full:
        yield warn(check, f"used up: {', '.join(full)}: raise it, or no more pods or claims can be made")
    else:
        yield ok(check, f"{counted(len(facts.quotas), 'ResourceQuota')}" if facts.quotas else "none")


def spent(quota: Object) -> Iterator[tuple[str, str, str]]:
    """Name, limit and use of what a quota is about."""
    status = quota.get("status", {})
    for name, hard in status.get("hard", {}).items():
        yield name, hard, status.get("used", {}).get(name, "0")


def permissions(facts: ClusterFacts) -> Iterator[CheckFinding]:
    """What this user may do in the namespace."""
    check = "your rights"
    if unknown := [right for right, has in facts.rights.items() if has is None]:
        yield warn(check, f"not known whether you may {_named(unknown[0])}")
    missing = [right for right, has in facts.rights.items() if has is False]
    for right in missing:
        judge = fail if right == RIGHTS[0] else warn
        yield judge(check, f"you may not {_named(right)}, which is for {right.wanted_for}: ask for role edit or view")
    if not missing and not unknown:
        yield ok(check, "all that the commands need")


def _named(right: Right) -> str:
    return f"{right.verb} {right.resource}{f'.{right.group}' if right.group else ''}"


def _unread(check: str, found: One | list[Object]) -> CheckFinding:
    why = found.why if isinstance(found, Unread) else "no answer"
    return warn(check, f"not known: {why}")


CHECKS = (kubernetes, definition, operator, metrics_api, optional, storage, gpus, quotas, permissions)
