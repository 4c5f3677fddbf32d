"""The operator as it runs: what the API server answers ends nothing, and work goes on when it is itself again.

All of it in this process, against the fake API server of tests/bench/scale.
"""

import asyncio
from typing import Any

from aiohttp import web

from bench.scale.__main__ import NAME, NAMESPACE, SERVICE
from support.api_server import PAGE, Cluster
from tandem import counters, names
from tandem.api import PLURAL
from tandem.process.operator import Operator

ENDPOINT = f"{NAME}-triton"


async def running(cluster: Cluster) -> asyncio.Task[None]:
    return asyncio.create_task(Operator(cluster.api, cluster.settings).run("127.0.0.1", 0))


async def until(what: str, check: Any) -> None:
    for _ in range(900):  # a right that is back is seen within a minute
        if check():
            return
        await asyncio.sleep(0.1)
    raise AssertionError(what)


async def test_a_proxys_login_page_ends_nothing(cluster: Cluster) -> None:
    """Before the start, and while all is well; afterwards work goes on."""
    page = web.Response
    cluster.server.instead = lambda _: page(body=PAGE, content_type="text/html")
    task = await running(cluster)
    await asyncio.sleep(3)
    assert not task.done()
    cluster.server.instead = lambda _: None
    cluster.server.store.put(PLURAL, dict(SERVICE))
    await until("it to come up", lambda: cluster.conditions().get("Ready") == "True/ServersAnswer")
    cluster.server.instead = lambda _: page(body=PAGE, content_type="text/html")
    await asyncio.sleep(5)
    assert not task.done()
    cluster.server.store.remove("services", NAMESPACE, ENDPOINT)
    cluster.server.instead = lambda _: None
    await until("the repair", lambda: cluster.has("services", ENDPOINT))
    task.cancel()
    await asyncio.wait([task])


async def test_a_right_that_was_missing_between_two_comparisons_heals(cluster: Cluster) -> None:
    """Only the service's own list was refused: no comparison saw that the right was gone, nor that it came back."""
    cluster.server.store.put(PLURAL, dict(SERVICE))
    task = await running(cluster)
    await until("it to come up", lambda: cluster.conditions().get("Ready") == "True/ServersAnswer")
    cluster.server.instead = refuse_lists_of_one_service
    cluster.server.store.remove("services", NAMESPACE, ENDPOINT)
    await until("the condition", lambda: cluster.conditions().get("RightsGranted") == "False/RightMissing")
    await asyncio.sleep(3)  # no event of the repair is still to come
    cluster.server.instead = lambda _: None
    await until("it to heal", lambda: "RightsGranted" not in cluster.conditions())
    task.cancel()
    await asyncio.wait([task])


def refuse_lists_of_one_service(request: web.Request) -> web.Response | None:
    one = names.LABEL_SERVICE + "=" in request.query.get("labelSelector", "")
    if not (one and request.path.endswith("/poddisruptionbudgets")):
        return None
    message = (
        'poddisruptionbudgets.policy is forbidden: User "tandem" cannot list resource "poddisruptionbudgets" in API'
        f' group "policy" in the namespace "{NAMESPACE}"'
    )
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403}
    return web.json_response({**status, "message": message}, status=403)


async def test_a_service_that_is_not_understood_is_not_counted_as_done(cluster: Cluster) -> None:
    spec = {**SERVICE["spec"], "speculation": {"decodingType": "Newest"}}
    cluster.server.store.put(PLURAL, {**SERVICE, "spec": spec})
    task = await running(cluster)
    await until("the condition", lambda: cluster.conditions().get("Ready") == "False/SpecNotUnderstood")
    await until("it to be counted", lambda: counted("unparsed") > 0)
    task.cancel()
    await asyncio.wait([task])


def counted(result: str) -> float:
    samples = next(iter(counters.RECONCILE_SECONDS.labels(result).collect())).samples
    return sum(sample.value for sample in samples if sample.name.endswith("_count"))


async def test_a_revoked_right_is_shown_by_services_without_events(cluster: Cluster) -> None:
    cluster.server.store.put(PLURAL, dict(SERVICE))
    task = await running(cluster)
    await until("it to come up", lambda: cluster.conditions().get("Ready") == "True/ServersAnswer")
    cluster.server.revoked = {("list", "poddisruptionbudgets"), ("watch", "poddisruptionbudgets")}
    await until("the condition", lambda: cluster.conditions().get("RightsGranted") == "False/RightMissing")
    cluster.server.store.remove("services", NAMESPACE, ENDPOINT)
    await until("the repair of another kind", lambda: cluster.has("services", ENDPOINT))
    samples = [s for f in counters.FORBIDDEN.collect() for s in f.samples if s.name.endswith("_total")]
    counted = {s.labels["resource"] for s in samples if s.labels["verb"] == "list" and s.value}
    assert "poddisruptionbudgets.policy" in counted
    cluster.server.revoked = set()
    await until("it to heal", lambda: "RightsGranted" not in cluster.conditions())
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])
