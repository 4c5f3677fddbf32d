"""A real Triton server with the reference pair, the page before it, and a browser."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import pki
from triton import bls_client
from triton.again import pytest_runtest_protocol, pytest_terminal_summary
from triton.harness import TritonServer
from ui.browser import Browser
from ui.site import Site

__all__ = ["pytest_runtest_protocol", "pytest_terminal_summary"]


@pytest.fixture(scope="session")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    made = bls_client.repository(
        tmp_path_factory.mktemp("repository"), "reference", max_draft_len=8, max_engine_rows=64
    )
    with TritonServer(made) as server:
        yield server


@pytest.fixture
def adaptive(tmp_path: Path) -> Iterator[TritonServer]:
    """Its draft length follows acceptance and load, and a share of the requests shows what drafts are worth."""
    changes = {"max_draft_len": 8, "max_engine_rows": 64, "adaptive": True, "probe_share": 0.2}
    with TritonServer(bls_client.repository(tmp_path / "repository", "reference", **changes)) as server:
        yield server


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert shutil.which("chromedriver"), "there is no ChromeDriver: run `make ui`, which installs it"
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        browser.size(1280, 900)
        yield browser


@pytest.fixture
def site(triton: TritonServer, tmp_path: Path) -> Iterator[Site]:
    authority = pki.load_authority(tmp_path, "front-proxy-ca").path.read_text()
    with Site(triton.grpc_url, triton.ports.metrics, authority) as site:
        yield site


@pytest.fixture
def browser(chromium: Browser, site: Site) -> Iterator[Browser]:
    """At the sign-in. What the page's policy forbids, or a script raises, fails the test."""
    chromium.scheme("light")
    chromium.open(site.url)
    chromium.run("sessionStorage.clear()")
    chromium.open(site.url)
    yield chromium
    assert [line for line in chromium.log() if "Failed to load resource" not in line] == []
