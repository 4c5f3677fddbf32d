"""`vllm serve`: a command line to the resource that does the same. Pure."""

from tandem.engines.vllm.serve.command import ServeCommand, find
from tandem.engines.vllm.serve.service import Imported, service_of

__all__ = ["Imported", "ServeCommand", "find", "service_of"]
