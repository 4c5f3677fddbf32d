"""What the latest renderer makes of a spec, for those who ask before there is a revision: `accept` which specs it can
render, `rollout` and `cluster` what its pods need, `children` for Jobs that work on the same volume as its pods.

A new version of the renderer is imported here and in `tandem.render`. A revision that exists goes by its own version
(`tandem.render.render`).
"""

from tandem.render.v1.every_pod import every_pod
from tandem.render.v1.placement import volume_scheduling
from tandem.render.v1.probes import STARTUP_FAILURES, STARTUP_PERIOD_SECONDS
from tandem.render.v1.security import CONTAINER_SECURITY, pod_security
from tandem.render.v1.volumes import OWN_PATHS, OWN_VOLUMES, SOURCE_PREFIX, claim_name, uses_cache

__all__ = [
    "CONTAINER_SECURITY",
    "OWN_PATHS",
    "OWN_VOLUMES",
    "SOURCE_PREFIX",
    "STARTUP_FAILURES",
    "STARTUP_PERIOD_SECONDS",
    "claim_name",
    "every_pod",
    "pod_security",
    "uses_cache",
    "volume_scheduling",
]
