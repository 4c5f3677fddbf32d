"""What the metrics server answers, over HTTPS: the custom metrics API, and the reports at `/v1/services`.

Every request is authenticated and authorized; those that are refused learn nothing else. Answers come from memory.
"""

from collections.abc import Awaitable, Callable

from aiohttp import web

from tandem import counters
from tandem.metrics.report import Reports, ServiceReport
from tandem.metrics_server.authorization import MetricRequest, PathRequest
from tandem.metrics_server.board import Board
from tandem.metrics_server.custom_metrics import (
    ALL_OBJECTS,
    METRICS,
    METRICS_API,
    RESOURCE,
    failure,
    resources,
    values,
)
from tandem.metrics_server.gate import Gate
from tandem.metrics_server.ui.page import UiPage, is_page

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
METRIC_PATH = f"/apis/{METRICS_API}/namespaces/{{namespace}}/{{resource}}/{{name}}/{{metric}}"


def application(board: Board, gate: Gate, page: UiPage | None = None) -> web.Application:
    """The application; its paths are those below, and those of the page where there is one."""
    answers = _Answers(board)
    app = web.Application(middlewares=[_as_status, _Permission(gate).permitted])
    get = (
        (f"/apis/{METRICS_API}", answers.discovery),
        (METRIC_PATH, answers.metric),
        ("/v1/services", answers.services),
        ("/v1/services/{namespace}", answers.services),
        ("/v1/services/{namespace}/{name}", answers.service),
    )
    app.add_routes([web.get(path, handler, allow_head=False) for path, handler in get])
    if page:
        page.add_to(app)
    return app


@web.middleware
async def _as_status(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors as Kubernetes' Status; every answer is counted."""
    try:
        response = await handler(request)
    except web.HTTPException as error:
        body, kept = failure(error.status, error.text or error.reason), error.headers.get("Retry-After")
        response = web.json_response(body, status=error.status, headers={"Retry-After": kept} if kept else None)
        if isinstance(error, (web.HTTPUnauthorized, web.HTTPTooManyRequests)):
            response.force_close()  # strangers keep no connection
    counters.SERVED.labels(str(response.status)).inc()
    return response


class _Permission:
    """Asks the gate about every request but the page's, whose handlers ask it themselves."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    @web.middleware
    async def permitted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not is_page(request):
            await self._gate.demand(await self._gate.user(request), _asked(request))
        return await handler(request)


class _Answers:
    """What is asked of the board, by path."""

    def __init__(self, board: Board) -> None:
        self._board = board

    async def discovery(self, _: web.Request) -> web.Response:
        return web.json_response(resources())

    async def metric(self, request: web.Request) -> web.Response:
        return web.json_response(_values(self._board, _metric_request(request), request))

    async def services(self, request: web.Request) -> web.Response:
        return _json(Reports(items=tuple(self._board.list(request.match_info.get("namespace", "")))))

    async def service(self, request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        report = self._board.get(namespace, name)
        if report is None:
            raise web.HTTPNotFound(text=f"there is no report of service {namespace}/{name} now")
        return _json(report)


def _metric_request(request: web.Request) -> MetricRequest:
    found = request.match_info
    return MetricRequest(found["namespace"], found["resource"], found["name"], found["metric"])


def _asked(request: web.Request) -> MetricRequest | PathRequest:
    return _metric_request(request) if "metric" in request.match_info else PathRequest(request.path)


def _values(board: Board, asked: MetricRequest, request: web.Request) -> dict[str, object]:
    if asked.resource != RESOURCE or asked.metric not in METRICS:
        raise web.HTTPNotFound(text=f"there is no {asked}: there are {', '.join(METRICS)} of {RESOURCE}")
    for selector in ("labelSelector", "metricLabelSelector"):
        if request.query.get(selector):
            raise web.HTTPBadRequest(
                text=f"{selector} selects nothing here, these metrics have no labels: leave it out"
            )
    one = board.get(asked.namespace, asked.name)
    reports = board.list(asked.namespace) if asked.name == ALL_OBJECTS else [one] if one else []
    found = values(asked.metric, reports)
    if found is None:
        raise web.HTTPNotFound(text=f"{asked} is not known now: its pods do not report it")
    return found


def _json(body: Reports | ServiceReport) -> web.Response:
    return web.Response(text=body.model_dump_json(by_alias=True, exclude_none=True), content_type="application/json")
