"""Where pods run: `spec.placement` as fields of a PodSpec, and the accelerators as resources of a container."""

from collections.abc import Sequence
from typing import Any

from tandem.api.types import Placement
from tandem.engines.gpus import GpuPlan
from tandem.render.v1.inputs import Inputs

PRODUCT_LABEL, GENERATION_LABEL = "nvidia.com/gpu.product", "nvidia.com/gpu.compute.major"
"""Node labels of NVIDIA's GPU feature discovery."""


def scheduling(placement: Placement, oldest_gpu: int | None) -> dict[str, Any]:
    """Fields of the PodSpec of every pod of the service; absent ones are not written. `oldest_gpu`: major
    compute capability that the engine needs; None: it runs on CPUs."""
    fields: dict[str, Any] = {
        "nodeSelector": dict(placement.node_selector),
        "tolerations": [t.model_dump(by_alias=True, exclude_none=True) for t in placement.tolerations],
        "affinity": placement.affinity if oldest_gpu is None else _narrowed(placement, oldest_gpu),
        "priorityClassName": placement.priority_class_name,
        "runtimeClassName": placement.runtime_class_name,
        "schedulerName": placement.scheduler_name,
    }
    return {name: value for name, value in fields.items() if value}


def volume_scheduling(placement: Placement, oldest_gpu: int | None) -> dict[str, Any]:
    """The same of pods that need the service's nodes and no other pod near: a volume of one node or zone is made
    where the first pod runs that mounts it."""
    fields = scheduling(placement, oldest_gpu)
    nodes = (fields.pop("affinity", None) or {}).get("nodeAffinity")
    return {**fields, **({"affinity": {"nodeAffinity": nodes}} if nodes else {})}


def spreading(inputs: Inputs) -> dict[str, Any]:
    """Field of the servers' PodSpec alone. The builder completes constraints without labelSelector."""
    constraints = [dict(constraint) for constraint in inputs.spec.placement.topology_spread_constraints]
    return {"topologySpreadConstraints": constraints} if constraints else {}


def claims(inputs: Inputs) -> dict[str, Any]:
    """Field of the PodSpec of pods that compute: devices by dynamic resource allocation."""
    if not (inputs.profile.gpus and inputs.spec.placement.resource_claims):
        return {}
    wanted = inputs.spec.placement.resource_claims
    return {"resourceClaims": [claim.model_dump(by_alias=True, exclude_none=True) for claim in wanted]}


def resources(inputs: Inputs, plan: GpuPlan | None = None) -> dict[str, Any]:
    """Field of the container that computes: the profile's resources, and the pod's GPUs by `plan` or by claim."""
    plan = plan or inputs.plan
    found: dict[str, Any] = {name: dict(amounts) for name, amounts in inputs.profile.resources.items()}
    if plan.resource and plan.gpus_per_pod:
        # Extended resources: the request equals the limit by itself.
        found["limits"] = {**found.get("limits", {}), plan.resource: str(plan.gpus_per_pod)}
    if claimed := claims(inputs).get("resourceClaims"):
        found["claims"] = [{"name": claim["name"]} for claim in claimed]
    return {"resources": found} if found else {}


def _narrowed(placement: Placement, oldest_gpu: int) -> dict[str, Any]:
    """The user's affinity and what the GPU must be: terms are alternatives, so each of them is narrowed."""
    affinity = placement.affinity or {}
    node = affinity.get("nodeAffinity") or {}
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms: Sequence[dict[str, Any]] = required.get("nodeSelectorTerms") or [{}]
    gpu = _gpu(placement, oldest_gpu)
    narrowed = [{**term, "matchExpressions": [*(term.get("matchExpressions") or []), *gpu]} for term in terms]
    required = {**required, "nodeSelectorTerms": narrowed}
    return {**affinity, "nodeAffinity": {**node, "requiredDuringSchedulingIgnoredDuringExecution": required}}


def _gpu(placement: Placement, oldest_gpu: int) -> list[dict[str, Any]]:
    """One of the products, where some are named; none that is too old, where nodes say how old theirs are."""
    too_old = [str(major) for major in range(1, oldest_gpu)]
    new_enough = {"key": GENERATION_LABEL, "operator": "NotIn", "values": too_old}
    products = list(placement.gpu.product)
    named = [{"key": PRODUCT_LABEL, "operator": "In", "values": products}] if products else []
    return [new_enough, *named]
