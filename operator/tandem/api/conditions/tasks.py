"""How downloads, engine builds and the preflight end. Most are in the verdicts of programs in images/."""

from tandem.api.conditions.registry import ConditionType, Reason, Shown, on

_MODELS, _ENGINES, _PAIR = ConditionType.MODELS_READY, ConditionType.ENGINES_READY, ConditionType.PAIR_COMPATIBLE
_ANY = (_MODELS, _ENGINES, _PAIR)
_UNKNOWN = on("Unknown", *_ANY)
_LOST = (Shown(_MODELS, ("Unknown", "False")), Shown(_ENGINES, ("Unknown", "False")), *on("Unknown", _PAIR))
_MODELS_FAIL, _ENGINES_FAIL = on("False", _MODELS), on("False", _ENGINES)
_TRY_AGAIN = on("Unknown", _MODELS)
_READ_THE_LOG = "See the Job's log; delete the Job to try again."


class TaskReason(Reason):
    """Reasons of `ModelsReady`, `EnginesReady` and `PairCompatible`."""

    # Jobs
    FETCH_RUNNING = (_UNKNOWN, "FetchRunning", "A model is being downloaded; the message has the progress.")
    BUILD_RUNNING = (_UNKNOWN, "BuildRunning", "An engine is being built.")
    PREFLIGHT_RUNNING = (_UNKNOWN, "PreflightRunning", "The models are being checked.")
    FETCH_FAILED = (_UNKNOWN, "FetchFailed", "A download's Job failed.", _READ_THE_LOG)
    BUILD_FAILED = (
        (*on("Unknown", _MODELS, _PAIR), Shown(_ENGINES, ("Unknown", "False"))),
        "BuildFailed",
        "A build's Job, or a tool in it, failed.",
        _READ_THE_LOG,
    )
    PREFLIGHT_FAILED = (_UNKNOWN, "PreflightFailed", "The preflight's Job failed.", _READ_THE_LOG)
    CHECKED = (on("True", *_ANY), "Checked", "The Job passed, and has no verdict of its own on this condition.")
    CACHE_REPLACED = (
        _LOST,
        "CacheReplaced",
        "The cache's claim was deleted, or made again; models and engines are brought back.",
        "Nothing, unless it is a claim of yours that is to come back.",
    )
    GONE_FROM_CACHE = (
        _LOST,
        "GoneFromCache",
        "A pod reported that a model or an engine is missing in the cache volume; it is brought back once.",
        "Where it is Stalled: find out what empties the volume, then delete the ConfigMap that the message names.",
    )
    # Downloads (images/fetcher)
    FETCHED = (on("True", _MODELS), "Fetched", "The model was downloaded.")
    CACHED = (on("True", _MODELS), "Cached", "The model was in the cache volume.")
    REVISION_RESOLVED = (_TRY_AGAIN, "RevisionResolved", "The revision is a commit now; nothing was downloaded.")
    INVALID_URI = (_MODELS_FAIL, "InvalidUri", "The URI is not one of a model.", "Correct `model.uri`.")
    ENVIRONMENT_INVALID = (
        _MODELS_FAIL,
        "EnvironmentInvalid",
        "A variable of the download, such as a proxy or the file of an authority's certificate, cannot be used.",
        "Correct it in the model's Secret, or in the environment of Jobs.",
    )
    MODEL_NOT_FOUND = (
        _MODELS_FAIL,
        "ModelNotFound",
        "The source has no such model, or does not show it to this token.",
        "Correct `model.uri`; for a private model name a Secret in `model.secretName`.",
    )
    REVISION_NOT_FOUND = (
        _MODELS_FAIL,
        "RevisionNotFound",
        "The model has no such revision.",
        "Write a branch, tag or commit that it has.",
    )
    TOKEN_NEEDED = (
        _MODELS_FAIL,
        "TokenNeeded",
        "The source needs credentials.",
        "Name a Secret with them in `model.secretName`; accept the model's terms where it is gated.",
    )
    TOKEN_INVALID = (
        _MODELS_FAIL,
        "TokenInvalid",
        "The source refuses the credentials.",
        "Correct the Secret that `model.secretName` names.",
    )
    ACCESS_DENIED = (
        _MODELS_FAIL,
        "AccessDenied",
        "The credentials have no right to read the model.",
        "Grant it, or name other credentials in `model.secretName`.",
    )
    NO_WEIGHTS = (
        _MODELS_FAIL,
        "NoWeights",
        "The model has no weights in a format that can be served.",
        "Name a model, or a revision, with `*.safetensors`.",
    )
    UNSAFE_FILE_NAME = (
        _MODELS_FAIL,
        "UnsafeFileName",
        "The source lists a file whose name would leave the model's folder, or too many files.",
        "Name the model's own folder, or another source.",
    )
    CHECKSUM_MISMATCH = (
        _MODELS_FAIL,
        "ChecksumMismatch",
        "A downloaded file differs from what the source promises.",
        "Delete the Job to try again; upload the file again if the source is yours.",
    )
    DISK_FULL = (
        _MODELS_FAIL,
        "DiskFull",
        "The cache volume is full.",
        "Enlarge the claim, or run `tandem cache prune`.",
    )
    CACHE_READ_ONLY = (
        _MODELS_FAIL,
        "CacheReadOnly",
        "The cache volume cannot be written to.",
        "Mount it writable, with an fsGroup that owns it.",
    )
    SOURCE_UNAVAILABLE = (_TRY_AGAIN, "SourceUnavailable", "The source cannot be reached; it is tried again.")
    SOURCE_CHANGED = (_TRY_AGAIN, "SourceChanged", "The source was written to meanwhile; it is tried again.")
    INTERRUPTED = (_TRY_AGAIN, "Interrupted", "The pod was stopped; the next one goes on where it ended.")
    CACHE_FAILED = (
        (*_TRY_AGAIN, *_ENGINES_FAIL),
        "CacheFailed",
        "The cache volume fails; it is tried again.",
        "Check its storage if it stays.",
    )
    # Models (images/serving)
    MODELS_LOAD = (on("True", _MODELS), "ModelsLoad", "The models load.")
    MODEL_GONE = (
        (*_MODELS_FAIL, *_ENGINES_FAIL),
        "ModelGone",
        "A model is missing in the cache volume, or not whole; it is downloaded again.",
    )
    MODEL_INVALID = (
        (*_MODELS_FAIL, *_ENGINES_FAIL),
        "ModelInvalid",
        "A model's files are not whole, or do not fit each other.",
        "Correct the model, its tokenizer or its revision; see the message.",
    )
    MODELS_NOT_READY = (on("Unknown", _ENGINES, _PAIR), "ModelsNotReady", "The check waits for models that load.")
    # Engine builds (images/serving)
    ENGINE_BUILT = (on("True", _ENGINES), "EngineBuilt", "The engine was built, or was there.")
    PLAN_MALFORMED = (
        _ENGINES_FAIL,
        "PlanMalformed",
        "The revision's launch plan has no such build.",
        "Check that operator and serving image are of one version.",
    )
    IMAGE_LACKS_TOOLS = (
        _ENGINES_FAIL,
        "ImageLacksTools",
        "The image has no tools to build TensorRT engines.",
        "Write another profile, or bring the engine as `engine.prebuilt`.",
    )
    ARCHITECTURE_UNKNOWN = (
        _ENGINES_FAIL,
        "ArchitectureUnknown",
        "TensorRT-LLM has no conversion for the model's architecture.",
        "Bring the engine as `engine.prebuilt`, or write `runtime.mode: LLMAPI`.",
    )
    PIPELINE_NOT_SUPPORTED = (
        _ENGINES_FAIL,
        "PipelineNotSupported",
        "TensorRT-LLM converts this model without pipeline parallelism.",
        "Write `pipelineParallelSize: 1` and a larger `tensorParallelSize`.",
    )
    QUANTIZATION_NOT_CONVERTED = (
        _ENGINES_FAIL,
        "QuantizationNotConverted",
        "TensorRT-LLM's scripts do not read the checkpoint's quantization.",
        "Name the checkpoint that is not quantized, or bring the engine as `engine.prebuilt`; see the message.",
    )
    # Models and the engines that run them (images/serving)
    MODEL_NOT_DIVISIBLE = (
        _ENGINES_FAIL,
        "ModelNotDivisible",
        "The model's heads or layers cannot be split over so many GPUs.",
        "Write parallel sizes that the message lists.",
    )
    CODE_MISSING = (
        _ENGINES_FAIL,
        "CodeMissing",
        "The checkpoint refers to code of its own, which downloads do not bring.",
        "Mount the model with its code if you trust it, or name another checkpoint; see the message.",
    )
    # Engines (images/serving)
    ENGINES_FIT = (on("True", _ENGINES), "EnginesFit", "The engines match the specification and fit the GPUs.")
    ENGINE_GONE = (
        _ENGINES_FAIL,
        "EngineGone",
        "An engine is missing in the cache volume, or not whole; it is built again.",
    )
    ENGINE_INVALID = (
        _ENGINES_FAIL,
        "EngineInvalid",
        "An engine's files cannot be read.",
        "Build the engine again, or correct `engine.prebuilt`.",
    )
    ENGINE_VERSION_DIFFERS = (
        _ENGINES_FAIL,
        "EngineVersionDiffers",
        "The engine was built by another TensorRT-LLM than the image has.",
        "Build it again with the image's version.",
    )
    ENGINE_MAPPING_DIFFERS = (
        _ENGINES_FAIL,
        "EngineMappingDiffers",
        "The engine was built for other parallel sizes.",
        "Make them equal.",
    )
    ENGINE_INCOMPLETE = (
        _ENGINES_FAIL,
        "EngineIncomplete",
        "Files of some ranks are missing.",
        "Copy all `rank*.engine`.",
    )
    ENGINE_LIMIT_TOO_LOW = (
        _ENGINES_FAIL,
        "EngineLimitTooLow",
        "The engine was built for shorter drafts, or a smaller batch.",
        "Build the engine again with the flags that the message names, or lower the field.",
    )
    ENGINE_MODEL_DIFFERS = (
        _ENGINES_FAIL,
        "EngineModelDiffers",
        "The engine was built from another model than `model.uri` names.",
        "Name the engine's own checkpoint, or build the engine again.",
    )
    ENGINE_MODE_DIFFERS = (
        _ENGINES_FAIL,
        "EngineModeDiffers",
        "The engine was built for another speculative decoding mode.",
        "Build it again with the flags that the message names.",
    )
    ENGINE_WITHOUT_PAGED_CONTEXT = (
        _ENGINES_FAIL,
        "EngineWithoutPagedContext",
        "The engine was built without paged context attention, which mode BLS needs.",
        "Build it again with `--use_paged_context_fmha=enable`.",
    )
    ENGINE_WITHOUT_LOGITS = (
        _ENGINES_FAIL,
        "EngineWithoutLogits",
        "The engine was built without logits, which `acceptance.method: Logits` needs.",
        "Build it again with `--gather_generation_logits`, or write TokenMatch.",
    )
    CHECKPOINT_NOT_SUPPORTED = (
        _ENGINES_FAIL,
        "CheckpointNotSupported",
        "The profile's engine does not run the checkpoint: its architecture, its type, a quantization.",
        "Name a checkpoint that the message allows, or write another profile.",
    )
    MEMORY_TOO_SMALL = (
        _ENGINES_FAIL,
        "MemoryTooSmall",
        "Weights, or the specified KV caches, do not fit the GPUs.",
        "Choose larger GPUs, or change the field that the message names.",
    )
    ARGUMENTS_ACCEPTED = (on("True", _ENGINES), "ArgumentsAccepted", "The image takes the LLM API's arguments.")
    ARGUMENTS_NOT_CHECKED = (
        on("Unknown", _ENGINES),
        "ArgumentsNotChecked",
        "The image cannot check its arguments without a GPU: the server's pod does, before it loads the model.",
    )
    ARGUMENTS_REFUSED = (
        _ENGINES_FAIL,
        "ArgumentsRefused",
        "The image refuses the LLM API's arguments.",
        "Change the field that the message names, or `runtime.extraLlmArgs`.",
    )
    # Pairs (images/serving)
    NO_DRAFT = (on("True", _PAIR), "NoDraft", "The service has no draft model.")
    PAIR_MATCHES = (on("True", _PAIR), "PairMatches", "The same ids are the same tokens.")
    MTP_LAYERS_FOUND = (
        on("True", _PAIR),
        "MtpLayersFound",
        "The target has layers for multi-token prediction.",
    )
    MTP_LAYERS_MISSING = (
        on("False", _PAIR),
        "MtpLayersMissing",
        "decodingType MTP drafts with layers of the target's checkpoint, and it has none.",
        "Name a checkpoint with them, or write another `speculation.decodingType`.",
    )
    HEADS_NOT_FOR_TARGET = (
        on("False", _PAIR),
        "HeadsNotForTarget",
        "The draft is no EAGLE-3 heads, or heads of another target.",
        "Name heads that were trained as EAGLE-3 for this target.",
    )
    HEADS_MATCH = (on("True", _PAIR), "HeadsMatch", "The heads are whole, and for the target's vocabulary.")
    VOCABULARY_DIFFERS = (
        (Shown(_PAIR, ("Unknown", "False")),),
        "VocabularyDiffers",
        "Draft and target have vocabularies of different sizes, which matters to what compares their logits, and to"
        " mode LLMAPI. Unknown for heads: only the engine can judge.",
        "Write `acceptance.method: TokenMatch` or mode BLS, or resize the smaller one's embeddings.",
    )
    TOKENIZER_DIFFERS = (
        on("False", _PAIR),
        "TokenizerDiffers",
        "The same ids are different tokens: of the vocabulary, of the special ones, or by the merges.",
        "Choose a draft of the target's family.",
    )
    DRAFT_LENGTH_TOO_LONG = (
        on("False", _PAIR),
        "DraftLengthTooLong",
        "A draft would not fit the shorter context.",
        "Lower `speculation.maxDraftLen`.",
    )
