"""Where a listener answers: of pods and nodes with IPv4, IPv6 or both."""

import asyncio
import socket

import aiohttp
import pytest
from aiohttp import web

from tandem.http.listener import Listener


async def answers(host: str, port: int) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{port}/") as reply:
            return reply.status == 404
    except aiohttp.ClientError:
        return False


@pytest.mark.parametrize(
    ("host", "dual", "wanted", "reason"),
    [
        ("", True, (True, True), "a pod of an IPv6-only cluster has no other address, one of two families has both"),
        ("", False, (True, False), "a kernel without IPv6"),
        ("127.0.0.1", True, (True, False), "the address that is asked for"),
        ("::1", True, (False, True), "likewise"),
    ],
)
async def test_where_it_answers(
    host: str, dual: bool, wanted: tuple[bool, bool], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: dual)
    listener = Listener(web.Application(), host, 0)
    await listener.listen()
    try:
        found = await asyncio.gather(*(answers(each, listener.port) for each in ("127.0.0.1", "[::1]")))
        assert tuple(found) == wanted, reason
    finally:
        await listener.close()
