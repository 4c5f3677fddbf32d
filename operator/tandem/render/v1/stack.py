"""What a mode's serving stack brings to a revision, and the templates that its configurations come from."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from tandem.api.roles import TOKENIZERS, Role
from tandem.engines.gpus import GpuPlan, memory_gib
from tandem.render.v1.inputs import Inputs

if TYPE_CHECKING:
    import jinja2

SPARE_SHARE = 8
"""One text in so many that an engine keeps is of none that runs."""


@dataclass(frozen=True)
class Stack:
    """The Triton models of a mode."""

    configs: Mapping[str, str]
    """Model to the text of its config.pbtxt."""
    sources: Mapping[str, str]
    """Model to the folder that holds its `1/model.py`; a model without code is left out."""
    checks: Mapping[str, Any]
    """What the preflight checks; see `tandem_serving.prepare.preflight`."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Further files of the revision: name to text."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment of the server."""
    engines: tuple[str, ...] = ()
    """Models that run as TensorRT engines: those that MPI ranks other than the first load."""
    kv_cache: Mapping[str, Any] = field(default_factory=dict)
    """Engines whose KV cache the pod sizes, by model; see `tandem_serving.prepare.kv_cache`."""


def preflight_checks(inputs: Inputs, stack: Stack) -> dict[str, Any]:
    """What the preflight checks: the stack's part, and the GPUs' memory where it is known."""
    plan, memory = inputs.plan, memory_gib(inputs.spec)
    if not plan.gpus or not memory:
        return dict(stack.checks)
    devices = plan.devices or {role: tuple(range(count)) for role, count in plan.ranks.items()}
    placed = {role.value: list(indices) for role, indices in devices.items()}
    return {**stack.checks, "gpu": {"memory_gib": memory, "devices": placed}}


def model_check(inputs: Inputs, role: Role) -> dict[str, str]:
    """Part of the preflight: a model's folder, and its tokenizer's where that is another."""
    tokenizer = inputs.folders.get(TOKENIZERS[role])
    return {"path": inputs.folders[role], **({"tokenizer": tokenizer} if tokenizer else {})}


def engine_check(inputs: Inputs, sequences: int, max_seq_len: int | None) -> dict[str, Any]:
    """Part of the preflight: what the image is asked about the checkpoints, where the profile says whom to ask.

    An engine keeps keys and values of so many sequences of so many tokens; None: as many as the model takes.
    """
    if not inputs.engine.check:
        return {}
    plan, roles = inputs.plan, [Role.TARGET, *([Role.DRAFT] if inputs.spec.draft else [])]
    devices = {role.value: _of_one(_devices(plan, role)) for role in roles} if plan.gpus else {}
    asked = {"module": inputs.engine.check, "sequences": sequences, "max_seq_len": max_seq_len or 0}
    return {"engine_check": {**asked, **({"devices": devices} if devices else {})}}


def _devices(plan: GpuPlan, role: Role) -> tuple[int, ...]:
    """A model's GPUs: the LLM API has the target from the first on, and its draft there."""
    return plan.devices.get(role) or tuple(range(plan.ranks[role] if role is Role.TARGET else 1))


def _of_one(devices: tuple[int, ...]) -> int | list[int]:
    """The GPU; of several all."""
    return devices[0] if len(devices) == 1 else list(devices)


def with_spare(sequences: int) -> int:
    """Sequences that an engine keeps where so many run, whose rounds are requests of their own: an eighth more.

    A prompt that comes between two rounds would take the place of a text that goes on, which then takes another's,
    until all are computed again (tests/unit/reference_engine/test_slots.py).
    """
    return sequences + -(-sequences // SPARE_SHARE)


def to_json(values: Mapping[str, Any]) -> str:
    """An object as a model's parameter holds it."""
    return json.dumps(values, ensure_ascii=False)


@dataclass(frozen=True)
class Variables:
    """What the templates of a folder are rendered with: a field a variable.

    None has a default, here or in a template: whoever renders gives all of them, and the type checker sees it.
    """

    folder: ClassVar[str]
    """Folder in this package."""


def config(model: str, variables: Variables) -> str:
    """`<model>/config.pbtxt.j2` of the variables' folder, rendered.

    Raises:
        jinja2.UndefinedError: the template uses a variable that is no field of `variables`.
    """
    return _environment(variables.folder).get_template(f"{model}/config.pbtxt.j2").render(vars(variables))


@cache
def _environment(folder: str) -> "jinja2.Environment":
    """A variable that is not given is an error, never an empty string."""
    import jinja2  # here, for whoever imports this package and renders nothing: the metrics server, most commands

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tandem.render.v1", folder),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # no markup
    )
    # JSON's string literals are protobuf's, but for surrogate pairs.
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False}
    return environment
