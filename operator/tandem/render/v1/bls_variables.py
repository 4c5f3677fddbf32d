"""The variables of mode BLS's templates, `repository/<model>/config.pbtxt.j2`, and where their values come from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tandem.api.bounds import BLS_SEQUENCES
from tandem.api.folders import tokenizer_folder
from tandem.api.roles import Role
from tandem.engines.gpus import fast_logits
from tandem.render.v1.inputs import Inputs
from tandem.render.v1.stack import Variables, to_json, with_spare

DRAFT_TIMEOUT_SECONDS = 10


@dataclass(frozen=True)
class EngineVariables:
    """Parameters of a TensorRT engine's configuration; what is empty is left out of it."""

    path: str
    devices: tuple[int, ...]
    participants: tuple[int, ...]
    block_reuse: bool
    max_tokens: int | None
    free_fraction: float | None
    fast_logits: bool
    decoding: Mapping[str, str]
    """What the engine decodes by itself, as parameters."""
    queue_delay_microseconds: str
    parameters: Mapping[str, str]
    """The user's, by TensorRT-LLM's names."""


@dataclass(frozen=True)
class ModelVariables:
    """The target, or the draft."""

    model_path: str
    """Folder with config.json, which has the limits: of the engine where there is one, else of the checkpoint."""
    tokenizer_path: str
    """Folder of the tokenizer; an engine's folder has none."""
    engine: EngineVariables | None
    """None: the engine is a Python model."""
    parameters: Mapping[str, str | bool | int | float]
    """Further parameters of a Python model."""


@dataclass(frozen=True)
class BlsVariables(Variables):
    """One value for all templates of a revision."""

    folder: ClassVar[str] = "repository"
    target: ModelVariables
    draft: ModelVariables | None
    max_batch_size: int
    max_draft_len: int
    """Draft tokens a step at most; 0 without a draft."""
    min_draft_len: int
    adaptive: bool
    """Whether the draft length follows what it costs and brings."""
    probe_share: float
    """Share of the requests that run without speculation."""
    use_draft_logits: bool
    """Whether the target compares the draft's logits."""
    fast_logits: bool
    """Whether they go from engine to engine."""
    draft_acceptance_threshold: float | None
    max_engine_rows: int
    """Sequences in an engine call."""
    max_engine_sequences: int
    """Sequences whose keys and values an engine keeps."""
    max_seq_len: int | None
    """Tokens of a sequence that the engines have room for; None: as many as the models take."""
    mix_seed: bool
    """Whether each step's seed is another: TensorRT-LLM starts a request's random numbers at its seed, and each step
    is a request."""
    separate_devices: bool
    """Whether each engine has a device of its own."""
    rounds: bool
    """Whether the server makes whole rounds by itself."""
    request_timeout_seconds: float
    queue_timeout_seconds: float | None
    draft_timeout_seconds: float
    max_running_sequences: int
    bls_instance_count: int
    """Instances of the loop's model."""
    refused_parameters: str
    """Parameters of requests that would have no effect, and why: a JSON object."""


def variables(inputs: Inputs, engines: Mapping[Role, EngineVariables]) -> BlsVariables:
    """The variables for a spec that was accepted; `engines`: those that are TensorRT's."""
    spec = inputs.spec
    acceptance, adaptive = spec.speculation.acceptance, spec.speculation.adaptive
    return BlsVariables(
        target=_model(inputs, engines, Role.TARGET),
        draft=_model(inputs, engines, Role.DRAFT) if spec.draft else None,
        max_batch_size=spec.serving.max_batch_size,
        max_draft_len=spec.speculation.max_draft_len if spec.draft else 0,
        min_draft_len=adaptive.min_draft_len,
        adaptive=adaptive.enabled,
        probe_share=adaptive.probe_share,
        use_draft_logits=acceptance.method == "Logits",
        fast_logits=fast_logits(spec),
        draft_acceptance_threshold=acceptance.threshold,
        max_engine_rows=spec.serving.max_batch_size if takes_rows(inputs) else 1,
        max_engine_sequences=engine_sequences(inputs),
        max_seq_len=max_seq_len(inputs),
        mix_seed=bool(engines),
        separate_devices=_side_by_side(inputs),
        rounds=in_rounds(inputs),
        request_timeout_seconds=spec.serving.request_timeout_seconds,
        queue_timeout_seconds=spec.serving.queue_timeout_seconds,
        draft_timeout_seconds=DRAFT_TIMEOUT_SECONDS,
        max_running_sequences=_running(inputs),
        bls_instance_count=1,
        refused_parameters=to_json(inputs.engine.refused_parameters(spec, inputs.folders)),
    )


def takes_rows(inputs: Inputs) -> bool:
    """Whether sequences share engine calls.

    Where rows are collected not without a draft, since sequences have calls of their own then; nor where the draft's
    logits are compared, unless the engines hand them over themselves: megabytes for each sequence and round would be
    copied twice more.
    """
    spec, calls = inputs.spec, inputs.engine.calls
    logits = spec.speculation.acceptance.method == "Logits" and not fast_logits(spec)
    return calls == "Together" or (calls == "Collected" and spec.draft is not None and not logits)


def in_rounds(inputs: Inputs) -> bool:
    """Whether the server makes whole rounds by itself: of sequences that share calls, whose drafts it may fill up."""
    by_logits = inputs.spec.speculation.acceptance.method == "Logits"
    return inputs.spec.draft is not None and takes_rows(inputs) and not by_logits


def engine_sequences(inputs: Inputs) -> int:
    """Sequences whose keys and values an engine keeps: each round is a new request with the whole text so far."""
    return with_spare(max(inputs.spec.serving.max_batch_size, _running(inputs)))


def max_seq_len(inputs: Inputs) -> int | None:
    """Tokens of a sequence that a Python model has room for, by the target's field, else by the profile."""
    if inputs.engine.builds_engines:
        return None
    engine = inputs.spec.target.engine
    asked = engine.build.max_seq_len if engine and engine.build else None
    length = asked or inputs.profile.engine.parameters.get("max_seq_len")
    return int(length) if length else None


def _side_by_side(inputs: Inputs) -> bool:
    """Whether each engine has a device of its own; else one GPU, or the same CPUs, are for both."""
    spec = inputs.spec
    return spec.draft is not None and spec.placement.strategy == "Separate" and inputs.profile.gpus


def _running(inputs: Inputs) -> int:
    """Sequences at once: with more than the engines' steps take, they would wait in the engines, where nobody can be
    refused. Engines side by side take two batches, one half drafts while the other is verified."""
    batches = 2 if _side_by_side(inputs) else 1
    return min(batches * inputs.spec.serving.max_batch_size, BLS_SEQUENCES)


def _model(inputs: Inputs, engines: Mapping[Role, EngineVariables], role: Role) -> ModelVariables:
    engine = engines.get(role)
    return ModelVariables(
        model_path=engine.path if engine else inputs.folders[role],
        tokenizer_path=tokenizer_folder(role, inputs.folders),
        engine=engine,
        parameters=_parameters(inputs, role),
    )


def _parameters(inputs: Inputs, role: Role) -> dict[str, str | bool | int | float]:
    """Of a Python model. GPUs are named where they are not the first alone."""
    length, devices = max_seq_len(inputs), inputs.plan.devices.get(role, (0,))
    return {
        **inputs.profile.engine.parameters,
        **({"max_seq_len": length} if length else {}),
        **({"gpu_device_ids": ",".join(map(str, devices))} if devices != (0,) else {}),
    }
