"""What the parts of the renderer are given."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tandem.api.profile import Profile
from tandem.api.roles import Role
from tandem.api.types import ServiceSpec
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

    @property
    def image(self) -> str:
        """Image of the server container."""
        return self.spec.runtime.image or self.profile.image
