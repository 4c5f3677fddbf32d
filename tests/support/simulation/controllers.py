"""What Kubernetes' controllers and the kubelet make of Jobs and Deployments, and its garbage collector of orphans."""

import asyncio

from bench.scale.controllers import VERDICT
from tandem import names
from tandem.api import KIND
from tandem.api.wire import Object
from tandem.cluster.manifests import condition, owner_uid

from .api import LATENCY, Cluster, Write, copied
from .judge import COLLECTOR

TICK, STARTS, ENDS, WORKS, FINALIZED = 1.0, 5.0, 3.0, 4.0, 20.0
"""Seconds: between two looks; until a server answers; until a pod that is told to stop is gone; of a Job; for which
somebody's finalizer keeps a service that is deleted in the foreground."""
US = COLLECTOR


async def run(cluster: Cluster) -> None:
    """Act on what there is, for ever; on nothing that stayed as it is for longer than all that takes time here."""
    collected = changed = cluster.loop.time()

    def written(write: Write) -> None:
        nonlocal changed
        if write.object["kind"] != "Lease":
            changed = cluster.loop.time()
        _collect_at_once(cluster, write)

    cluster.on_write.append(written)
    while True:
        await asyncio.sleep(TICK)
        if cluster.loop.time() > changed + FINALIZED + cluster.collects + 2 * TICK:
            continue
        for deployment in cluster.of("Deployment"):
            _deployment(cluster, deployment)
        for job in cluster.of("Job"):
            _job(cluster, job)
        for pod in cluster.of("Pod"):
            _kubelet(cluster, pod)
        if cluster.loop.time() >= collected + cluster.collects:
            collected = cluster.loop.time()
            _collect(cluster)


def servers(cluster: Cluster, deployment: Object) -> list[Object]:
    """Its pods, but those that stop."""
    mine = [pod for pod in cluster.of("Pod") if owner_uid(pod) == deployment["metadata"]["uid"]]
    return [pod for pod in mine if "deletionTimestamp" not in pod["metadata"]]


def answers(pod: Object) -> bool:
    """Whether it is Ready."""
    found = condition(pod, "Ready")
    return bool(found and found["status"] == "True")


def _deployment(cluster: Cluster, deployment: Object) -> None:
    """A rolling update that makes one more and takes none away before another answers; or Recreate."""
    template, wanted = deployment["spec"]["template"], deployment["spec"]["replicas"]
    pods = servers(cluster, deployment)
    new = [pod for pod in pods if pod["spec"] == template["spec"] and _labels(pod) == _labels(template)]
    old = [pod for pod in pods if pod not in new]
    recreates = deployment["spec"].get("strategy", {}).get("type") == "Recreate"
    stopping = any(owner_uid(pod) == deployment["metadata"]["uid"] and pod not in pods for pod in cluster.of("Pod"))
    surplus = len(pods) - wanted - (0 if recreates else bool(old))
    if recreates and old:
        for pod in old:
            _stop(cluster, pod)
    elif len(new) < wanted and surplus < 0 and not (recreates and stopping):
        _pod(cluster, deployment, _labels(template))
    elif len(new) > wanted:
        _stop(cluster, new[0])
    elif old and sum(map(answers, pods)) > wanted:
        _stop(cluster, old[0])
    ready = sum(map(answers, pods))
    counts = dict.fromkeys(("replicas", "updatedReplicas"), len(pods)) | {"readyReplicas": ready}
    _status(cluster, deployment, {"observedGeneration": deployment["metadata"]["generation"], **counts})


def _job(cluster: Cluster, job: Object) -> None:
    pods = [pod for pod in cluster.of("Pod") if owner_uid(pod) == job["metadata"]["uid"]]
    if not pods:
        labels = {**_labels(job["spec"]["template"]), "batch.kubernetes.io/controller-uid": job["metadata"]["uid"]}
        _pod(cluster, job, labels)
    elif pods[0]["status"]["phase"] == "Succeeded":
        _status(cluster, job, {"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]})


def _kubelet(cluster: Cluster, pod: Object) -> None:
    meta, age = pod["metadata"], _age(cluster, pod["metadata"]["creationTimestamp"])
    if "deletionTimestamp" in meta:
        if _age(cluster, meta["deletionTimestamp"]) >= ENDS:
            cluster.remove(pod, US)
        return
    if not all(cluster.get("PersistentVolumeClaim", claim) for claim in _claims(pod)):
        return  # it waits for them
    began = {"startedAt": meta["creationTimestamp"]}
    if "batch.kubernetes.io/controller-uid" in _labels(pod):
        if age >= WORKS:
            _state(cluster, pod, "Succeeded", {"terminated": {"exitCode": 0, "message": VERDICT, **began}}, "False")
    elif age >= STARTS and not answers(pod):
        _state(cluster, pod, "Running", {"running": began}, "True")


def _claims(pod: Object) -> list[str]:
    volumes = pod["spec"].get("volumes", [])
    return [each["persistentVolumeClaim"]["claimName"] for each in volumes if "persistentVolumeClaim" in each]


def _state(cluster: Cluster, pod: Object, phase: str, state: Object, ready: str) -> None:
    containers = [{"name": names.CONTAINER, "restartCount": 0, "state": state}]
    conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": cluster.loop.stamp()}]
    _status(cluster, pod, {"phase": phase, "conditions": conditions, "containerStatuses": containers})


def _pod(cluster: Cluster, owner: Object, labels: dict[str, str]) -> None:
    meta, template = owner["metadata"], owner["spec"]["template"]
    owners = [{"kind": owner["kind"], "name": meta["name"], "uid": meta["uid"], "controller": True}]
    named = {"name": f"{meta['name']}-{cluster.version}", "namespace": meta["namespace"]}
    cluster.put(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**named, "labels": dict(labels), "ownerReferences": owners},
            "spec": copied(template["spec"]),
            "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
        },
        US,
    )


def _stop(cluster: Cluster, pod: Object) -> None:
    meta = {**pod["metadata"], "deletionTimestamp": cluster.loop.stamp()}
    cluster.put({**pod, "metadata": meta}, US)


def _collect(cluster: Cluster) -> None:
    """Objects whose owners are all gone; of a service that is deleted in the foreground its children first."""
    uids = {obj["metadata"]["uid"] for obj in cluster.all}
    leaving = {s["metadata"]["uid"] for s in cluster.of(KIND) if "deletionTimestamp" in s["metadata"]}
    for obj in cluster.all:
        owners = {owner["uid"] for owner in obj["metadata"].get("ownerReferences", [])}
        if owners and owners.isdisjoint(uids - leaving):
            _delete(cluster, obj)
    for service in cluster.of(KIND):
        meta = service["metadata"]
        owned = any(owner_uid(obj) == meta["uid"] for obj in cluster.all)
        if meta["uid"] in leaving and not owned and _age(cluster, meta["deletionTimestamp"]) > FINALIZED:
            cluster.remove(service, US)


def _collect_at_once(cluster: Cluster, write: Write) -> None:
    """Where the garbage collector is fast, it acts on a service's deletion, and not at its next look alone."""
    deleted = write.after is None or "deletionTimestamp" in write.after["metadata"]
    if cluster.collects == 0 and write.object["kind"] == KIND and deleted:
        cluster.loop.call_later(cluster.random.random() * LATENCY / 4, _collect, cluster)


def _delete(cluster: Cluster, obj: Object) -> None:
    if obj["kind"] != "Pod":
        cluster.remove(obj, US)
    elif "deletionTimestamp" not in obj["metadata"]:
        _stop(cluster, obj)


def _status(cluster: Cluster, obj: Object, status: Object) -> None:
    if obj.get("status") != status:
        cluster.put({**obj, "metadata": dict(obj["metadata"]), "status": status}, US)


def _labels(obj: Object) -> dict[str, str]:
    found: dict[str, str] = obj["metadata"].get("labels", {})
    return found


def _age(cluster: Cluster, stamp: str) -> float:
    return cluster.loop.time() - cluster.loop.seconds(stamp)
