"""The volumes of our pods: models by where they come from, and room to work. Pure.

Every pod that touches models has the same ones: server, preflight and engine build.
"""

from collections.abc import Mapping
from typing import Any

from tandem import names
from tandem.api.folders import CACHE, SOURCES, in_claim
from tandem.api.roles import Role, downloads, references
from tandem.api.types import Scheme, ServiceSpec, Source
from tandem.engines import Engine

TANDEM = "/opt/tandem"
"""Tandem's Triton models and entry point, brought by an init container."""
REVISION = "/etc/tandem/revision"
"""Files of the revision; the builder adds the volume, since it knows the ConfigMap's name."""
SSH = "/etc/tandem/ssh"
"""Key pair of a group's pods; the builder adds the volume likewise."""
DRAFTER = "/etc/tandem/drafter"
"""Files of the ConfigMap of decodingType UserProvided: a folder for sys.path."""
MODELS = "/models"
"""Triton's model repository, assembled by the entry point."""
TOKENIZER = "/tokenizer"
"""Tokenizer and chat template of the target, which the entry point copies there for the OpenAI endpoint."""
TMP, SHM = "/tmp", "/dev/shm"

OWN_VOLUMES = (
    "tandem",
    "revision",
    "ssh",
    "drafter",
    "models",
    "tmp",
    "shm",
    "cache",
    "tokenizer",
    "api-keys",
    "tls",
)
"""Names of our volumes; models that are mounted add `source-ROLE`."""
OWN_PATHS = (TANDEM, REVISION, SSH, DRAFTER, MODELS, TOKENIZER, TMP, SHM, CACHE, SOURCES)
"""Where our volumes are mounted."""
SOURCE_PREFIX = "source-"

_LARGEST_VOCABULARY = 262_144  # tokens: Gemma's, the largest of the models in wide use
_BYTES_PER_LOGIT = 4
_GIB = 1 << 30


def uses_cache(spec: ServiceSpec, engine: Engine) -> bool:
    """Whether anything of the service is in the cache volume: a download, or an engine that is built."""
    return bool(downloads(spec) or engine.built_roles(spec))


def claim_name(spec: ServiceSpec) -> str:
    """Name of the cache volume's claim: the user's choice, or the namespace's."""
    return spec.storage.cache.claim_name or names.CACHE_CLAIM


def own_claim(spec: ServiceSpec, engine: Engine) -> dict[str, str]:
    """The user's claim, where one is used, as an input of what is done in it: in another nothing is done yet."""
    claim = spec.storage.cache.claim_name
    return {"claim": claim} if claim and uses_cache(spec, engine) else {}


def volumes(spec: ServiceSpec, engine: Engine) -> list[dict[str, Any]]:
    """Volumes of a pod that touches the service's models, but for `revision` and `ssh`."""
    shared = f"{shared_memory_gib(spec, engine)}Gi"
    found: list[dict[str, Any]] = [
        {"name": "tandem", "emptyDir": {"sizeLimit": "64Mi"}},
        {"name": "models", "emptyDir": {"sizeLimit": "64Mi"}},
        # GPU libraries keep the kernels there that they compile at start.
        {"name": "tmp", "emptyDir": {"sizeLimit": "16Gi" if engine.profile.gpus else "1Gi"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": shared}},
    ]
    if uses_cache(spec, engine):
        found.append({"name": "cache", "persistentVolumeClaim": {"claimName": claim_name(spec)}})
    if configmap := _drafter(spec):
        found.append({"name": "drafter", "configMap": {"name": configmap}})
    return [*found, *(_source(role, reference) for role, reference in mounted(spec).items())]


def mounts(spec: ServiceSpec, engine: Engine, *, cache_writable: bool = False) -> list[dict[str, Any]]:
    """Mounts of `volumes`. Models are read-only; the cache is, except for who fills it."""
    found: list[dict[str, Any]] = [
        {"name": "tandem", "mountPath": TANDEM, "readOnly": True},
        {"name": "models", "mountPath": MODELS},
        {"name": "tmp", "mountPath": TMP},
        {"name": "shm", "mountPath": SHM},
    ]
    if uses_cache(spec, engine):
        found.append({"name": "cache", "mountPath": CACHE, **({} if cache_writable else {"readOnly": True})})
    if _drafter(spec):
        found.append({"name": "drafter", "mountPath": DRAFTER, "readOnly": True})
    return [*found, *(_source_mount(role, reference) for role, reference in mounted(spec).items())]


def shared_memory_gib(spec: ServiceSpec, engine: Engine) -> int:
    """Upper bound for /dev/shm in GiB; what is not used costs nothing.

    One for Triton's Python backend (64 sequences in chunks of 1 MB), one for each GPU of the pod (NCCL and MPI
    talk through it), and the draft's logits of a full batch twice (drafted, and handed to the target) where the
    target compares them.
    """
    total = 1 + engine.gpu_plan(spec).gpus_per_pod
    if spec.speculation.acceptance.method == "Logits":
        rows = spec.serving.max_batch_size * spec.speculation.max_draft_len
        total += -(-2 * rows * _LARGEST_VOCABULARY * _BYTES_PER_LOGIT // _GIB)
    return total


def _drafter(spec: ServiceSpec) -> str | None:
    return spec.speculation.user_provided.config_map_name if spec.speculation.user_provided else None


def mounted(spec: ServiceSpec) -> Mapping[Role, Source]:
    """Models, engines and tokenizers that are volumes of their own."""
    found = references(spec).items()
    return {role: reference for role, reference in found if reference.scheme in (Scheme.PVC, Scheme.OCI)}


def _source(role: Role, reference: Source) -> dict[str, Any]:
    place = reference.uri.split("://", 1)[1]
    if reference.scheme is Scheme.OCI:
        return {"name": f"{SOURCE_PREFIX}{role}", "image": {"reference": place}}
    claim = place.partition("/")[0]
    return {"name": f"{SOURCE_PREFIX}{role}", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}


def _source_mount(role: Role, reference: Source) -> dict[str, Any]:
    mount = {"name": f"{SOURCE_PREFIX}{role}", "mountPath": f"{SOURCES}/{role}", "readOnly": True}
    path = in_claim(reference)[0] if reference.scheme is Scheme.PVC else ""
    return {**mount, "subPath": path} if path else mount
