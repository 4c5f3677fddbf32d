"""Nothing that clients sent, and no Secret's value, gets from a crashed container into what the operator writes."""

import json
import logging
from typing import Any

import pytest

from bench.scale.__main__ import NAMESPACE
from support.api_server import Cluster
from tandem import names
from tandem.api import PLURAL

PROMPT, SECRET = "Canary-prompt-of-a-client", "Canary-value-of-a-Secret"
LOG = f"""I1126 model.cc:99] request: {{"text_input": "{PROMPT}"}}
Traceback (most recent call last):
  File "model.py", line 7, in execute
RuntimeError: cannot tokenize '{PROMPT}'; environment: HF_TOKEN={SECRET}
Signal (11) received."""
BEGAN, READY, ENDED = "2026-01-01T00:00:00Z", "2026-01-01T00:00:30Z", "2026-01-01T00:05:00Z"


def crashed(pod: dict[str, Any], changed: str) -> dict[str, Any]:
    """The pod after its container ended with `LOG`; its condition Ready changed last at `changed`."""
    ended = {"exitCode": 139, "startedAt": BEGAN, "finishedAt": ENDED, "message": LOG}
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}
    status = {"name": names.CONTAINER, "ready": False, "restartCount": 1, "state": {"waiting": waiting}}
    conditions = [{"type": "Ready", "status": "False", "lastTransitionTime": changed}]
    phase = {"phase": "Running", "conditions": conditions}
    return {**pod, "status": {**phase, "containerStatuses": [{**status, "lastState": {"terminated": ended}}]}}


async def written(cluster: Cluster, changed: str) -> str:
    """The service with its status, and all Events, after its server crashed."""
    await cluster.bring_up()
    store = cluster.server.store
    pods = [json.loads(one.whole) for plural, one in store.all() if plural == "pods"]
    servers = [pod for pod in pods if pod["metadata"]["labels"].get(names.LABEL_COMPONENT) == names.SERVER]
    assert servers
    for pod in servers:
        store.put("pods", crashed(pod, changed))
    deployment = next(json.loads(one.whole) for plural, one in store.all() if plural == "deployments")
    store.put("deployments", {**deployment, "status": {**deployment["status"], "readyReplicas": 0}})
    await cluster.reconcile()
    assert cluster.conditions()["Ready"].startswith("False")
    assert "CrashLoopBackOff" in cluster.message("PodsHealthy")
    texts = [one.whole.decode() for plural, one in store.all() if plural in (PLURAL, "events")]
    assert any("NotReady" in text for text in texts), NAMESPACE
    return "\n".join(texts)


async def test_prompts_and_secrets_of_a_server_that_served_are_nowhere(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    text = await written(cluster, READY)
    for canary in (PROMPT, SECRET):
        assert canary not in text
        assert canary not in caplog.text


async def test_a_server_that_never_served_shows_why_without_secrets(cluster: Cluster) -> None:
    """There was no client yet; without the error nobody could mend it."""
    text = await written(cluster, BEGAN)
    assert "RuntimeError: cannot tokenize" in text
    assert SECRET not in text
