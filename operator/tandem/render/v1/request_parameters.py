"""What a service does with the parameters of requests: the switches of its engine, and what its servers refuse."""

from collections.abc import Mapping
from typing import Any

from tandem.api.decoding import Mode
from tandem.api.profile import Profile
from tandem.api.roles import Role
from tandem.api.types import ServiceSpec
from tandem.engines.request_parameters import engine_of, refused, with_switch
from tandem.render.v1.inputs import Inputs
from tandem.render.v1.llm_args import llm_args


def switched_llm_args(spec: ServiceSpec, profile: Profile, folders: Mapping[Role, str]) -> dict[str, Any]:
    """`llm_args` with the switch without which the engine would drop parameters of requests."""
    arguments = llm_args(spec, profile.llm_args, folders)
    return with_switch(engine_of(spec, profile, arguments), arguments)


def refused_parameters(inputs: Inputs) -> dict[str, str]:
    """Parameters that would have no effect, and why: see `tandem_serving.requests.refused`."""
    llm_api = inputs.spec.runtime.mode is Mode.LLMAPI
    arguments = switched_llm_args(inputs.spec, inputs.profile, inputs.folders) if llm_api else {}
    return refused(inputs.spec, inputs.profile, arguments)
