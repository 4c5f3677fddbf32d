"""What holds for all unit tests."""

from pathlib import Path

import hypothesis
import pytest

from support import unchanged
from support.services import QUICKSTART, parse
from tandem.api.types import SpeculativeInferenceService
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
    "serving/bls/draft_length/test_goodput": [],
    "serving/bls/draft_length/test_trials": [],
    "serving/bls/test_merged_calls": [],
}


def pytest_addoption(parser: pytest.Parser) -> None:
    unchanged.add_option(parser)


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
