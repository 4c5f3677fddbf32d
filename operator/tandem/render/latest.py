"""What the latest renderer makes of a spec, for those who ask before there is a revision: `accept` which specs it can
render, `rollout` and `cluster` what its pods need, `children` for Jobs that work on the same volume as its pods.

A new version of the renderer is imported here and in `tandem.render`. A revision that exists goes by its own version
(`tandem.render.render`).
"""

from tandem.render.v1.engines import (
    DECIDED_FLAGS,
    DECIDED_PARAMETERS,
    OPEN_PARAMETERS,
    build_options,
    built_roles,
    engine_batch,
    needs_engines,
)
from tandem.render.v1.every_pod import every_pod
from tandem.render.v1.gpu_products import MIN_COMPUTE_CAPABILITY, SHARED, product
from tandem.render.v1.gpus import gpu_plan, is_mig, model_ranks
from tandem.render.v1.llm_args import NOT_CUSTOM, conflict, decided, llm_args, not_in_dialect, to_yaml
from tandem.render.v1.placement import volume_scheduling
from tandem.render.v1.probes import STARTUP_FAILURES, STARTUP_PERIOD_SECONDS
from tandem.render.v1.request_parameters import switched_llm_args
from tandem.render.v1.security import CONTAINER_SECURITY, pod_security
from tandem.render.v1.sources import CACHE, folders
from tandem.render.v1.volumes import OWN_PATHS, OWN_VOLUMES, SOURCE_PREFIX, claim_name, uses_cache

__all__ = [
    "CACHE",
    "CONTAINER_SECURITY",
    "DECIDED_FLAGS",
    "DECIDED_PARAMETERS",
    "MIN_COMPUTE_CAPABILITY",
    "NOT_CUSTOM",
    "OPEN_PARAMETERS",
    "OWN_PATHS",
    "OWN_VOLUMES",
    "SHARED",
    "SOURCE_PREFIX",
    "STARTUP_FAILURES",
    "STARTUP_PERIOD_SECONDS",
    "build_options",
    "built_roles",
    "claim_name",
    "conflict",
    "decided",
    "engine_batch",
    "every_pod",
    "folders",
    "gpu_plan",
    "is_mig",
    "llm_args",
    "model_ranks",
    "needs_engines",
    "not_in_dialect",
    "pod_security",
    "product",
    "switched_llm_args",
    "to_yaml",
    "uses_cache",
    "volume_scheduling",
]
