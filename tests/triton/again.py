"""A test whose server Triton itself breaks runs once more.

Where a machine stands still for a second or two, Triton 2.51 takes a model's process for dead: it aborts by a
lock_exception, kills that process, or crashes. That is no fault of what is tested, and no test can prevent it. It
must be proven (`TritonServer.given_up`); any other failure stays one, and so does the second.
"""

import time

import pytest
from _pytest.runner import runtestprotocol

from triton.harness import UNHEALTHY, ServerError, TritonServer
from triton.pulse import PULSE

AGAIN = "run again"
RECENT_SECONDS = 10.0
"""So long before a test it may have happened: the next call of the model finds it out."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """pytest's own, with a second try."""
    place = {"nodeid": item.nodeid, "location": item.location}
    item.ihook.pytest_runtest_logstart(**place)
    PULSE.begin()
    TritonServer.gave_up.clear()
    begun = time.monotonic()
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    failures = [report.longreprtext for report in reports if report.failed]
    if failures and (why := _gave_up("".join(failures), begun)):
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        for report in reports:
            report.user_properties.append((AGAIN, why))
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(**place)
    return True


def _gave_up(failures: str, begun: float) -> str:
    """What proves it of servers of this test; those that others use, too, start anew.

    Where it is the answer to a client, the server's log has nothing of it.
    """
    answer = UNHEALTHY.search(failures)
    still = PULSE.stood_still(begun - RECENT_SECONDS) if answer else 0
    if answer and still:
        TritonServer.gave_up.append(f"{answer[0]}; the machine stood still for {still:.1f} s")
    for server in [each for each in TritonServer.running if still or each.given_up]:
        server.stop()
        try:
            server.start()
        except ServerError as error:
            print(error)
            return ""
    return "\n".join(TritonServer.gave_up)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which tests ran twice, and why."""
    for report in [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]:
        for name, why in report.user_properties:
            if name == AGAIN and report.when == "call":
                terminalreporter.write_line(f"TWICE {report.nodeid}: Triton broke its server: {why}")
