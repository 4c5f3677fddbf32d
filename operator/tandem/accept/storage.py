"""Claims, and how many pods on how many nodes mount them."""

from collections.abc import Sequence

from tandem.api.conditions import SpecReason
from tandem.api.roles import downloads
from tandem.api.types import Cache, ServiceSpec
from tandem.engines import Engine
from tandem.engines.rule import Refusal, Warn
from tandem.plural import counted
from tandem.render.latest import claim_name, uses_cache

SHAREABLE = frozenset({"ReadWriteMany", "ReadOnlyMany"})
HOSTNAME = "kubernetes.io/hostname"


def several(spec: ServiceSpec, engine: Engine) -> str:
    """Why pods may be on several nodes at a time, in words; empty: there is one."""
    nodes, scaled = engine.gpu_plan(spec).nodes, spec.autoscaling
    most = max(spec.replicas, scaled.max_replicas if scaled else 0)
    if most > 1:
        return f"there may be {most} replicas"
    return f"a replica is on {nodes} nodes" if nodes > 1 else ""


def not_shareable(spec: ServiceSpec, engine: Engine, modes: Sequence[str]) -> Refusal | None:
    """A volume that pods of one node alone can mount serves one pod. `modes`: those of the cache's claim."""
    why = several(spec, engine)
    if not why or not uses_cache(spec, engine) or SHAREABLE & set(modes):
        return None
    return Refusal(
        SpecReason.CACHE_NOT_SHAREABLE,
        f"{why}, and the claim {claim_name(spec)} has access mode {', '.join(modes)}: write replicas: 1 (and"
        " autoscaling.maxReplicas: 1) and parallel sizes that one node holds, or a storage.cache.claimName with"
        " ReadWriteMany",
    )


def not_shareable_source(spec: ServiceSpec, engine: Engine, claim: str, modes: Sequence[str]) -> str | None:
    """A warning of a claim with a model (`pvc://`) that pods of one node alone can mount; where they are on one node,
    it works."""
    why = several(spec, engine)
    if not why or not modes or SHAREABLE & set(modes):
        return None
    return (
        f"{why}, and the claim of pvc://{claim} has access mode {', '.join(modes)}: pods of one node alone can"
        " mount it; use a claim with ReadOnlyMany or ReadWriteMany, or keep the pods on one node"
    )


def _warn_made(spec: ServiceSpec, engine: Engine) -> str | None:
    """Of a claim that is to be made; one that is there may be another."""
    cache = spec.storage.cache
    if cache.claim_name or not uses_cache(spec, engine) or SHAREABLE & set(cache.access_modes):
        return None
    if refusal := not_shareable(spec, engine, cache.access_modes):
        return refusal.message
    if spec.rollout.strategy == "Replace" or HOSTNAME in spec.placement.node_selector:
        return None
    return (
        "storage.cache.accessModes ReadWriteOnce ties servers and Jobs to one node: a new revision's download, check"
        " or server on another one waits; write ReadWriteMany, rollout.strategy: Replace, or a placement.nodeSelector"
        f" {HOSTNAME}"
    )


def _warn_first_node(spec: ServiceSpec, engine: Engine) -> str | None:
    """Of a volume that is bound where its first pod runs, which may be a node without GPUs."""
    cache, placement = spec.storage.cache, spec.placement
    made = downloads(spec) and not cache.claim_name and not SHAREABLE & set(cache.access_modes)
    if not made or not engine.profile.gpus or not_shareable(spec, engine, cache.access_modes):
        return None
    by_affinity = (placement.affinity or {}).get("nodeAffinity")
    if placement.gpu.product or placement.node_selector or placement.runtime_class_name or by_affinity:
        return None
    return (
        "storage.cache.accessModes ReadWriteOnce: the node of the first download may become the volume's, and a"
        " download asks for no GPU; write placement.gpu.product, nodeSelector, runtimeClassName or a nodeAffinity"
        " that names nodes with GPUs"
    )


def _warn_ignored(spec: ServiceSpec, engine: Engine) -> str | None:
    """What a claim that exists has already."""
    cache, default = spec.storage.cache, Cache()
    if not cache.claim_name:
        return None
    written = {"size": cache.size != default.size, "accessModes": cache.access_modes != default.access_modes}
    fields = [f"storage.cache.{name}" for name, differs in written.items() if differs]
    if not fields:
        return None
    verb = "is" if len(fields) == 1 else "are"
    return (
        f"{' and '.join(fields)} {verb} of a claim that is made, and claimName names one that exists: remove"
        f" {counted(len(fields), 'field')}, or claimName"
    )


WARNINGS: tuple[Warn, ...] = (_warn_made, _warn_first_node, _warn_ignored)
