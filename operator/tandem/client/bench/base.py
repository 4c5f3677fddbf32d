"""`tandem bench --base`: the same service without speculation, made for the time of a benchmark."""

import contextlib
import copy
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from tandem.api import API_VERSION, GROUP, KIND, PLURAL
from tandem.api.wire import Object
from tandem.client import kubectl
from tandem.client.generate.app import Endpoint
from tandem.client.generate.view import Progress

FIELD_MANAGER = "tandem-bench"
SUFFIX = "-base"
LONGEST_NAME = 40
"""Of a service; see the CRD."""
LOADS_SECONDS = 3900.0
"""The base model is waited for at least so long: a model may load for an hour."""


@contextlib.asynccontextmanager
async def base_service(target: Endpoint, progress: Progress) -> AsyncIterator[Endpoint]:
    """Where the target alone answers. It is deleted in the end; should this process be killed, with the service.

    Raises:
        ClusterError: the service is not there, or its copy cannot be made.
    """
    place = ["--namespace", target.namespace] if target.namespace else []
    made = base_of(await kubectl.get(f"{PLURAL}.{GROUP}", target.name, *place))
    name, namespace = made["metadata"]["name"], made["metadata"]["namespace"]
    await kubectl.kubectl("create", f"--field-manager={FIELD_MANAGER}", "--filename=-", stdin=json.dumps(made))
    progress(f"{name} runs the target without a draft, on as many GPUs, until this is done")
    try:
        wait = max(target.wait_seconds, LOADS_SECONDS)
        yield replace(target, name=name, namespace=namespace, wait_seconds=wait)
    finally:
        await kubectl.kubectl("delete", f"{PLURAL}.{GROUP}", name, "--namespace", namespace, "--wait=false")


def base_name(name: str) -> str:
    """Name of the service that runs the target alone."""
    return f"{name[: LONGEST_NAME - len(SUFFIX)]}{SUFFIX}"


def base_of(service: Object) -> Object:
    """The service with decodingType None, one replica, and all else as it is. Pure."""
    meta, spec = service["metadata"], copy.deepcopy(service["spec"])
    for field in ("draft", "autoscaling"):
        spec.pop(field, None)
    spec |= {"replicas": 1, "speculation": {"decodingType": "None"}}
    spec.get("placement", {}).pop("strategy", None)  # of the draft
    _without_drafter(spec.get("runtime", {}).get("extraLlmArgs"))
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": meta["name"], "uid": meta["uid"]}
    metadata = {"name": base_name(meta["name"]), "namespace": meta["namespace"], "ownerReferences": [owner]}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def _without_drafter(extra: Any) -> None:
    if isinstance(extra, dict):
        extra.pop("speculative_config", None)
