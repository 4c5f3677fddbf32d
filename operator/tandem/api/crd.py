"""The CustomResourceDefinition, made from the pydantic types.

Pydantic's JSON schema becomes a structural schema
(https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema):
`$ref` inlined, `null` alternatives dropped (absent is absent), titles dropped, CEL rules attached.
"""

from typing import Any

from tandem.api import API_VERSION, GROUP, KIND, PLURAL, VERSION
from tandem.api.types import Model, Rule, SpeculativeInferenceService

Schema = dict[str, Any]

_KEEP = [
    "type",
    "format",
    "description",
    "default",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-preserve-unknown-fields",
]

PRINTER_COLUMNS = [
    ("Type", "string", ".spec.speculation.decodingType", 0),
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', 0),
    ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', 0),
    ("Replicas", "string", ".status.readyReplicas", 0),
    ("Acceptance", "number", ".status.speculation.acceptanceRate", 0),
    ("Length", "number", ".status.speculation.meanAcceptedLength", 0),
    ("Speed-up", "number", ".status.speculation.speedup", 0),
    ("OpenAI", "string", ".status.openAIURL", 0),
    ("Mode", "string", ".spec.runtime.mode", 1),
    ("Profile", "string", ".spec.runtime.profile", 1),
    ("Revision", "string", ".status.currentRevision", 1),
    ("URL", "string", ".status.url", 1),
    ("Signal", "string", ".status.autoscaling.signal", 1),
    ("Age", "date", ".metadata.creationTimestamp", 0),
]


def crd() -> dict[str, Any]:
    """The whole CustomResourceDefinition manifest."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["sis"],
                "categories": ["tandem"],
            },
            "versions": [_version()],
        },
    }


def _version() -> dict[str, Any]:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": root_schema()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path, **({"priority": wide} if wide else {})}
            for name, kind, path, wide in PRINTER_COLUMNS
        ],
    }


def root_schema() -> Schema:
    """Structural schema of the whole object; `metadata` is the API server's own business."""
    schema = _inline(SpeculativeInferenceService.model_json_schema(by_alias=True))
    schema["properties"] = {
        "apiVersion": {"type": "string", "enum": [API_VERSION]},
        "kind": {"type": "string", "enum": [KIND]},
        "metadata": {"type": "object"},
        "spec": schema["properties"]["spec"],
        "status": schema["properties"]["status"],
    }
    schema["required"] = ["spec"]
    return schema


def _rules_by_title() -> dict[str, tuple[Rule, ...]]:
    classes: list[type[Model]] = [Model]
    for cls in classes:
        classes.extend(cls.__subclasses__())
    return {cls.__name__: cls.cel for cls in classes}


def _inline(document: Schema) -> Schema:
    """Structural schema of pydantic's `document`, `$defs` inlined."""
    definitions: dict[str, Schema] = document.get("$defs", {})
    rules = _rules_by_title()

    def convert(node: Schema) -> Schema:
        node = _resolve(node, definitions)
        out: Schema = {key: node[key] for key in _KEEP if key in node}
        if "const" in node:
            out["enum"] = [node["const"]]
        if "description" in out:
            out["description"] = " ".join(out["description"].split())
        if "properties" in node:
            out["properties"] = {name: convert(child) for name, child in node["properties"].items()}
        if required := node.get("required"):
            out["required"] = sorted(required)
        if isinstance(extra := node.get("additionalProperties"), dict):
            out["additionalProperties"] = convert(extra)
            if "maxProperties" in node:
                out["maxProperties"] = node["maxProperties"]
        if "items" in node:
            out["items"] = convert(node["items"])
        # Fields have titles too, from their names: a string `source` is no Source.
        if "properties" in node and (cel := rules.get(str(node.get("title")))):
            out["x-kubernetes-validations"] = [{"rule": r.rule, "message": r.message} for r in cel]
        return out

    return convert(document)


def _resolve(node: Schema, definitions: dict[str, Schema]) -> Schema:
    """`node` with its `$ref`, or its one alternative beside null, merged in; its own keys win."""
    if "$ref" in node:
        referred = definitions[str(node["$ref"]).rsplit("/", 1)[-1]]
        own = {key: value for key, value in node.items() if key != "$ref"}
        return {**referred, **own}
    if "anyOf" in node:
        (alternative,) = [option for option in node["anyOf"] if option.get("type") != "null"]
        own = {key: value for key, value in node.items() if key not in ("anyOf", "default", "title")}
        return {**_resolve(alternative, definitions), **own}
    return node
