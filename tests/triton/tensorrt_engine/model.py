"""The reference engine by TensorRT-LLM's parameters: `gpt_model_path` is its checkpoint."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import reference_engine

SOURCE = Path(reference_engine.__file__).parents[1] / "models/tensorrt_llm/1/model.py"
_spec = importlib.util.spec_from_file_location("reference_model", SOURCE)
assert _spec is not None
assert _spec.loader is not None
_model = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_model)


class TritonPythonModel(_model.TritonPythonModel):  # type: ignore[misc,name-defined]
    """The class that Triton's Python backend looks for."""

    def initialize(self, args: dict[str, Any]) -> None:
        """Give the parameter its name there."""
        config = json.loads(args["model_config"])
        config["parameters"]["model_path"] = config["parameters"]["gpt_model_path"]
        super().initialize({**args, "model_config": json.dumps(config)})
