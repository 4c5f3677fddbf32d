"""What the metrics server answers, over HTTPS: the custom metrics API, and the reports at `/v1/services`.

Every request is authenticated and authorized; those that are refused learn nothing else. Answers come from memory.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from aiohttp import web

from tandem import counters
from tandem.errors import Refused, Transient
from tandem.metrics.report import Reports, ServiceReport
from tandem.metrics_server.authentication import AUDIENCE, Authenticator, TooManyStrangers, User
from tandem.metrics_server.authorization import Authorizer, MetricRequest, PathRequest
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

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
REVIEW_SECONDS = 10.0
RETRY_AFTER = "2"
"""Seconds, for a token that is not asked about now: an address has another try by then."""
METRIC_PATH = f"/apis/{METRICS_API}/namespaces/{{namespace}}/{{resource}}/{{name}}/{{metric}}"


def application(board: Board, authenticator: Authenticator, authorizer: Authorizer) -> web.Application:
    """The application; its paths are those below."""
    answers = _Answers(board)
    app = web.Application(middlewares=[_as_status, _Gate(authenticator, authorizer).permitted])
    get = (
        (f"/apis/{METRICS_API}", answers.discovery),
        (METRIC_PATH, answers.metric),
        ("/v1/services", answers.services),
        ("/v1/services/{namespace}", answers.services),
        ("/v1/services/{namespace}/{name}", answers.service),
    )
    app.add_routes([web.get(path, handler, allow_head=False) for path, handler in get])
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


class _Gate:
    """Lets through whom the API server would."""

    def __init__(self, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self._authenticator, self._authorizer = authenticator, authorizer

    @web.middleware
    async def permitted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        asked = _asked(request)
        try:
            async with asyncio.timeout(REVIEW_SECONDS):
                user = await _user(self._authenticator, request)
                if not await self._authorizer.allows(user, asked):
                    raise web.HTTPForbidden(
                        text=f'User "{user.name}" cannot get {asked}: ask for a role that allows it'
                    )
        except (Transient, Refused, TimeoutError) as error:
            log.warning("the rights of a request cannot be checked: %s", error or "the API server does not answer")
            raise web.HTTPServiceUnavailable(
                text="the API server cannot be reached to check the rights: try again"
            ) from error
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


async def _user(authenticator: Authenticator, request: web.Request) -> User:
    peer = request.transport.get_extra_info("peercert") if request.transport else None
    try:
        user = await authenticator.user(peer or {}, request.headers, request.remote or "")
    except TooManyStrangers as error:
        raise web.HTTPTooManyRequests(
            text="too many unknown tokens: try again", headers={"Retry-After": RETRY_AFTER}
        ) from error
    if user is None:
        text = (
            f"show a bearer token for the audience {AUDIENCE} (kubectl create token ACCOUNT --audience={AUDIENCE}),"
            " or come through the API server"
        )
        raise web.HTTPUnauthorized(text=text)
    return user


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
