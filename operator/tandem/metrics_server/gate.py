"""The gate before every answer: who asks, and whether the cluster's RBAC lets them."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from tandem.errors import Refused, Transient
from tandem.metrics_server.authentication import AUDIENCE, Authenticator, TooManyStrangers, User
from tandem.metrics_server.authorization import AccessRequest, Authorizer

log = logging.getLogger(__name__)

REVIEW_SECONDS = 10.0
RETRY_AFTER = "2"
"""Seconds, for a token that is not asked about now: an address has another try by then."""


class Gate:
    """Lets through whom the API server would.

    Its methods raise web.HTTPUnauthorized, HTTPForbidden or HTTPTooManyRequests, and HTTPServiceUnavailable where the
    API server cannot be asked within `REVIEW_SECONDS`.
    """

    def __init__(self, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self._authenticator, self._authorizer = authenticator, authorizer

    async def user(self, request: web.Request) -> User:
        """Who asks."""
        peer = request.transport.get_extra_info("peercert") if request.transport else None
        with _reviewed():
            async with asyncio.timeout(REVIEW_SECONDS):
                user = await self._authenticator.user(peer or {}, request.headers, request.remote or "")
        if user is None:
            text = (
                f"show a bearer token for the audience {AUDIENCE} (kubectl create token ACCOUNT"
                f" --audience={AUDIENCE}), or come through the API server"
            )
            raise web.HTTPUnauthorized(text=text)
        return user

    async def allows(self, user: User, asked: AccessRequest) -> bool:
        """Whether `user` may have what is asked for."""
        with _reviewed():
            async with asyncio.timeout(REVIEW_SECONDS):
                return await self._authorizer.allows(user, asked)

    async def demand(self, user: User, asked: AccessRequest) -> None:
        """Go on only if `user` may have it."""
        if not await self.allows(user, asked):
            raise web.HTTPForbidden(
                text=f'User "{user.name}" cannot {asked.verb} {asked}: ask for a role that allows it'
            )


@contextmanager
def _reviewed() -> Iterator[None]:
    try:
        yield
    except TooManyStrangers as error:
        raise web.HTTPTooManyRequests(
            text="too many unknown tokens: try again", headers={"Retry-After": RETRY_AFTER}
        ) from error
    except (Transient, Refused, TimeoutError) as error:
        log.warning("the rights of a request cannot be checked: %s", error or "the API server does not answer")
        raise web.HTTPServiceUnavailable(
            text="the API server cannot be reached to check the rights: try again"
        ) from error
