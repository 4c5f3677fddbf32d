"""The page's paths: its files, for all, and the JSON that they show, for those whom RBAC lets read the services."""

import asyncio
from collections.abc import Callable, Sequence
from importlib import resources
from typing import TYPE_CHECKING

from aiohttp import web

from tandem.api.wire import Wire
from tandem.cluster.kinds import POD, SERVICES_KIND
from tandem.metrics_server.authentication import User
from tandem.metrics_server.authorization import ObjectRequest
from tandem.metrics_server.board import Board
from tandem.metrics_server.gate import Gate
from tandem.metrics_server.inventory import Known
from tandem.metrics_server.ui.view import Detail, Summary, detail, summary

if TYPE_CHECKING:  # brings gRPC along, which is for those who have a playground
    from tandem.metrics_server.ui.playground import Playground

ROOT = "/ui"
SERVICE_PATH = f"{ROOT}/api/services/{{namespace}}/{{name}}"
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
REVIEWS_AT_ONCE = 8
SECURITY = {
    # No inline script or style, nothing from elsewhere, in no frame of anybody's.
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
OFF = "the playground is off: an administrator can set the chart's value metricsServer.page.playground"


class Listing(Wire):
    """The services that the user may read."""

    user: str
    age: float | None
    """Seconds since the figures were read; None: not yet."""
    fresh: bool
    """Whether figures are shown: old ones are dropped."""
    items: tuple[Summary, ...]


class One(Wire):
    """One service."""

    age: float | None
    fresh: bool
    service: Detail


def is_page(request: web.Request) -> bool:
    """Whether one of the page's paths is asked for: by the route that was found, not by what the client wrote."""
    resource = request.match_info.route.resource
    return resource is not None and (resource.canonical == ROOT or resource.canonical.startswith(f"{ROOT}/"))


def static_files() -> dict[str, tuple[str, bytes]]:
    """The page's files, by name: type and contents."""
    folder = resources.files("tandem.metrics_server.ui").joinpath("static")
    return {
        file.name: (TYPES[file.name.rpartition(".")[2]], file.read_bytes())
        for file in folder.iterdir()
        if file.name.rpartition(".")[2] in TYPES
    }


class UiPage:
    """Answers from memory: `known` gives services and pods, `board` their reports."""

    def __init__(
        self,
        gate: Gate,
        known: Callable[[], Sequence[Known]],
        board: Board,
        playground: "Playground | None" = None,
    ) -> None:
        self._gate, self._known, self._board, self._playground = gate, known, board, playground
        self._files = static_files()

    def add_to(self, app: web.Application) -> None:
        """Add the paths."""
        app.on_response_prepare.append(_secure)
        app.add_routes(
            [
                web.get(ROOT, self._root, allow_head=False),
                web.get(f"{ROOT}/", self._file, allow_head=False),
                web.get(f"{ROOT}/{{file}}", self._file, allow_head=False),
                web.get(f"{ROOT}/api/services", self._services, allow_head=False),
                web.get(SERVICE_PATH, self._service, allow_head=False),
            ]
        )
        if self._playground:
            app.add_routes([web.post(f"{SERVICE_PATH}/completions", self._playground.complete)])
            app.on_shutdown.append(self._playground.close)

    async def _root(self, _: web.Request) -> web.Response:
        return web.Response(status=308, headers={"Location": f"{ROOT}/"})

    async def _file(self, request: web.Request) -> web.Response:
        found = self._files.get(request.match_info.get("file", "index.html"))
        if found is None:
            raise web.HTTPNotFound
        return web.Response(body=found[1], content_type=found[0], charset="utf-8")

    async def _services(self, request: web.Request) -> web.Response:
        user = await self._gate.user(request)
        shown = await self._readable(user)
        items = [summary(k.service, self._board.get(k.service.namespace, k.service.name)) for k in shown]
        items.sort(key=lambda item: (item.namespace, item.name))
        return _json(Listing(user=user.name, age=self._board.age, fresh=self._board.fresh, items=tuple(items)))

    async def _readable(self, user: User) -> list[Known]:
        """All where the user may list the cluster's, else those of the namespaces whose services they may list."""
        known = list(self._known())
        if await self._gate.allows(user, ObjectRequest("list", SERVICES_KIND)):
            return known
        gate = asyncio.Semaphore(REVIEWS_AT_ONCE)

        async def may_list(namespace: str) -> bool:
            async with gate:
                return await self._gate.allows(user, ObjectRequest("list", SERVICES_KIND, namespace))

        spaces = sorted({each.service.namespace for each in known})
        allowed = await asyncio.gather(*map(may_list, spaces))
        seen = {space for space, may in zip(spaces, allowed, strict=True) if may}
        return [each for each in known if each.service.namespace in seen]

    async def _service(self, request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        user = await self._gate.user(request)
        await self._gate.demand(user, ObjectRequest("get", SERVICES_KIND, namespace, name))
        found = next((k for k in self._known() if (k.service.namespace, k.service.name) == (namespace, name)), None)
        if found is None:
            raise web.HTTPNotFound(text=f"there is no service {namespace}/{name}, or it is being deleted")
        with_pods = await self._gate.allows(user, ObjectRequest("list", POD, namespace))
        shown = detail(
            found,
            self._board.get(namespace, name),
            with_pods=with_pods,
            playground=await self._why_no_playground(user, namespace, name),
        )
        return _json(One(age=self._board.age, fresh=self._board.fresh, service=shown))

    async def _why_no_playground(self, user: User, namespace: str, name: str) -> str:
        if self._playground is None:
            return OFF
        return await self._playground.why_not(user, namespace, name)


async def _secure(request: web.Request, response: web.StreamResponse) -> None:
    if is_page(request):
        response.headers.update(SECURITY)


def _json(body: Wire) -> web.Response:
    return web.Response(text=body.model_dump_json(by_alias=True, exclude_none=True), content_type="application/json")
