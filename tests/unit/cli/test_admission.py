"""Offline admission says what the real API server says: the rows of its own test, read from there."""

import json
from typing import Any

import pytest

from integration.conftest import SERVICE, edited
from integration.test_admission import ROWS
from tandem.api.crd import root_schema
from tandem.cli.manifests import ManifestError, accepted_all
from tandem.settings import load_settings

RULES = json.dumps(root_schema())


@pytest.mark.parametrize(("change", "message", "reason"), ROWS, ids=[row[2] for row in ROWS])
def test_refused_offline_too(change: dict[str, Any], message: str, reason: str) -> None:
    with pytest.raises(ManifestError) as refused:
        accepted_all(json.dumps(edited(SERVICE, **change)), load_settings())
    if message in RULES:  # a rule's own words; types and bounds have pydantic's
        assert message in str(refused.value), reason


def test_most_rows_are_rules_of_ours() -> None:
    assert sum(message in RULES for _, message, _ in ROWS) > len(ROWS) / 2
