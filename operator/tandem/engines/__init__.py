"""The engines: one object for each kind and mode, with all that differs between them.

Pure. Whoever would ask which engine, mode, version or backend a service has asks the engine's object instead
(`engine_of`), or, where only the mode matters, that of its loop (`loop_of`). A new engine is a class of `Engine` in
a file of its own, its entry in `KINDS`, its adapter in the image, and a profile: docs/contributing.md.
"""

from collections.abc import Mapping, Sequence

from tandem.api.decoding import DecodingType, Mode
from tandem.api.profile import Profile
from tandem.api.types import ServiceSpec
from tandem.engines.engine import Engine
from tandem.engines.gpus import GpuPlan
from tandem.engines.loop import LOOPS, Loop, loop_of
from tandem.engines.own import TandemBls, TandemLlmApi
from tandem.engines.tensorrt_engines import TensorRTEngines
from tandem.engines.tensorrt_llm import TensorRTLLM
from tandem.engines.vllm import Vllm

__all__ = ["KINDS", "LOOPS", "Engine", "Loop", "engine_of", "loop_of", "modes", "why_not", "wrong_engine"]

KINDS: dict[str, Mapping[Mode, type[Engine]]] = {
    "TensorRT-LLM": {Mode.LLMAPI: TensorRTLLM, Mode.BLS: TensorRTEngines},
    "vLLM": {Mode.LLMAPI: Vllm},
    "Tandem": {Mode.BLS: TandemBls, Mode.LLMAPI: TandemLlmApi},
}
"""By `engine.kind` of a profile; the mode that is preferred comes first."""


class NoEngine(Engine):
    """In the place of an engine that a profile does not have for a mode: a rule refuses the service."""

    kind = ""
    runs = False

    @property
    def decoding_types(self) -> Sequence[DecodingType]:
        """None."""
        return ()

    def gpu_plan(self, spec: ServiceSpec) -> GpuPlan:
        """None."""
        return GpuPlan()


def engine_of(spec: ServiceSpec, profile: Profile) -> Engine:
    """What runs a service's models; `NoEngine` where the profile cannot."""
    mode = spec.runtime.mode
    return KINDS[profile.engine.kind][mode](profile) if mode in modes(profile) else NoEngine(profile)


def modes(profile: Profile) -> list[Mode]:
    """Modes that a profile's engine runs."""
    kinds = KINDS.get(profile.engine.kind, {})
    return [mode for mode, engine in kinds.items() if not engine.lacks(profile.engine.version)]


def why_not(profile: Profile, mode: Mode) -> str:
    """Why a profile's engine does not run a mode, in brackets; empty where there is no more to say."""
    engine = KINDS.get(profile.engine.kind, {}).get(mode)
    why = engine.lacks(profile.engine.version) if engine else ""
    return f" ({why})" if why else ""


def wrong_engine(profile: Profile) -> str:
    """What is wrong with a profile's `engine`, for whoever writes profiles; empty: nothing."""
    kind = profile.engine.kind
    if kind not in KINDS:
        return f"engine.kind {kind!r} is not known: write one of {', '.join(KINDS)}"
    if not modes(profile):
        return f"engine: {next(iter(KINDS[kind].values())).lacks(profile.engine.version)}"
    return ""
