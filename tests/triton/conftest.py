"""How the tests are spread over workers, and what a failed one shows of its server."""

from collections.abc import Generator
from pathlib import Path

import pytest

from support import unchanged
from triton.again import pytest_runtest_protocol, pytest_terminal_summary
from triton.harness import TritonServer

__all__ = ["pytest_runtest_protocol", "pytest_terminal_summary"]

# `--skip-unchanged`: tests of what only tests and benchmarks use, and those that compare the answers of servers; each
# with the files that it reads besides Python modules. Tests that start programs of the operator or the image always
# run.
ENGINE = ["images/reference", "images/serving", "operator/tandem/render", "tests/triton"]
BENCH = [*ENGINE, "tests/bench"]
UNTIL_CHANGED = {
    "test_again": ENGINE,
    "test_bare_bls": BENCH,
    "test_bench": BENCH,
    **dict.fromkeys(("test_bls.", "test_bls_exact", "test_bls_padded", "test_bls_streams", "test_llmapi"), ENGINE),
    "test_clocked_bls": BENCH,
    "test_engine.": ENGINE,
    "test_engine_faults": ENGINE,
    "test_harness": ENGINE,
    "test_long_texts": BENCH,
    "test_reference_llm": ENGINE,
    "test_served": BENCH,
    "test_stub_engine": BENCH,
    "test_upstream_clients": ENGINE,
    "test_vllm": [*ENGINE, "images/vllm-cpu"],
    "test_upstream_comparison": ENGINE,
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of `unchanged`, unless other tests of this run did."""
    unchanged.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Leave out what `--skip-unchanged` says."""
    unchanged.configure(config, Path(__file__).parent, UNTIL_CHANGED)


@pytest.hookimpl(tryfirst=True)  # xdist reads the marks in a hook of its own
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `--dist loadgroup`, what shares a server runs on one worker: a file's tests with the same values of
    fixtures that live as long as its module. A file of four servers keeps all workers busy, and so does one whose
    tests start their own."""
    for item in items:
        assert isinstance(item, pytest.Function)
        values = item.callspec.params if hasattr(item, "callspec") else {}
        if shared := _shared(item):
            given = {name: values[name] for name in shared if name in values}
            item.add_marker(pytest.mark.xdist_group(f"{item.path.stem}{given or ''}".translate(NOT_IN_NAMES)))


NOT_IN_NAMES = str.maketrans("@[]", "   ")
"""xdist writes a test's group behind its name."""


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fail where xdist has not taken the groups: each worker would start each server."""
    grouped = [item for item in session.items if item.get_closest_marker("xdist_group")]
    if session.config.getoption("loadgroup", False):
        assert all("@" in item.nodeid for item in grouped), "xdist does not group the tests: is pytest newer than it?"


def _shared(item: pytest.Function) -> list[str]:
    """The fixtures of its file that a test shares with others."""
    fixtures = item._fixtureinfo.name2fixturedefs
    own = {name: made[-1] for name, made in fixtures.items() if item.nodeid.startswith(f"{made[-1].baseid}::")}
    return sorted(name for name, made in own.items() if made.scope != "function")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test's report ends with the logs of its servers: fixtures do not see what their tests raise."""
    report = yield
    if report.failed:
        for server in TritonServer.running:
            report.sections.append((f"tritonserver log (tail), {server.repository}", server.tail()))
    return report
