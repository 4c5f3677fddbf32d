"""What holds for all unit tests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from support import unchanged
from support.order import first
from support.services import QUICKSTART, parse
from tandem.api.conditions import ConditionType, Reason
from tandem.api.types import SpeculativeInferenceService
from tandem.conditions.finding import Finding
from tandem.settings import Settings, load_settings

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("busy")

# `--skip-unchanged`: slow tests whose result follows from files, and what they read beside Python modules.
UNTIL_CHANGED = {
    "bench/": ["tests/bench"],
    "local_cluster/": ["tests/cluster"],
    "reference_engine/": ["images/reference"],
    "reference_llm/": ["images/reference"],
    "serving/bls/draft_length/test_policy": [],
    "serving/bls/test_merged_calls": [],
    "simulation/": [],
}


def pytest_addoption(parser: pytest.Parser) -> None:
    unchanged.add_option(parser)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest begin first."""
    first(items, ("test_interleavings",))


def pytest_configure(config: pytest.Config) -> None:
    unchanged.configure(config, Path(__file__).parent, UNTIL_CHANGED)


@pytest.fixture
def settings() -> Settings:
    """The operator's settings as they are by default."""
    return load_settings()


@pytest.fixture
def service() -> SpeculativeInferenceService:
    """The quickstart."""
    return parse(QUICKSTART)


TAKE_OVER = (ConditionType.READY, ConditionType.RECONCILING, ConditionType.STALLED)
"""Conditions with the reasons of others."""


@pytest.fixture(autouse=True, scope="session")
def _findings_are_as_registered() -> Iterator[None]:
    """A condition that the operator makes in a test has a type and a status that the registry has for its reason."""
    make = Finding.__init__

    def checked(self: Finding, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        if isinstance(self.reason, Reason) and self.type not in TAKE_OVER:
            shown = {(each.type, status) for each in self.reason.shown for status in each.statuses}
            assert (self.type, self.status) in shown, f"{self.reason}: add this to tandem.api.conditions"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Finding, "__init__", checked)
        yield
