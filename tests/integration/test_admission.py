"""What the real API server refuses, with the words that the user sees: each says what to write instead."""

import json
from typing import Any

import pytest

from cluster.errors import ClusterError

from .conftest import SERVICE, Namespace, edited

NONE_TYPE = {"decodingType": "None"}

ROWS: list[tuple[dict[str, Any], str, str]] = [
    ({"draft": None}, "DraftTarget needs a draft model: write spec.draft.model.uri", "a draft is missing"),
    ({"speculation": NONE_TYPE}, "remove spec.draft", "a draft where none belongs"),
    ({"runtime__mode": "Fast"}, 'supported values: "LLMAPI", "BLS"', "an unknown mode"),
    ({"speculation__decodingType": "Draft_Target"}, 'supported values: "DraftTarget", "None"', "TensorRT-LLM's word"),
    ({"runtime__mode": None}, "spec.runtime.mode: Required value", "the mode is never guessed"),
    ({"target": None}, "spec.target: Required value", "no target"),
    ({"speculation": None}, "spec.speculation: Required value", "no decoding type"),
    ({"target__model__uri": "/opt/model"}, "write uri: file:///path/of/the/model", "a path is no URI"),
    ({"target__model__uri": "hf://org/model"}, "write uri: file:///path/of/the/model", "not in this version"),
    ({"target__model__uri": "file:///a/../../etc"}, "must not contain '..'", "path traversal"),
    ({"target__model__uri": "file:///a;rm -rf"}, "letters, digits", "shell metacharacters"),
    ({"speculation__maxDraftLen": 0}, "should be greater than or equal to 1", "no draft tokens"),
    ({"speculation__maxDraftLen": 33}, "should be less than or equal to 32", "beyond any use"),
    ({"speculation__maxDraftLen": "four"}, 'must be of type integer: "string"', "a word for a number"),
    ({"speculation__adaptive": {"minDraftLen": 5}}, "must not be above maxDraftLen", "a minimum above the maximum"),
    ({"speculation__adaptive": {"minDraftLen": -1}}, "should be greater than or equal to 0", "fewer than none"),
    ({"replicas": -1}, "should be greater than or equal to 0", "negative replicas"),
    ({"serving__maxBatchSize": 0}, "should be greater than or equal to 1", "an empty batch"),
    ({"runtime__profile": ""}, "should be at least 1 chars long", "an empty profile"),
    ({"placement__nodeSelector": {"a": "b" * 64}}, "Too long", "no label value"),
    ({"speculation__maxDraftLenn": 4}, "unknown field", "a misspelt field"),
    ({"draft__kvcache": {}}, "unknown field", "a field of another release"),
]


@pytest.mark.parametrize(("change", "message", "reason"), ROWS, ids=[row[2] for row in ROWS])
def test_refused(namespace: Namespace, change: dict[str, Any], message: str, reason: str) -> None:
    with pytest.raises(ClusterError) as refused:
        namespace.apply(**change)
    assert message in str(refused.value), reason
    assert namespace.items("sis") == [], "nothing is kept of a refused resource"


@pytest.mark.parametrize("name", ["a" * 41, "0abc", "with.dot"])
def test_refused_names(namespace: Namespace, name: str) -> None:
    raw = edited(SERVICE)
    raw["metadata"]["name"] = name
    with pytest.raises(ClusterError) as refused:
        namespace.run("apply", "-f", "-", stdin=json.dumps(raw))
    assert "DNS-1035 label of at most 40 characters" in str(refused.value)


def test_defaults_are_written_by_the_api_server(namespace: Namespace) -> None:
    namespace.apply(draft=None, speculation=NONE_TYPE)
    spec = namespace.get("sis", "svc")["spec"]
    assert spec["replicas"] == 1
    assert spec["speculation"]["maxDraftLen"] == 4
    assert spec["speculation"]["adaptive"] == {"enabled": True, "minDraftLen": 0}
    assert spec["serving"] == {"maxBatchSize": 16, "requestTimeoutSeconds": 600}
