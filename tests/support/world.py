"""A small Kubernetes for tests of what the operator decides: it keeps what was applied."""

import copy
import json
from dataclasses import replace
from typing import Any

from bench.scale.controllers import managed
from tandem import names
from tandem.api.types import SpeculativeInferenceService
from tandem.cluster import parse
from tandem.conditions.ready import status
from tandem.conditions.situation import Situation
from tandem.rollout.decide import Decision, decide
from tandem.rollout.observed import Observed
from tandem.rollout.plan import Action, CreateKeys, Delete, plan
from tandem.settings import Settings

GOOD = json.dumps(
    {
        "checks": [
            {"type": "ModelsReady", "status": "True", "reason": "FilesFound", "message": "both are there"},
            {"type": "PairCompatible", "status": "True", "reason": "TokenizersEqual", "message": "equal"},
        ]
    }
)
BAD = GOOD.replace(
    '"True", "reason": "TokenizersEqual", "message": "equal"',
    '"False", "reason": "TokenizersDiffer", "message": "token 7 is a here and b there: take a draft that shares it"',
)


COMMIT = "0123456789abcdef0123456789abcdef01234567"
HUB = {
    "target__model": {"uri": "hf://org/target", "revision": "main", "secretName": "hub"},
    "draft__model": {"uri": "hf://org/draft"},
}


NOW = "2026-01-01T00:00:00Z"


def fetched(path: str = "models/" + "a" * 32, status: str = "True", reason: str = "Fetched") -> str:
    """Verdict of a download."""
    check = {"type": "ModelsReady", "status": status, "reason": reason, "message": "7 bytes in 1 files"}
    return json.dumps({"checks": [check], "revision": COMMIT, "path": path, "bytes": 7, "files": 1})


class World:
    """Kubernetes, reduced to a dictionary: applied objects stay as they were applied."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.pods: list[dict[str, Any]] = []
        self.secrets: dict[str, dict[str, Any]] = {}
        self.clock = 0

    def observed(self) -> Observed:
        """What a reconcile would read."""
        children = [obj for obj in self.objects.values() if obj["kind"] != "PersistentVolumeClaim"]
        claim = self.objects.get(("PersistentVolumeClaim", names.CACHE_CLAIM))
        return replace(observed_of(*children, *self.pods), claim=parse.claim(claim) if claim else None)

    def step(self, service: SpeculativeInferenceService) -> tuple[Decision, list[str]]:
        """Decide, plan and execute once; what was done as `+Kind`, `~Kind` and `-Kind`."""
        observed = self.observed()
        decision = decide(service, self.settings, observed)
        actions = plan(service, decision, observed, self.settings)
        for action in actions:
            self.execute(action)
        return decision, [self.describe(action) for action in actions]

    def execute(self, action: Action) -> None:
        """One request."""
        if isinstance(action, Delete):
            del self.objects[action.live.kind, action.live.name]
            return
        if isinstance(action, CreateKeys):
            self.secrets.setdefault(action.manifest["metadata"]["name"], action.manifest)
            return
        self.clock += 1
        obj = applied(action.manifest, f"2026-01-01T00:00:{self.clock:02}Z")
        obj["metadata"]["uid"] = f"uid-{self.clock}"
        self.objects[obj["kind"], obj["metadata"]["name"]] = obj

    @staticmethod
    def describe(action: Action) -> str:
        """`+Kind`, `~Kind` and `-Kind`."""
        if isinstance(action, Delete):
            return f"-{action.live.kind}"
        if isinstance(action, CreateKeys):
            return "+Secret?"
        return ("~" if action.live else "+") + str(action.manifest["kind"])

    def finish_preflight(self, message: str | None) -> None:
        """The only Job ends; `message` is its termination message, None when the pod is gone."""
        (name,) = self.jobs()
        self.finish(name, message)

    def jobs(self) -> list[str]:
        """Names of the Jobs."""
        return [name for kind, name in self.objects if kind == "Job"]

    def finish(self, name: str, message: str | None) -> None:
        """That Job ends; `message` as in `finish_preflight`."""
        job = self.objects["Job", name]
        job["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
        if message is not None:
            self.pods.append(job_pod(job, message))

    def run_servers(self, count: int, ready: bool = True) -> None:
        """The Deployment controller makes `count` pods of the Deployment as it is now, and removes all others."""
        ((_, deployment),) = [item for item in self.objects.items() if item[0][0] == "Deployment"]
        deployment["status"] = {"observedGeneration": 1}
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        self.pods = [server_pod(f"server-{n}", labels, ready) for n in range(count)]


def applied(manifest: dict[str, Any], at: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    """The manifest as the API server has it once we applied it; `at`: when it was made, and changed last."""
    obj = copy.deepcopy(manifest)
    ours = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")}
    ours["metadata"] = {k: v for k, v in obj["metadata"].items() if k in ("labels", "annotations", "ownerReferences")}
    entry = {**managed(names.FIELD_MANAGER, ours), "time": at}
    obj["metadata"] |= {"creationTimestamp": at, "generation": 1, "managedFields": [entry]}
    return obj


def job_pod(job: dict[str, Any], message: str, phase: str = "Succeeded") -> dict[str, Any]:
    """A pod of `job`, which ended unless `phase` is another."""
    labels = {"batch.kubernetes.io/controller-uid": job["metadata"]["uid"], names.LABEL_COMPONENT: names.PREFLIGHT}
    ended = {"exitCode": int(phase == "Failed"), "message": message}
    state = {"terminated": ended} if phase in ("Succeeded", "Failed") else {"running": {}}
    return {
        "kind": "Pod",
        "metadata": {"name": f"{job['metadata']['name']}-x", "labels": labels},
        "status": {
            "phase": phase,
            "containerStatuses": [{"name": names.CONTAINER, "state": state}],
        },
    }


def server_pod(name: str, labels: dict[str, str], ready: bool) -> dict[str, Any]:
    """A pod of the servers."""
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "status": {"phase": "Running", "conditions": conditions},
    }


def findings(world: World, service: SpeculativeInferenceService, decision: Decision) -> dict[str, str]:
    """Condition type to `Status/Reason`."""
    found = status(Situation(service, decision, world.observed(), "2026-01-01T00:00:00Z"))
    return {c["type"]: f"{c['status']}/{c['reason']}" for c in found["conditions"]}


def bring_up(world: World, service: SpeculativeInferenceService) -> Decision:
    """From nothing to servers that answer."""
    world.step(service)
    world.finish_preflight(GOOD)
    world.step(service)
    world.run_servers(service.spec.replicas)
    return world.step(service)[0]


def fetch_jobs(world: World) -> dict[str, str]:
    """URI to name of the Jobs that download."""
    commands = {name: world.objects["Job", name]["spec"]["template"]["spec"]["containers"] for name in world.jobs()}
    return {c[0]["command"][5]: name for name, c in commands.items() if c[0]["name"] == names.FETCH}


def observed_of(*objects: dict[str, Any], service: str = "quickstart") -> Observed:
    """What is observed of these manifests; one without a kind is a Pod."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for obj in objects:
        kinds.setdefault(obj.get("kind", "Pod"), []).append(obj)
    return parse.parse(service, kinds)
