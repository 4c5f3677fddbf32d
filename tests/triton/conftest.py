"""What a failed test shows of its server."""

from collections.abc import Generator

import pytest

from triton.again import pytest_runtest_protocol, pytest_terminal_summary
from triton.harness import TritonServer

__all__ = ["pytest_runtest_protocol", "pytest_terminal_summary"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test's report ends with the logs of its servers: fixtures do not see what their tests raise."""
    report = yield
    if report.failed:
        for server in TritonServer.running:
            report.sections.append((f"tritonserver log (tail), {server.repository}", server.tail()))
    return report
