"""A hostile resource changes nothing outside its own fields.

Every string of the schema is found by walking it and filled with each payload. Either the resource is refused (by
the schema, a CEL rule or the operator), or what is rendered for it, read back by each format's own parser (YAML,
JSON, Triton's protobuf), is what a harmless word in the same place gives, with the payload where the word was.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import yaml
from google.protobuf import json_format, text_format
from tritonclient.grpc import model_config_pb2

from tandem.api.crd import root_schema
from tandem.cli.manifests import ManifestError, accepted_all
from tandem.cli.render import render_manifests
from tandem.render.v1.llmapi import LlmApiVariables
from tandem.render.v1.stack import config
from tandem.settings import Settings, load_settings

SETTINGS = load_settings()
WORD = "harmless"
PAYLOADS = {
    "huge": "A" * 40_000,  # longer than any bound of the schema
    "path traversal": "../../../../etc/shadow",
    "shell": "x; rm -rf / #$(id)`id`|cat>/tmp/x && $HOME '\"\\",
    "jinja": "{{ 7 * 7 }}{% for x in ().__class__.__bases__ %}{{ x }}{% endfor %}{# #}",
    "YAML": "x\nmodel: /etc\n--- \n- !!python/object/apply:os.system ['id']\n&a *a",
    "protobuf": 'x" } } parameters { key: "llm_args_path" value { string_value: "/etc/shadow',
    "JSON": '"}], "server": {"command": ["sh"]}, "x": [{"',
    "control": "a\x00b\x1b[31m\u2028\r\n\t\ufeff\U0001f600",
}
HEADER = "apiVersion: serving.tandem.dev/v1alpha1\nkind: SpeculativeInferenceService\nmetadata: {name: hostile}\n"
# A string is tried in the first of these that takes it.
BASES = {
    "drafter of the user's": """
spec:
  runtime: {mode: LLMAPI, profile: trtllm-26.07}
  target: {model: {uri: hf://org/target}}
  speculation: {decodingType: UserProvided, userProvided: {entryPoint: "a:b", configMapName: own}}
""",
    "custom": """
spec:
  runtime: {mode: LLMAPI, profile: trtllm-1.3, image: own}
  target: {model: {uri: hf://org/target}}
  draft: {model: {uri: hf://org/draft}}
  speculation: {decodingType: Custom, custom: {type: PARD, needsDraft: true}}
""",
    "engines": """
spec:
  runtime: {mode: BLS, profile: trtllm-26.07}
  target: {model: {uri: hf://org/target}}
  draft: {model: {uri: hf://org/draft}}
  speculation: {decodingType: DraftTarget}
""",
}
# What an object needs beside the string.
BESIDE: dict[str, dict[str, Any]] = {
    "containers": {"name": "triton"},
    "resourceClaims": {"name": "gpu"},
    "prebuilt": {"uri": "hf://org/engine"},
    "volumes": {"name": "own", "emptyDir": {}},
    "volumeMounts": {"name": "own", "mountPath": "/own"},
    "env": {"name": "OWN"},
    "imagePullSecrets": {"name": "own"},
}
Path = tuple[str, ...]


def strings(schema: dict[str, Any], path: Path = ("spec",)) -> Iterator[Path]:
    """Path of every free string; `*` is an item of a list, `key` one of a map, `free` one in an object not ours."""
    if schema.get("type") == "string" and "enum" not in schema:
        yield path
    for name, child in schema.get("properties", {}).items():
        yield from strings(child, (*path, name))
    if isinstance(items := schema.get("items"), dict):
        yield from strings(items, (*path, "*"))
    if isinstance(values := schema.get("additionalProperties"), dict):
        yield from strings(values, (*path, "key"))
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        yield (*path, "free")


STRINGS = sorted(set(strings(root_schema()["properties"]["spec"])))
# These have no pattern, so that every payload gets as far as the renderer.
CARRIED = {
    "spec.runtime.image",
    "spec.runtime.extraLlmArgs.free",
    "spec.speculation.custom.args.free",
    "spec.placement.affinity.free",
    "spec.podTemplate.metadata.annotations.key",
}


def test_the_walk_finds_the_strings() -> None:
    found = {".".join(path) for path in STRINGS}
    assert found > CARRIED | {"spec.target.model.uri", "spec.speculation.userProvided.entryPoint"}
    assert len(found) > 40


def placed(node: Any, path: Path, value: str) -> Any:
    """`node` with `value` at `path`, and beside it what its parents need."""
    if not path:
        return value
    name, rest = path[0], path[1:]
    if rest[:1] == ("*",):
        return {**node, name: [placed(BESIDE.get(name, {}), rest[1:], value)]}
    return {**node, name: placed(node.get(name, BESIDE.get(name, {})), rest, value)}


def rendered_with(base: str, path: Path, value: str) -> Any:
    manifest = placed(yaml.safe_load(HEADER + BASES[base]), path, value)
    return rendered(yaml.dump(manifest, Dumper=yaml.CSafeDumper), SETTINGS)


@cache
def rendered_harmless(base: str, path: Path) -> Any:
    return rendered_with(base, path, WORD)


def rendered(text: str, settings: Settings) -> Any:
    """All that is rendered, read back; None when the resource is refused."""
    try:
        printed = render_manifests(accepted_all(text, settings), settings)
    except ManifestError:
        return None
    manifests = list(yaml.load_all(printed, yaml.CSafeLoader))  # in C: what is huge takes seconds otherwise
    for manifest in manifests:
        if manifest["kind"] == "ConfigMap":
            manifest["data"] = {name: _read(name, data) for name, data in manifest["data"].items()}
    return manifests


def _read(name: str, text: str) -> Any:
    if name.endswith(".pbtxt"):
        return json_format.MessageToDict(text_format.Parse(text, model_config_pb2.ModelConfig()))
    return json.loads(text) if name.endswith(".json") else yaml.load(text, yaml.CSafeLoader)


def differences(harmless: Any, hostile: Any, payload: str, path: str = "") -> Iterator[str]:
    """Where `hostile` is not `harmless` with the payload for the word; digests of contents differ."""
    if isinstance(harmless, dict) and isinstance(hostile, dict) and harmless.keys() == hostile.keys():
        for key, value in harmless.items():
            yield from differences(value, hostile[key], payload, f"{path}.{key}")
    elif isinstance(harmless, list) and isinstance(hostile, list) and len(harmless) == len(hostile):
        for index, value in enumerate(harmless):
            yield from differences(value, hostile[index], payload, f"{path}[{index}]")
    elif _without_digests(harmless, payload) != _without_digests(hostile, payload):
        yield f"{path}: {str(harmless)[:80]!r} became {str(hostile)[:80]!r}"


def _without_digests(value: Any, payload: str) -> Any:
    if not isinstance(value, str):
        return value
    return re.sub(r"\b(?:[0-9a-f]{32}|[0-9a-f]{10})\b", "DIGEST", value.replace(payload, WORD))


OFTEN = ("YAML", "control")
"""Payloads of each change; the others are nightly: each is put into hundreds of fields."""


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(text, marks=() if name in OFTEN else pytest.mark.nightly, id=name)
        for name, text in PAYLOADS.items()
    ],
)
def test_a_hostile_string_stays_in_its_field(payload: str) -> None:
    carried = set()
    for path in STRINGS:
        for base in BASES:
            hostile = rendered_with(base, path, payload)
            if hostile is not None:
                found = list(differences(rendered_harmless(base, path), hostile, payload))
                assert found == [], f"{path} in {base}"
                carried.add(".".join(path))
                break
    bounded = (
        {"spec.runtime.image", "spec.podTemplate.metadata.annotations.key"} if payload == PAYLOADS["huge"] else set()
    )
    assert carried >= CARRIED - bounded


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_templates_are_safe_without_the_schema(payload: str) -> None:
    """The schema's patterns keep these out of config.pbtxt; the templates do not rely on it."""
    variables = LlmApiVariables(
        streams=payload,
        unary=payload,
        llm_args_path=payload,
        engine=payload,
        max_batch_size=4,
        max_waiting_sequences=8,
        request_timeout_seconds=60,
        drafter=payload,
        resource_manager=payload,
        drafter_path="/own",
        refused_parameters=payload,
    )
    message = text_format.Parse(config("tensorrt_llm_llmapi", variables), model_config_pb2.ModelConfig())
    found = {name: value.string_value for name, value in message.parameters.items()}
    assert found["drafter"] == found["llm_args_path"] == found["engine"] == payload
    assert found["resource_manager"] == found["refused_parameters"] == payload
    assert found["drafter_path"] == "/own"
    assert set(found) == {
        *(
            "llm_args_path",
            "engine",
            "resource_manager",
            "refused_parameters",
            "request_timeout_seconds",
            "max_running_sequences",
            "max_waiting_sequences",
        ),
        *("drafter", "drafter_path"),
    }
