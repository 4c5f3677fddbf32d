"""vLLM: it drafts and verifies by itself."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from tandem.api import ports
from tandem.api.decoding import DecodingType, Mode
from tandem.api.roles import Role
from tandem.api.types import ServiceSpec
from tandem.engines.engine import Engine, Worker
from tandem.engines.extra_arguments import with_defaults
from tandem.engines.gpus import GpuPlan, Launch, over_nodes
from tandem.engines.request_parameters import SPECULATION, Facts
from tandem.engines.vllm import known_bad, rules
from tandem.engines.vllm.arguments import METHODS, llm_args
from tandem.engines.vllm.parameters import ALONE, SPECULATING, TABLE
from tandem.engines.vllm.versions import MINORS, minor_of

_NOT_BEFORE = {DecodingType.DSPARK: "0.25"}
"""Types that older versions do not have."""


class Vllm(Engine):
    """`AsyncLLM`, by version."""

    kind = "vLLM"
    mode = Mode.LLMAPI
    rules = (*rules.RULES, *known_bad.RULES)
    warnings = known_bad.WARNINGS
    parameters = TABLE
    worker = Worker(("node", f"--port={ports.RANKS}"), {})
    judges_arguments = True
    least_compute_capability = (7, 5)  # docs/getting_started/installation/gpu.cuda.inc.md
    instead: ClassVar[Mapping[DecodingType, str]] = {
        DecodingType.EAGLE: "it is EAGLE-3 here, and EAGLE-1 and EAGLE-2 in vLLM: write decodingType: Eagle3, or for"
        " heads of EAGLE-1 and EAGLE-2 decodingType: Custom with custom: {type: eagle, needsDraft: true}",
        DecodingType.USER_PROVIDED: "write decodingType: Custom with custom: {type: custom_class, args: {model:"
        " MODULE.CLASS}}",
    }

    @classmethod
    def lacks(cls, version: str) -> str:
        """Why that version cannot be run; empty where it can."""
        known = minor_of(version)
        return "" if known else f"Tandem runs vLLM {MINORS[0]} and newer, and {version or 'no version'} is written"

    @property
    def minor(self) -> str:
        """The version as the tables know it."""
        found = minor_of(self.version)
        if found is None:
            raise ValueError(self.lacks(self.version))
        return found

    @property
    def decoding_types(self) -> Sequence[DecodingType]:
        """By version."""
        kinds = (*METHODS, DecodingType.CUSTOM, DecodingType.NONE)
        since = {kind: MINORS.index(minor) for kind, minor in _NOT_BEFORE.items()}
        return [kind for kind in kinds if since.get(kind, 0) <= MINORS.index(self.minor)]

    def gpu_plan(self, spec: ServiceSpec) -> GpuPlan:
        """Of target and draft on the same GPUs, over several nodes where they must be; each pod starts its ranks."""
        if not self.profile.gpus:
            return GpuPlan()
        return replace(over_nodes(spec), launch=Launch.SINGLE, world_size=1)

    def environment(self, plan: GpuPlan) -> dict[str, str]:
        """It tells nobody of its use."""
        return {"VLLM_NO_USAGE_STATS": "1"}

    def arguments(self, spec: ServiceSpec, folders: Mapping[Role, str]) -> dict[str, Any]:
        """Those of `AsyncEngineArgs`; those of the profile come last."""
        nodes = self.gpu_plan(spec).nodes
        group = {"nnodes": nodes, "master_port": ports.RANKS} if nodes > 1 else {}
        return with_defaults({**llm_args(spec, folders), **group}, self.profile.engine.parameters)

    def facts(self, spec: ServiceSpec, arguments: Mapping[str, Any]) -> Facts:
        """By whether it speculates."""
        return SPECULATING if arguments.get(SPECULATION) else ALONE
