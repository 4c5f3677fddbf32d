"""What holds for all unit tests."""

import hypothesis
import pytest

from support.services import QUICKSTART, parse
from tandem.api.types import SpeculativeInferenceService
from tandem.settings import Settings, load_settings

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("busy")


@pytest.fixture
def settings() -> Settings:
    """The operator's settings as they are by default."""
    return load_settings()


@pytest.fixture
def service() -> SpeculativeInferenceService:
    """The quickstart."""
    return parse(QUICKSTART)
