"""Offline admission says what the real API server says: the rows of its own test, read from there."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from integration.conftest import SERVICE, edited
from support.admission import METADATA, ROWS, SCALARS, with_metadata
from tandem.api.crd import root_schema
from tandem.cli.documents import documents
from tandem.cli.manifests import ManifestError, accepted_all
from tandem.settings import load_settings

RULES = json.dumps(root_schema())


@pytest.mark.parametrize(("change", "message", "reason"), ROWS, ids=[row[2] for row in ROWS])
def test_refused_offline_too(change: dict[str, Any], message: str, reason: str) -> None:
    with pytest.raises(ManifestError) as refused:
        accepted_all(json.dumps(edited(SERVICE, **change)), load_settings())
    if message in RULES:  # a rule's own words; types and bounds have pydantic's
        assert message in str(refused.value), reason


@pytest.mark.parametrize(("metadata", "path", "reason"), METADATA, ids=[row[2] for row in METADATA])
def test_metadata_is_refused_offline_too(metadata: str, path: str, reason: str) -> None:
    with pytest.raises(ManifestError) as refused:
        accepted_all(with_metadata(SERVICE, metadata), load_settings())
    assert path in str(refused.value), reason


DIGEST = f"@sha256:{'0' * 64}"
IMAGES = [
    # image, reason
    ("models", "of the node's own registry"),
    ("registry.example:5000/models/llama:1", "a tag"),
    (f"registry.example/models/llama{DIGEST}", "a digest"),
    (f"registry.example:5000/models/llama:1{DIGEST}", "both, as tools write it that pin a tag"),
]


@pytest.mark.parametrize(("image", "reason"), IMAGES, ids=[row[1] for row in IMAGES])
def test_images_that_are_taken(image: str, reason: str) -> None:
    service = edited(SERVICE, target__model={"uri": f"oci://{image}"})
    assert len(accepted_all(json.dumps(service), load_settings())) == 1, reason


def test_metadata_that_is_taken() -> None:
    metadata = "labels: {app.kubernetes.io/version: '2', team: , empty: ''}, annotations: {reviewed: 2026-01-01}"
    assert len(accepted_all(with_metadata(SERVICE, metadata), load_settings())) == 1


def test_scalars_as_kubectl_reads_them() -> None:
    (found,) = documents(SCALARS)
    assert (found["small"], found["thousand"], found["whole"], found["octal"]) == (1e-5, 1000, 2, 15)
    assert (found["date"], found["minutes"], found["its_letter"], found["12"]) == (
        "2026-01-01",
        "1:30",
        True,
        "a number for a key",
    )
    assert type(found["whole"]) is int, "as the API server has it"


UNREADABLE = [
    # text, what is said of it, reason
    ("a: [", "not YAML: while parsing a flow node", "no end"),
    ("&a {b: *a}", "an anchor contains itself, or it is too deep", "an anchor that contains itself"),
    ("[" * 2000, "it is too deep", "too deep"),
    ("a: .inf", "not YAML that JSON can be made of: Out of range", "JSON has no infinity"),
    ("a: !!binary aGk=", "not YAML that JSON can be made of: Object of type bytes", "nor bytes"),
]


@pytest.mark.parametrize(("text", "said", "reason"), UNREADABLE, ids=[row[2] for row in UNREADABLE])
def test_what_is_no_manifest_is_said_in_words(text: str, said: str, reason: str) -> None:
    with pytest.raises(ManifestError, match=said):
        accepted_all(text, load_settings())


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
