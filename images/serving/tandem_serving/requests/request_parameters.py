"""Triton's request parameters: what a client sends besides tensors.

Over HTTP's `generate` each field that is no input becomes one. The models have no parameters of their own for
clients: an unknown one is most often a misspelt input, and would be ignored.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from tandem_serving.errors import RequestError
from tandem_serving.requests.sampling_parameters import PREFIX

ONE_RESPONSE = "one_response"
"""The unary models set it: all prompts come in one response."""
ERROR_AS_RESPONSE = "error_as_response"
"""The OpenAI endpoint sets it: an error comes as a response, since those of gRPC streams have no code. (With Triton's
own way, `triton_grpc_error`, it used freed memory until 26.03: triton-inference-server/server#8708.)"""
OURS = frozenset({ONE_RESPONSE, ERROR_AS_RESPONSE})
# Triton's own, besides those with its prefix (its docs/protocol/extension_parameters.md).
RESERVED = frozenset({"sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "binary_data_output"})
TRITON = "triton_"
# In names of HTTP headers, which Triton can forward as parameters, and in that of no input.
HEADER = "-"
SUGGESTIONS = 3


@dataclass(frozen=True)
class KnownParameters:
    """What clients of a model may send as parameters.

    `inputs`: names of the model's inputs. `repeated`: parameters that some clients always send, each with the inputs
    that say the same: it is ignored where one of those is sent.
    """

    inputs: Collection[str] = ()
    repeated: Mapping[str, Collection[str]] = field(default_factory=dict)

    def check(self, parameters: Iterable[str], sent: Collection[str]) -> None:
        """Raise RequestError at the first that is not known, by its name. `sent`: names of the request's tensors."""
        for name in parameters:
            ours = name in OURS or any(own in sent for own in self.repeated.get(name, ()))
            if not (ours or name in RESERVED or name.startswith(TRITON) or HEADER in name):
                raise RequestError(f"{name} is not known to this model: {self._advice(name)}")

    def _advice(self, name: str) -> str:
        if name in self.inputs:
            return "it is an input, send it as a tensor and not as a parameter"
        near = self._near(name.lower())
        return f"did you mean {' or '.join(near)}?" if near else "leave it out"

    def _near(self, name: str) -> list[str]:
        # Clients of other servers leave the prefix out.
        stems = {own.removeprefix(PREFIX): own for own in self.inputs}
        if name in stems:
            return [stems[name]]
        # Before what is spelt alike: `stop` is in stop_words, but looks more like top_p.
        near = sorted(stem for stem in stems if name in stem.split("_"))
        return [stems[stem] for stem in (near or difflib.get_close_matches(name, stems))[:SUGGESTIONS]]
