"""Who sees what on the page, and what the browser is allowed to do with it."""

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest

from support.rights import Right
from tandem.metrics_server.ui.page import static_files

from .conftest import Site

SERVICES = "/ui/api/services"
ONE = f"{SERVICES}/team-a/llama"
LIST, GET = "list", "get"
KIND = "speculativeinferenceservices"


async def names(site: Site, user: str) -> list[str]:
    status, _, body = await site.ask(SERVICES, user)
    assert status == 200, body
    return [item["name"] for item in json.loads(body)["items"]]


@pytest.mark.parametrize(
    ("rights", "seen", "reason"),
    [
        ([(LIST, KIND, "", "")], ["llama", "other"], "of the whole cluster"),
        ([(LIST, KIND, "team-b", "")], ["other"], "of one namespace"),
        ([(LIST, KIND, "team-a", ""), (LIST, KIND, "team-b", "")], ["llama", "other"], "of each"),
        ([(GET, KIND, "team-a", "llama")], [], "a right to one by its name lists none"),
        ([(LIST, "pods", "team-a", "")], [], "another right"),
        ([], [], "no right"),
    ],
)
async def test_the_services_that_the_user_may_list(
    site: Site, rights: list[Right], seen: list[str], reason: str
) -> None:
    site.rights.granted |= {("bob", right) for right in rights}
    assert await names(site, "bob") == seen, reason


async def test_one_service_is_for_those_who_may_get_it(site: Site) -> None:
    status, _, body = await site.ask(ONE, "bob")
    assert (status, "cannot get resource" in body) == (403, True)
    site.rights.granted.add(("bob", (GET, KIND, "team-a", "llama")))
    status, _, body = await site.ask(ONE, "carl")
    assert status == 403, "the right is another's"


async def test_pods_are_for_those_who_may_list_them(site: Site) -> None:
    site.rights.granted.add(("bob", (GET, KIND, "team-a", "llama")))
    ann, bob = [json.loads((await site.ask(ONE, user))[2])["service"] for user in ("ann", "bob")]
    assert [(pod["name"], pod["ready"], pod["state"]) for pod in ann["pods"]] == [
        ("llama-0", True, "answers"),
        ("llama-1", False, "no node has a GPU"),
    ]
    assert "pods" not in bob
    assert bob["problems"] == []
    assert ann["playground"] == ""
    assert bob["playground"].startswith('you may not create resource "services/proxy", object "llama-triton"')


async def test_a_service_that_is_not_there(site: Site) -> None:
    site.rights.granted.add(("ann", (GET, KIND, "team-a", "gone")))
    assert (await site.ask(f"{SERVICES}/team-a/gone", "ann"))[0] == 404


@pytest.mark.parametrize("path", [SERVICES, ONE, f"{ONE}/completions"])
async def test_strangers_get_no_data(site: Site, path: str) -> None:
    data = b"{}" if path.endswith("completions") else None
    for user in ("", "mallory"):
        status, _, body = await site.ask(path, user, data)
        assert (status, "llama" in body) == (401, False)
    assert site.rights.reviews == []


@pytest.mark.parametrize("path", ["/ui/nothing", "/ui/../v1/services", "/ui/%2e%2e%2fpage.py", "/v1/services", "/"])
async def test_no_other_path_is_open(site: Site, path: str) -> None:
    assert (await site.ask(path))[0] in (401, 404)


async def test_its_files_need_no_token_and_hold_no_data(site: Site) -> None:
    status, headers, body = await site.ask("/ui/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "llama" not in body
    assert (await site.ask("/ui"))[:2][1]["Location"] == "/ui/"


@pytest.mark.parametrize("path", ["/ui/", "/ui/app.js", SERVICES, "/ui/nothing"])
async def test_the_browser_takes_nothing_from_elsewhere(site: Site, path: str) -> None:
    _, headers, _ = await site.ask(path, "ann")
    policy = headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"


def test_the_files_ask_for_nothing_inline_or_from_elsewhere() -> None:
    """What the policy forbids would be missing from the page."""
    seen: list[tuple[str, dict[str, str | None]]] = []

    class Reader(HTMLParser):
        handle_starttag: Callable[..., Any] = lambda _, tag, attributes: seen.append((tag, dict(attributes)))

    files = static_files()
    Reader().feed(files["index.html"][1].decode())
    for tag, attributes in seen:
        assert "style" not in attributes and tag != "style"
        assert not any(name.startswith("on") for name in attributes)
        for name in ("src", "href"):
            assert (attributes.get(name) or "#/").startswith("#/") or attributes[name] in files
        assert tag != "script" or attributes.get("src")
    scripts = {name: text.decode() for name, (_, text) in files.items() if name.endswith(".js")}
    for name, text in scripts.items():
        assert set(re.findall(r'from "\./(.*?)"', text)) <= files.keys(), name
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|localStorage|cookie", text
        ), name


async def test_it_says_how_old_figures_are_and_drops_old_ones(site: Site) -> None:
    now = [0.0]
    site.board.clock = lambda: now[0]
    site.board.post(site.board.list())
    now[0] = 30.0
    body = json.loads((await site.ask(SERVICES, "ann"))[2])
    assert (body["age"], body["fresh"], body["items"][0]["figures"]["live"]) == (30.0, True, True)
    now[0] = 121.0
    body = json.loads((await site.ask(SERVICES, "ann"))[2])
    assert (body["fresh"], "figures" in body["items"][0]) == (False, False)


async def test_without_a_playground_there_is_no_way_to_send_prompts(site: Site) -> None:
    other = Site(site.rights, site.board, site.services, playground=False)
    await other.start()
    status, _, _ = await other.ask(f"{ONE}/completions", "ann", b'{"prompt": "x"}')
    body = json.loads((await other.ask(ONE, "ann"))[2])
    await other.listener.close()
    assert status == 403, "there is no such path"
    assert "metricsServer.page.playground" in body["service"]["playground"]
