"""Profiles of operators' own."""

from tandem.api.profile import Profile

TENSORRT = Profile.model_validate(
    {
        "name": "tensorrt",
        "image": "registry.example/tritonserver:26.07-trtllm",
        "tensorrtLlmVersion": "1.2.1",
        "modes": ["BLS"],
        "engineCalls": "Collected",
        "decodingTypes": {"BLS": ["DraftTarget", "Medusa", "Lookahead", "None"]},
    }
)
