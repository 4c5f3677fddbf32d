"""Profiles of operators' own."""

from tandem.api.profile import Profile

TENSORRT = Profile.model_validate(
    {
        "name": "tensorrt",
        "image": "registry.example/tritonserver:26.07-trtllm",
        "engine": {"kind": "TensorRT-LLM", "version": "1.2.1"},
    }
)
