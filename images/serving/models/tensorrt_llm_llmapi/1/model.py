"""Triton entry of the LLM-API model, `tensorrt_llm_stream` in the repository: decoupled, streams and batches."""

import logging
import sys
from functools import partial
from typing import Any

from tandem_serving import threads
from tandem_serving.adapter import entry
from tandem_serving.adapter.llmapi import LlmApiResponder, start_service
from tandem_serving.adapter.metrics_sink import TritonSink
from tandem_serving.adapter.responder import dispatch
from tandem_serving.llmapi.request import REPEATED

ENGINE_CLOSE_SECONDS = 60.0
"""For the engine, too, whose processes give their memory back."""


class TritonPythonModel:
    """The class that Triton's Python backend looks for."""

    def initialize(self, args: dict[str, str]) -> None:
        """Start the engine that config.pbtxt's parameters describe."""
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
        # An engine in this process must not wait 5 ms for the interpreter's lock while text is made.
        sys.setswitchinterval(0.0002)
        self._known = entry.known_parameters(args, REPEATED)
        self._service = start_service(entry.parameters(args))
        self._watch = threads.start("watch", partial(self._service.watch, TritonSink()))

    def execute(self, requests: list[Any]) -> None:
        """Start the requests; their responses are sent by the service's threads."""
        for request in requests:
            dispatch(self._service, request, LlmApiResponder(request), self._known)

    def is_ready(self) -> bool:
        """Whether the engine lives; Triton asks from 26.03 on."""
        return self._service.healthy

    def finalize(self) -> None:
        """End all requests, the engine and the threads: none of them may call Triton once this returns."""
        with threads.ending(ENGINE_CLOSE_SECONDS):
            self._service.close()
            self._watch.join()
