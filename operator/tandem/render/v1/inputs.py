"""What the parts of the renderer are given."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tandem.api.profile import Profile
from tandem.api.roles import Role
from tandem.api.types import ServiceSpec
from tandem.engines import Engine, engine_of
from tandem.engines.gpus import GpuPlan
from tandem.render.record import PodDefaults


@dataclass(frozen=True)
class Inputs:
    """All that a revision depends on."""

    spec: ServiceSpec
    profile: Profile
    serving_image: str
    folders: Mapping[Role, str]
    """Folder of each model in the containers."""
    pods: PodDefaults = field(default_factory=PodDefaults)
    """What the administrator gave to all pods."""

    @cached_property
    def engine(self) -> Engine:
        """What runs the models."""
        return engine_of(self.spec, self.profile)

    @cached_property
    def plan(self) -> GpuPlan:
        """Devices and processes of a replica."""
        return self.engine.gpu_plan(self.spec)

    @property
    def image(self) -> str:
        """Image of the server container."""
        return self.spec.runtime.image or self.profile.image
