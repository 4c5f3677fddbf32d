"""The pictures of docs/how-to/ui.md, with WRITE_SCREENSHOTS=1: the page before a real Triton server, under load."""

import os
from functools import partial
from pathlib import Path

import pytest

from triton.harness import TritonServer
from ui.browser import Browser
from ui.site import Load, Site
from ui.test_page import PROMPT, refresh, signed_in

IMAGES = Path(__file__).parents[2] / "docs/images"
PROMPTS = [PROMPT, "class Stack:", "import unittest", "def parse(text):"]


@pytest.mark.skipif(not os.environ.get("WRITE_SCREENSHOTS"), reason="`make ui-images` writes them")
def test_write_the_pictures(browser: Browser, site: Site, adaptive: TritonServer, triton: TritonServer) -> None:
    site.triton, site.metrics_port = adaptive.grpc_url, adaptive.ports.metrics
    IMAGES.mkdir(exist_ok=True)
    signed_in(browser)
    with Load(site, PROMPTS):
        rounds(browser, site, 40)  # thirty requests without drafts, at least
        browser.find("tbody .bars")
        shoot(browser, "list", 1280, 440, "light")
        browser.click("a[href='#/default/quickstart']")
        browser.find(".spark .line")
        shoot(browser, "service", 1280, 1330, "light")
    browser.scheme("light")
    site.triton = triton.grpc_url  # whose draft length is not chosen by the load
    browser.write("#tokens", "96")
    browser.click("form button[type=submit]")
    browser.wait("the end", lambda: "ended by" in browser.text("form [role=status]"))
    browser.size(1280, 800)
    browser.run("document.querySelector('#playground').scrollIntoView()")
    shoot(browser, "playground", 1280, 800, "dark")


def rounds(browser: Browser, site: Site, count: int) -> None:
    for before in range(site.board.rounds, site.board.rounds + count):
        browser.wait("a round", partial(later, site, before))
        refresh(browser)


def later(site: Site, before: int) -> bool:
    return site.board.rounds > before


def shoot(browser: Browser, name: str, width: int, height: int, *schemes: str) -> None:
    browser.size(width, height)
    for scheme in schemes:
        browser.scheme(scheme)
        browser.screenshot(IMAGES / f"ui-{name}-{scheme}.png")
