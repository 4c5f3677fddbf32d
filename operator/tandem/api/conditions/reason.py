"""What a condition type and a reason are."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NewType, Self

ConditionStatus = Literal["True", "False", "Unknown"]

ExternalReason = NewType("ExternalReason", str)
"""A reason that is read, not chosen: of a Job's verdict, of an autoscaler's condition, of a status written before."""


class ConditionType(StrEnum):
    """A type of condition."""

    meaning: str
    present: str
    """When status has it."""
    warns: bool
    """Whether a Warning Event is written when it becomes False."""

    def __new__(cls, word: str, meaning: str, present: str = "always", warns: bool = False) -> Self:
        """`word`: as in status."""
        made = str.__new__(cls, word)
        made._value_ = word
        made.meaning, made.present, made.warns = meaning, present, warns
        return made

    READY = (
        "Ready",
        "All server pods are of the wanted revision and answer. While it is False it has the reason of what is in the"
        " way.",
    )
    RECONCILING = (
        "Reconciling",
        "The operator is at work; nothing is left to you. It has the reason of `Ready`.",
        "only while it is True",
    )
    STALLED = (
        "Stalled",
        "A person must act: the specification is refused, a Job has failed, the API server refuses a request, or the"
        " rollout's deadline has passed. It has the reason of `Ready`, or one of its own.",
        "only while it is True",
    )
    SPEC_ACCEPTED = ("SpecAccepted", "The profile can run the specification.")
    MODELS_READY = ("ModelsReady", "The models are downloaded and load.", "once the specification is accepted")
    ENGINES_READY = (
        "EnginesReady",
        "TensorRT engines are built and fit; in mode LLMAPI the image takes the engine's arguments.",
        "where there are engines or arguments to check",
    )
    PAIR_COMPATIBLE = ("PairCompatible", "Draft and target have the same tokens.", "where there is a draft model")
    AVAILABLE = ("Available", "A server pod answers, of whichever revision.")
    SCALING_ACTIVE = ("ScalingActive", "The autoscaler works.", "with `spec.autoscaling`")
    METRICS_AVAILABLE = (
        "MetricsAvailable",
        "The metrics server answers and reads the pods.",
        "where the operator has a metrics server",
    )
    SPECULATION_ACTIVE = (
        "SpeculationActive",
        "Tokens are drafted.",
        "where the operator has a metrics server",
        True,
    )
    SPECULATION_BENEFICIAL = (
        "SpeculationBeneficial",
        "Speculation is faster than the target alone, at the present load.",
        "where there is a metrics server, or a recorded benchmark",
        True,
    )
    OBJECTIVES_REACHABLE = (
        "ObjectivesReachable",
        "The models can meet the objectives of autoscaling.",
        "only while it is False",
        True,
    )
    RIGHTS_GRANTED = (
        "RightsGranted",
        "The operator has the rights that this service needs.",
        "only while it is False",
        True,
    )
    ENGINE_HEALTHY = (
        "EngineHealthy",
        "No engine failed in the last ten minutes.",
        "only while it is False",
    )


@dataclass(frozen=True)
class Shown:
    """A condition that shows a reason, and the statuses that it may have with it."""

    type: ConditionType
    statuses: tuple[ConditionStatus, ...]


class Reason(StrEnum):
    """Why a condition has its status. Subclasses have the members: `NAME = shown, word, meaning, action`."""

    shown: tuple[Shown, ...]
    """The conditions whose own reason it is. `Ready`, `Reconciling` and `Stalled` take over those of the others."""
    meaning: str
    action: str
    """What to do; empty: nothing."""

    def __new__(cls, shown: tuple[Shown, ...], word: str, meaning: str, action: str = "") -> Self:
        """`word`: as in status, CamelCase."""
        made = str.__new__(cls, word)
        made._value_ = word
        made.shown, made.meaning, made.action = shown, meaning, action
        return made


def on(status: ConditionStatus, *types: ConditionType) -> tuple[Shown, ...]:
    """Those conditions, with that status."""
    return tuple(Shown(each, (status,)) for each in types)
