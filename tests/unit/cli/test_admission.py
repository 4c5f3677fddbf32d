"""Offline admission says what the real API server says: the rows of its own test, read from there."""

import json
from collections.abc import Iterator
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


def messages(schema: dict[str, Any]) -> Iterator[str]:
    """Messages of all rules of a schema."""
    yield from (rule["message"] for rule in schema.get("x-kubernetes-validations", []))
    below = [schema.get("items"), schema.get("additionalProperties"), *schema.get("properties", {}).values()]
    for child in below:
        yield from messages(child) if isinstance(child, dict) else ()


OF_NAMES = "metadata.name must be a DNS-1035 label"  # has a test of its own, since a row changes the spec


def test_every_rule_has_a_row() -> None:
    rules = {message for message in messages(root_schema()) if not message.startswith(OF_NAMES)}
    assert len(rules) > 30
    assert [rule for rule in sorted(rules) if not any(words in rule for _, words, _ in ROWS)] == []
