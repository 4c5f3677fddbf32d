"""The Job that does a task, and the ConfigMap that keeps its result."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from tandem import names
from tandem.api.conditions import ConditionType
from tandem.api.types import SpeculativeInferenceService
from tandem.children.metadata import metadata
from tandem.digest import digest

VERDICT_KEY = "verdict.json"


@dataclass(frozen=True)
class Task:
    """Work that a Job does once for its inputs."""

    service: str
    """Name of the service."""
    component: str
    """names.FETCH, BUILD or PREFLIGHT."""
    digest: str
    """Ten hexadecimal digits of its inputs: equal ones need not be worked on again."""
    pod: Mapping[str, Any]
    """PodSpec; its container's termination message is the verdict."""
    conditions: tuple[ConditionType, ...]
    """Types of the conditions that the verdict decides."""
    title: str
    """What it does, for people: "fetches hf://org/model"."""
    retries: int = 2
    """Pods after the first; a pod fails only where trying again can help."""
    deadline_seconds: int = 3600
    """Longest time."""
    refusal_is_final: bool = True
    """Whether a verdict of False is kept: all that it depends on is among the inputs. False: the Job stays, and
    deleting it tries again."""
    claim: str = ""
    """Name of the cache volume's claim that its verdict is true of; empty: of none."""
    folder: str = ""
    """What it puts into the cache volume, in the containers, where that is known beforehand."""
    metadata: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """`labels` and `annotations` of the pod, beside those of Tandem."""

    @property
    def name(self) -> str:
        """Name of the Job and of the result."""
        return names.task(self.service, self.component, self.digest)

    @property
    def pod_digest(self) -> str:
        """Value of `names.LABEL_POD`: of where and how it is worked on, which `digest` leaves out."""
        return digest({**self.pod, "metadata": self.metadata} if self.metadata else self.pod)


def task_job(
    service: SpeculativeInferenceService, task: Task, labels: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """The Job of `task`; `labels`: further ones of its own."""
    meta = metadata(service, task.name, task.component)
    meta["labels"] |= {names.LABEL_POD: task.pod_digest, **labels}
    ours = names.labels(service.name, task.component)
    pod_metadata = {**task.metadata, "labels": {**task.metadata.get("labels", {}), **ours}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta,
        "spec": {
            "backoffLimit": task.retries,
            "activeDeadlineSeconds": task.deadline_seconds,
            "template": {"metadata": pod_metadata, "spec": dict(task.pod)},
        },
    }


def task_result(
    service: SpeculativeInferenceService, task: Task, verdict: str, labels: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """The task's verdict, so that equal inputs are never worked on twice; `labels`: further ones."""
    meta = metadata(service, task.name, names.result(task.component))
    meta["labels"] |= labels
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": meta,
        "immutable": True,
        "data": {VERDICT_KEY: verdict},
    }
