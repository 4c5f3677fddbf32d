"""Triton entry of `postprocessing`: upstream's contract over tokenizer.json, for clients that run the loop."""

from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils

from tandem_serving.adapter import entry
from tandem_serving.adapter.triton_errors import triton_error
from tandem_serving.errors import ServingError, faults_as_errors
from tandem_serving.requests import preprocessing
from tandem_serving.requests.tokenizer import Tokenizer


class TritonPythonModel:
    """The class that Triton's Python backend looks for."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the tokenizer that config.pbtxt names."""
        self._tokenizer = Tokenizer(Path(entry.parameters(args)["tokenizer_dir"]))

    def execute(self, requests: list[Any]) -> list[Any]:
        """One response a request."""
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        tensors = entry.tensors_of(request)
        try:
            with faults_as_errors("tokens could not be decoded"):
                texts = preprocessing.decode_batch(
                    self._tokenizer, tensors["TOKENS_BATCH"], tensors["SEQUENCE_LENGTH"]
                )
        except ServingError as error:
            return pb_utils.InferenceResponse(output_tensors=[], error=triton_error(error))
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", texts)])
