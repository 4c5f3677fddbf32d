"""Services read from YAML, for tests of all kinds."""

from pathlib import Path
from typing import Any

import yaml

from tandem.api.types import SpeculativeInferenceService

DATA = Path(__file__).parents[1] / "data"

QUICKSTART = """
apiVersion: serving.tandem.dev/v1alpha1
kind: SpeculativeInferenceService
metadata: {name: quickstart, namespace: default, uid: uid-1, generation: 3}
spec:
  runtime: {mode: BLS, profile: reference}
  target: {model: {uri: file:///opt/reference/pair/target}}
  draft: {model: {uri: file:///opt/reference/pair/draft}}
  speculation: {decodingType: DraftTarget, maxDraftLen: 4}
"""


def parse(text: str, **changes: Any) -> SpeculativeInferenceService:
    """The service in `text`; `changes` are dotted paths below spec, with `__` for the dot."""
    raw = yaml.safe_load(text)
    for path, value in changes.items():
        *parents, last = path.split("__")
        node = raw["spec"]
        for parent in parents:
            node = node.setdefault(parent, {})
        node.pop(last, None) if value is None else node.__setitem__(last, value)
    return SpeculativeInferenceService.model_validate(raw)


def autoscaling_cases() -> list[dict[str, Any]]:
    """What services write in `autoscaling`, and the administrator's settings with it: a case of every source."""
    return list(yaml.safe_load_all((DATA / "input/autoscaling/cases.yaml").read_text(encoding="utf-8")))
