"""What the report says of a service: versions, images, hardware. Pure.

Nothing that is somebody's own: no names of services, namespaces, pods, nodes, registries or buckets, no environment.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tandem import names
from tandem.api.wire import Object
from tandem.settings import shipped_profiles

PUBLIC = ("hf://",)
"""Beginnings of URIs that are shown whole; of others the scheme alone is."""
GPU_LABELS = {
    "product": "nvidia.com/gpu.product",
    "count": "nvidia.com/gpu.count",
    "memoryMiB": "nvidia.com/gpu.memory",
    "mig": "nvidia.com/mig.strategy",
    "driver": "nvidia.com/cuda.driver-version.full",
    "cuda": "nvidia.com/cuda.runtime-version.full",
}
"""Of GPU feature discovery. https://github.com/NVIDIA/k8s-device-plugin (docs/gpu-feature-discovery)"""
OLD_DRIVER = ("nvidia.com/cuda.driver.major", "nvidia.com/cuda.driver.minor", "nvidia.com/cuda.driver.rev")
"""Likewise, before it wrote whole versions."""


def of_service(service: Object) -> dict[str, Any]:
    """Mode, profile and speculation, as the resource has them."""
    spec, status = service["spec"], service.get("status", {})
    speculation, target = spec.get("speculation", {}), spec.get("target", {})
    profile = spec.get("runtime", {}).get("profile", "")
    shipped = {each["name"]: each for each in shipped_profiles()}.get(profile, {})
    engine = shipped.get("engine", {})
    return {
        "mode": spec.get("runtime", {}).get("mode"),
        "profile": profile,
        "engine": " ".join(filter(None, (engine.get("kind"), engine.get("version")))),
        "decodingType": speculation.get("decodingType"),
        "maxDraftLen": speculation.get("maxDraftLen"),
        "adaptive": speculation.get("adaptive", {}).get("enabled"),
        "acceptance": speculation.get("acceptance", {}).get("method"),
        "target": model(target.get("model", {})),
        "draft": model(spec.get("draft", {}).get("model", {})),
        "dtype": target.get("dtype"),
        "tensorParallelSize": target.get("tensorParallelSize"),
        "pipelineParallelSize": target.get("pipelineParallelSize"),
        "maxBatchSize": spec.get("serving", {}).get("maxBatchSize"),
        "replicas": spec.get("replicas"),
        "revision": status.get("currentRevision"),
    }


def model(found: Mapping[str, Any]) -> str:
    """A model's URI and revision where everybody can see them; else its scheme alone. Empty: there is none."""
    uri = str(found.get("uri", ""))
    revision = f"@{found['revision']}" if found.get("revision") else ""
    return f"{uri}{revision}" if uri.startswith(PUBLIC) else f"{uri.partition(':')[0]}:..." if uri else ""


def of_pods(pods: Sequence[Object]) -> dict[str, Any]:
    """Images with their digests, without the registry; restarts of all containers."""
    statuses = [status for pod in pods for status in containers(pod)]
    servers = [each for each in statuses if each["name"] == names.CONTAINER]
    inits = [each for pod in pods for each in pod.get("status", {}).get("initContainerStatuses", [])]
    return {
        "pods": len(pods),
        "images": sorted({image(each) for each in servers}),
        "initImages": sorted({image(each) for each in inits}),
    }


def containers(pod: Object) -> list[Object]:
    """Statuses of a pod's containers."""
    return list(pod.get("status", {}).get("containerStatuses", []))


def image(status: Object) -> str:
    """NAME:TAG@DIGEST of a container's image."""
    name = str(status.get("image", "")).rpartition("/")[2].partition("@")[0]
    return "@".join(part for part in (name, str(status.get("imageID", "")).rpartition("@")[2]) if part)


def of_node(node: Object) -> dict[str, Any]:
    """GPU, driver and kubelet of a node, as its labels and status have them; what it lacks is left out."""
    labels, info = node["metadata"].get("labels", {}), node.get("status", {}).get("nodeInfo", {})
    found = {fact: labels[label] for fact, label in GPU_LABELS.items() if label in labels}
    old = [labels[label] for label in OLD_DRIVER if labels.get(label)]
    if old:
        found.setdefault("driver", ".".join(old))
    known = {"kubelet": "kubeletVersion", "kernel": "kernelVersion", "architecture": "architecture"}
    return {**found, **{fact: info[field] for fact, field in known.items() if field in info}}
