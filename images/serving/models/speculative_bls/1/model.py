"""Triton entry of the speculative BLS: decoupled, streams and batches, tensors of `tensorrt_llm_bls`."""

import logging
import sys
from functools import partial
from typing import Any

from tandem_serving import threads
from tandem_serving.adapter import entry
from tandem_serving.adapter.bls import build_service
from tandem_serving.adapter.bls_response import BlsResponder
from tandem_serving.adapter.metrics_sink import TritonSink
from tandem_serving.adapter.responder import dispatch
from tandem_serving.bls import settings
from tandem_serving.bls.request import REPEATED


class TritonPythonModel:
    """The class that Triton's Python backend looks for."""

    def initialize(self, args: dict[str, str]) -> None:
        """Build the service from config.pbtxt's parameters."""
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
        config = settings.read(entry.parameters(args))
        if config.max_rows > 1:
            # An engine's answer must not wait 5 ms for the interpreter's lock while text is made for others. Where
            # each sequence makes its own calls, many threads would take it from each other.
            sys.setswitchinterval(0.0002)
        self._service, self._engines = build_service(config)
        self._known = entry.known_parameters(args, REPEATED)
        self._watching = threads.start("watch", partial(self._service.watch, TritonSink()))

    def execute(self, requests: list[Any]) -> None:
        """Start the requests; their responses are sent by the service's threads."""
        for request in requests:
            dispatch(self._service, request, BlsResponder(request), self._known)

    def finalize(self) -> None:
        """End all requests and threads: none of them may call Triton once this returns."""
        with threads.ending():
            self._service.close()
            for engine in self._engines:
                engine.close()
            self._watching.join()
