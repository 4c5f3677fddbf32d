"""Models: where their checkpoints come from, how they are split over GPUs, and their engines."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from tandem.api.bounds import PARALLEL_SIZE
from tandem.api.types.base import Model, Name, Rule

Uri = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
Revision = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[A-Za-z0-9._/-]+$")]
ParallelSize = Annotated[int, Field(ge=1, le=PARALLEL_SIZE)]

_SEGMENT = "[A-Za-z0-9][A-Za-z0-9._-]*"
_CHARACTER = "[A-Za-z0-9._=+@:,~()!&-]"
_PATH = f"(/{_CHARACTER}(({_CHARACTER}| )*{_CHARACTER})?)*/?"
"""What keys of object stores and folders of claims are made of: no `$`, which a kubelet expands in commands, and no
quotes, brackets, backslashes and wildcards. The fetcher (images/fetcher, `uri.py`) has the same: tests/unit/api."""
_IMAGE = f"{_SEGMENT}(:[0-9]+)?(/{_SEGMENT})*(:[A-Za-z0-9._-]+)?(@[A-Za-z0-9._:-]+)?"
_URI = (
    f"^(file:///[A-Za-z0-9._/-]+|hf://{_SEGMENT}/{_SEGMENT}{_PATH}|(s3|gs)://{_SEGMENT}{_PATH}"
    f"|pvc://[a-z0-9][a-z0-9.-]*{_PATH}|oci://{_IMAGE})$"
)


class Scheme(StrEnum):
    """Where a model's URI points to."""

    FILE = "file"
    HF = "hf"
    S3 = "s3"
    GS = "gs"
    PVC = "pvc"
    OCI = "oci"

    @property
    def downloaded(self) -> bool:
        """Whether a Job fetches the model into the cache; the others are mounted or in the image."""
        return self in (Scheme.HF, Scheme.S3, Scheme.GS)


class Source(Model):
    """Where a folder of files comes from."""

    cel = (
        Rule(
            f"self.uri.matches('{_URI}')",
            "uri must be hf://ORG/NAME, s3://BUCKET/PATH, gs://BUCKET/PATH, pvc://CLAIM/PATH, oci://IMAGE or"
            " file:///PATH/IN/THE/IMAGE (letters, digits, '.', '_', '-' and '/'; in paths of buckets, claims and"
            " repositories also = + @ : , ~ ( ) ! & and spaces between)",
        ),
        Rule(
            "!self.uri.contains('/../') && !self.uri.endsWith('/..') && !self.uri.contains('/./')"
            " && !self.uri.endsWith('/.')",
            "uri must not contain '..' or '.' as a part of its path: write the model's path without it",
        ),
        Rule(
            "!has(self.revision) || self.uri.startsWith('hf://')",
            "only hf:// has revisions: remove revision, or write the version into the uri's path",
        ),
        Rule(
            "!has(self.secretName) || self.uri.startsWith('hf://') || self.uri.startsWith('s3://')"
            " || self.uri.startsWith('gs://')",
            "secretName is for downloads (hf://, s3://, gs://): remove it;"
            " pull secrets of oci:// belong to podTemplate.spec.imagePullSecrets",
        ),
    )
    uri: Uri
    """`hf://org/name`, `s3://bucket/path`, `gs://bucket/path`: downloaded once into the cache volume.
    `pvc://claim/path`: a claim of this namespace, mounted read-only; what was found out about a path is kept, so
    other files need another path; of a Hugging Face Hub cache the path of a snapshot
    (`pvc://claim/hub/models--org--name/snapshots/commit`). `oci://image:tag`: an image with the files, mounted as an
    image volume (Kubernetes 1.35; before, with the feature gate ImageVolume).
    `file:///path`: a folder in the serving image."""
    revision: (
        Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[A-Za-z0-9._/-]+$")] | None
    ) = None
    """hf: commit, tag or branch; absent: main. A branch or tag is resolved to a commit once, when the
    service first asks for it; write a commit to be sure which one."""
    secret_name: Name | None = None
    """Secret of this namespace whose keys become the download's environment, e.g. HF_TOKEN, or
    AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."""

    @property
    def scheme(self) -> Scheme:
        """The URI's scheme."""
        return Scheme(self.uri.split("://", 1)[0])


class ModelReference(Source):
    """Where a model comes from: a folder with config.json, *.safetensors and tokenizer.json."""

    tokenizer: Source | None = None
    """Where its tokenizer comes from, a folder with tokenizer.json, and generation_config.json or
    tokenizer_config.json with the token that ends a text; absent: the model's own folder."""


class KvCache(Model):
    """Memory for keys and values of past tokens."""

    cel = (
        Rule(
            "!(has(self.maxTokens) && has(self.freeGpuMemoryFraction))",
            "write kvCache.maxTokens or kvCache.freeGpuMemoryFraction, not both: the smaller would win unseen",
        ),
        # No `minimum` of the schema: for whole numbers the API server rounds it down, and takes 0.
        Rule(
            "!has(self.freeGpuMemoryFraction) || self.freeGpuMemoryFraction >= 0.01",
            "kvCache.freeGpuMemoryFraction must be at least 0.01: write such a share, or remove it",
        ),
    )
    max_tokens: Annotated[int, Field(ge=1, le=2_000_000_000)] | None = None
    """Tokens that the cache holds."""
    free_gpu_memory_fraction: Annotated[float, Field(le=0.99)] | None = None
    """Share of the GPU memory that is free after the weights are loaded."""
    enable_block_reuse: bool = True
    """Keep blocks of finished requests for later ones with the same beginning. BLS speculation needs it."""


class EngineBuild(Model):
    """What a TensorRT engine is built for; see `trtllm-build --help`."""

    cel = (
        Rule(
            "!has(self.extraArgs) || self.extraArgs.all(k, k.matches('^[a-z][a-z0-9_]{0,62}$'))",
            "extraArgs are flags of trtllm-build without dashes, e.g. gemm_plugin: auto",
        ),
    )
    max_batch_size: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Sequences that the engine runs at once; absent: serving.maxBatchSize."""
    max_input_len: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    """Longest prompt in tokens; absent: what maxSeqLen allows."""
    max_seq_len: Annotated[int, Field(ge=2, le=10_000_000)] | None = None
    """Longest prompt and output together in tokens; absent: the model's own limit. Profile `torch` builds nothing and
    has this field of the target alone, for both models; absent: as the profile says."""
    max_num_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Tokens in one batch, and the longest prompt and output together: each step brings the whole text so far.

    Absent: 8192 as trtllm-build has it, or maxSeqLen where that is more; with a draft as many as maxBatchSize texts
    of maxSeqLen have, within a tenth of the GPU's memory."""
    extra_args: Annotated[dict[str, Annotated[str, StringConstraints(max_length=255)]], Field(max_length=32)] = Field(
        default_factory=dict
    )
    """Further flags of trtllm-build, name to value. Flags that the resource decides are refused."""


class Engine(Model):
    """BLS with TensorRT-LLM: the model's TensorRT engine, built by a Job or brought along."""

    cel = (
        Rule(
            "has(self.build) != has(self.prebuilt) || (has(self.parameters) && !has(self.build))",
            "write engine.build to build the engine, or engine.prebuilt with the uri of one, not both",
        ),
        Rule(
            "!has(self.parameters) || self.parameters.all(k, k.matches('^[A-Za-z][A-Za-z0-9_]{0,62}$'))",
            "engine.parameters are parameters of TensorRT-LLM's Triton backend, e.g. kv_cache_host_memory_bytes: '0'",
        ),
        Rule(
            "!has(self.parameters) || !('max_queue_delay_microseconds' in self.parameters)"
            " || self.parameters['max_queue_delay_microseconds'].matches('^[0-9]{1,9}$')",
            "engine.parameters.max_queue_delay_microseconds must be a whole number in quotes, e.g. '1000'",
        ),
    )
    build: EngineBuild | None = None
    """Build it on a GPU of the kind that serves; an equal build is never repeated in the namespace."""
    prebuilt: Source | None = None
    """A folder with config.json and rank*.engine, built by the TensorRT-LLM version of the profile."""
    parameters: Annotated[dict[str, Annotated[str, StringConstraints(max_length=255)]], Field(max_length=32)] = Field(
        default_factory=dict
    )
    """Further parameters of TensorRT-LLM's Triton backend, name to value, as in its config.pbtxt: e.g.
    max_attention_window_size, kv_cache_host_memory_bytes, enable_chunked_context, cuda_graph_mode, lora_cache_...,
    guided_decoding_backend, and max_queue_delay_microseconds. Those that the resource decides are refused."""


Dtype = Literal["auto", "float16", "bfloat16", "float32", "fp8"]


class Target(Model):
    """The large model, whose output it is."""

    model: ModelReference
    """Checkpoint of the target."""
    tensor_parallel_size: ParallelSize = 1
    """GPUs that share each layer of the target."""
    pipeline_parallel_size: ParallelSize = 1
    """Groups of layers that run one after the other, each on GPUs of its own."""
    dtype: Dtype = "auto"
    """Type of the weights; auto: as in the checkpoint."""
    kv_cache: KvCache | None = None
    """Memory for keys and values; absent: computed from the GPU's memory."""
    engine: Engine | None = None
    """BLS with TensorRT-LLM: its engine; absent: built with defaults."""


class Draft(Model):
    """The small model that guesses tokens."""

    model: ModelReference
    """Checkpoint of the draft, its tokenizer equal to the target's; for Eagle3 the EAGLE-3 heads, for DFlash and
    DSpark the drafter that was trained for the target."""
    tensor_parallel_size: ParallelSize = 1
    """GPUs that share each layer of the draft. TensorRT-LLM's LLM API splits it as the target, and has 1 here; vLLM
    splits a draft model as the target, which must be written here, and heads as the target or not at all."""
    dtype: Dtype = "auto"
    """BLS: type of the weights; auto: as in the checkpoint."""
    kv_cache: KvCache | None = None
    """BLS: memory for keys and values; absent: computed from the GPU's memory."""
    engine: Engine | None = None
    """BLS with TensorRT-LLM: its engine; absent: built with defaults."""
