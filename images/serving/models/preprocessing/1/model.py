"""Triton entry of `preprocessing`: upstream's contract over tokenizer.json, for clients that run the loop."""

from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils

from tandem_serving import checkpoint
from tandem_serving.adapter import entry
from tandem_serving.adapter.triton_errors import triton_error
from tandem_serving.errors import ServingError, faults_as_errors
from tandem_serving.requests import preprocessing
from tandem_serving.requests.tokenizer import Tokenizer


class TritonPythonModel:
    """The class that Triton's Python backend looks for."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the tokenizer that config.pbtxt names."""
        parameters = entry.parameters(args)
        special = (parameters.get("add_special_tokens") or "true").lower() == "true"
        model = Path(parameters["target_model_path"])
        tokenizer = Tokenizer(Path(parameters["tokenizer_dir"]), model)
        self._pre = preprocessing.Preprocessor(tokenizer, checkpoint.read_limits(model).vocab_size, special)

    def execute(self, requests: list[Any]) -> list[Any]:
        """One response a request."""
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        try:
            with faults_as_errors("a request could not be read"):
                outputs = self._pre.run(entry.tensors_of(request))
        except ServingError as error:
            return pb_utils.InferenceResponse(output_tensors=[], error=triton_error(error))
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, value) for name, value in outputs.items()])
