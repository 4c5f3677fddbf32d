"""Pydantic models of a `SpeculativeInferenceService`, the single source of its CRD.

Field names are the camelCase of TensorRT-LLM's and Triton's own terms. v1alpha1 only ever grows: no
field changes its meaning or goes away. Each field's docstring is its description in the CRD. Rules that
need only the object are CEL (`cel`), so that they hold at admission with the operator down.
"""

from tandem.api.decoding import DecodingType, Mode
from tandem.api.types.autoscaling import Autoscaling, AutoscalingSource, Duration, Objectives, seconds
from tandem.api.types.base import LabelKey, LabelValue, Model, Name, Passthrough, Rule
from tandem.api.types.model import (
    Draft,
    Dtype,
    Engine,
    EngineBuild,
    KvCache,
    ModelReference,
    ParallelSize,
    Scheme,
    Source,
    Target,
)
from tandem.api.types.placement import Gpu, JobTemplate, Placement, PodTemplate, ResourceClaim, Toleration, UserIds
from tandem.api.types.rollout import Rollout
from tandem.api.types.service import (
    Access,
    Cache,
    Runtime,
    ServiceSpec,
    Serving,
    SpeculativeInferenceService,
    Storage,
)
from tandem.api.types.speculation import (
    Acceptance,
    Adaptive,
    Custom,
    DraftLenStep,
    Eagle3,
    Lookahead,
    Medusa,
    Mtp,
    NGram,
    RelaxedAcceptance,
    Speculation,
    UserProvided,
)
from tandem.api.types.status import (
    AutoscalingStatus,
    Condition,
    ServiceStatus,
    SpeculationAdvice,
    SpeculationStatus,
)

__all__ = [
    "Acceptance",
    "Access",
    "Adaptive",
    "Autoscaling",
    "AutoscalingSource",
    "AutoscalingStatus",
    "Cache",
    "Condition",
    "Custom",
    "DecodingType",
    "Draft",
    "DraftLenStep",
    "Dtype",
    "Duration",
    "Eagle3",
    "Engine",
    "EngineBuild",
    "Gpu",
    "JobTemplate",
    "KvCache",
    "LabelKey",
    "LabelValue",
    "Lookahead",
    "Medusa",
    "Mode",
    "Model",
    "ModelReference",
    "Mtp",
    "NGram",
    "Name",
    "Objectives",
    "ParallelSize",
    "Passthrough",
    "Placement",
    "PodTemplate",
    "RelaxedAcceptance",
    "ResourceClaim",
    "Rollout",
    "Rule",
    "Runtime",
    "Scheme",
    "ServiceSpec",
    "ServiceStatus",
    "Serving",
    "Source",
    "Speculation",
    "SpeculationAdvice",
    "SpeculationStatus",
    "SpeculativeInferenceService",
    "Storage",
    "Target",
    "Toleration",
    "UserIds",
    "UserProvided",
    "seconds",
]
