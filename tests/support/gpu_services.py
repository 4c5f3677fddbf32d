"""Two models of a service and their GPUs: what tests change of it."""

from typing import Any

from tandem.api.profile import EngineSettings, Profile

PROFILE = Profile.model_validate(
    {"name": "own", "image": "own:1", "engine": {"kind": "TensorRT-LLM", "version": "1.2"}}
)
CPU = PROFILE.model_copy(update={"gpus": False, "engine": EngineSettings(kind="Tandem")})
PAIR = """
apiVersion: serving.tandem.dev/v1alpha1
kind: SpeculativeInferenceService
metadata: {name: pair}
spec:
  runtime: {mode: BLS, profile: own}
  target: {model: {uri: hf://org/target}}
  draft: {model: {uri: hf://org/draft}}
  speculation: {decodingType: DraftTarget}
"""
FAST: dict[str, Any] = {"speculation__acceptance": {"method": "Logits", "fastLogits": True}}
ALONE: dict[str, Any] = {"draft": None, "speculation__decodingType": "None"}


def sizes(target: int, draft: int = 1) -> dict[str, Any]:
    """Changes by which the two models are split over so many GPUs."""
    return {"target__tensorParallelSize": target, "draft__tensorParallelSize": draft}
