"""Parameters that the service's engine would drop: a request that asks for one is refused by its name.

Which they are, and why, the operator knows (operator/tandem/engines/request_parameters.py): a model has them as the
parameter `refused_parameters` of its config.pbtxt, the OpenAI endpoint as its option `--refused`. Names are OpenAI's
and vLLM's; values that ask for nothing pass.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tandem_serving.errors import RequestError
from tandem_serving.requests.sampling_parameters import PARAMETERS

NEUTRAL = {parameter.name: parameter.neutral for parameter in PARAMETERS}
DRAWS = ("temperature", "top_p", "top_k")
WITH_DRAWS = frozenset({*DRAWS, "min_p", "seed"})
"""Those without a meaning where the likeliest token is taken."""


@dataclass(frozen=True)
class RefusedParameters:
    """`why`: by parameter, a clause behind "NAME is not supported: "."""

    why: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> RefusedParameters:
        """From JSON; empty: none is refused."""
        return cls(json.loads(text) if text else {})

    def first(self, asked: Mapping[str, Any], greedy: bool) -> str:
        """The first of the parameters that is refused; "": none. `asked`: None is not sent. `greedy`: whether they
        make the engine take the likeliest token."""
        draws_by_top_k = "top_k" not in self.why and (asked.get("top_k") or 0) > 1
        neutral = {**NEUTRAL, **dict.fromkeys(("temperature", "top_p"), (1,) if draws_by_top_k else ())}
        idle = {*(WITH_DRAWS if greedy else ()), *(("min_tokens",) if asked.get("ignore_eos") else ())}
        for name in self.why:
            value = asked.get(name)
            if value is not None and value not in neutral.get(name, ()) and name not in idle:
                return name
        return ""

    def check(self, asked: Mapping[str, Any], greedy: bool, inputs: Mapping[str, str]) -> None:
        """Raises RequestError. `inputs`: what the model calls the parameters."""
        if name := self.first(asked, greedy):
            raise RequestError(f"{inputs.get(name, name)} is not supported: {self.why[name]}")
