"""Why a specification is accepted or refused."""

from tandem.api.conditions.registry import ConditionType, Reason, on

_ACCEPTED = on("True", ConditionType.SPEC_ACCEPTED)
_REFUSED = on("False", ConditionType.SPEC_ACCEPTED)


class SpecReason(Reason):
    """Reasons of `SpecAccepted`."""

    ACCEPTED = (_ACCEPTED, "Accepted", "The profile can run the specification.")
    ACCEPTED_WITH_WARNINGS = (
        _ACCEPTED,
        "AcceptedWithWarnings",
        "It runs as asked, with a drawback that the message names.",
        "Decide whether you can live with it.",
    )
    NOT_UNDERSTOOD = (
        _REFUSED,
        "SpecNotUnderstood",
        "The specification has a value that this operator does not know: the definition (CRD) is newer. What runs"
        " stays, and comes back where it is lost.",
        "Upgrade the operator, or write a value that the message lists.",
    )
    # The profile
    UNKNOWN_PROFILE = (
        _REFUSED,
        "UnknownProfile",
        "The operator's settings have no such profile.",
        "Write a profile that the message lists, or add it to the Helm value `profiles`.",
    )
    MODE_NOT_IN_PROFILE = (
        _REFUSED,
        "ModeNotInProfile",
        "The profile cannot run this mode.",
        "Write another `runtime.mode` or profile.",
    )
    DECODING_TYPE_NOT_IN_PROFILE = (
        _REFUSED,
        "DecodingTypeNotInProfile",
        "The profile cannot run this decoding type in this mode.",
        "Write another `speculation.decodingType` or profile.",
    )
    TENSOR_PARALLEL_NOT_IN_PROFILE = (
        _REFUSED,
        "TensorParallelNotInProfile",
        "The profile cannot split a model over so many devices.",
        "Write a smaller `tensorParallelSize`, or another profile.",
    )
    FIELD_NOT_IN_PROFILE = (
        _REFUSED,
        "FieldNotInProfile",
        "The profile's engine has no use for a field.",
        "Write what the message says, or another profile.",
    )
    NO_IMAGE = (
        _REFUSED,
        "NoImage",
        "The profile names no image.",
        "Write `runtime.image`, or the profile's image in the Helm value `profiles`.",
    )
    ENGINE_CALLS_NOT_IN_TRITON = (
        _REFUSED,
        "EngineCallsNotInTriton",
        "The image's Triton is too old for the profile's `engine.calls: Collected`.",
        "Set the profile's `engine.calls` to `Single`, or write another profile.",
    )
    # GPUs
    GPUS_EXCEED_NODE = (
        _REFUSED,
        "GpusExceedNode",
        "The profile's engine runs on one node in this mode, and the models need more GPUs than a node has.",
        "Lower `tensorParallelSize`, or raise `placement.gpu.perNode`; TensorRT-LLM's LLM API and vLLM run on several"
        " nodes.",
    )
    GPUS_NOT_DIVISIBLE = (
        _REFUSED,
        "GpusNotDivisible",
        "The GPUs cannot be divided equally among the nodes.",
        "Make `tensorParallelSize` x `pipelineParallelSize` a multiple of the nodes.",
    )
    DRAFT_EXCEEDS_TARGET = (
        _REFUSED,
        "DraftExceedsTarget",
        "The draft shares the target's GPUs and is split over more than the target has.",
        "Lower `draft.tensorParallelSize`, or write `placement.strategy: Separate`.",
    )
    MIG_PRODUCT_MISMATCH = (
        _REFUSED,
        "MigProductMismatch",
        "No node with this GPU product offers this MIG resource.",
        "Write the product of the whole GPU.",
    )
    MIG_NOT_PARALLEL = (
        _REFUSED,
        "MigNotParallel",
        "A model is split over several MIG slices, which cannot reach each other.",
        "Write parallel sizes of 1, or take whole GPUs.",
    )
    MIG_NOT_SEPARATE = (
        _REFUSED,
        "MigNotSeparate",
        "`placement.strategy: Separate` needs two devices, and a process can use one MIG slice.",
        "Write `placement.strategy: Shared`, or take whole GPUs.",
    )
    GPU_SHARED_NOT_PARALLEL = (
        _REFUSED,
        "GpuSharedNotParallel",
        "The models need several GPUs, and the product or resource is a GPU that pods share.",
        "Write parallel sizes of 1 and `placement.strategy: Shared`, or take whole GPUs.",
    )
    GPU_TOO_OLD = (
        _REFUSED,
        "GpuTooOld",
        "The profile's engine needs a newer GPU architecture.",
        "Name a newer product in `placement.gpu.product`.",
    )
    KV_CACHE_FRACTION_ON_SHARED_GPU = (
        _REFUSED,
        "KvCacheFractionOnSharedGpu",
        "Two engines share a GPU, so that a fraction of its free memory has no fixed size.",
        "Write `kvCache.maxTokens`, or neither.",
    )
    BLOCK_REUSE_NEEDED = (
        _REFUSED,
        "BlockReuseNeeded",
        "Mode BLS with TensorRT engines needs the KV cache's block reuse.",
        "Remove `kvCache.enableBlockReuse: false`.",
    )
    FAST_LOGITS_NOT_IN_PROFILE = (
        _REFUSED,
        "FastLogitsNotInProfile",
        "The profile's engines have no fast logits.",
        "Remove `acceptance.fastLogits`, or write another profile.",
    )
    # Engines
    ENGINE_FLAG_RESERVED = (
        _REFUSED,
        "EngineFlagReserved",
        "`engine.build.extraArgs` has a flag that the resource decides.",
        "Write the field that the message names.",
    )
    ENGINE_PARAMETER_RESERVED = (
        _REFUSED,
        "EngineParameterReserved",
        "`engine.parameters` has a parameter that the resource decides.",
        "Write the field that the message names.",
    )
    FP8_NEEDS_CALIBRATION = (
        _REFUSED,
        "Fp8NeedsCalibration",
        "An FP8 engine needs a calibration, which no build Job makes.",
        "Write `dtype: auto`, bring the engine as `engine.prebuilt`, or write mode LLMAPI with a checkpoint in FP8.",
    )
    MAX_INPUT_LEN_TOO_LARGE = (
        _REFUSED,
        "MaxInputLenTooLarge",
        "`maxInputLen` leaves no room for output within `maxSeqLen`.",
        "Raise `maxSeqLen`, or lower `maxInputLen`.",
    )
    ENGINE_BATCH_TOO_SMALL = (
        _REFUSED,
        "EngineBatchTooSmall",
        "The engine runs fewer sequences than the server takes.",
        "Make `engine.build.maxBatchSize` and `serving.maxBatchSize` equal.",
    )
    MEDUSA_WITHOUT_TREE = (
        _REFUSED,
        "MedusaWithoutTree",
        "TensorRT engines draft a tree with Medusa, and the specification has none.",
        "Write `speculation.medusa.choices`.",
    )
    # Mode LLMAPI
    DTYPE_NOT_IN_MODE = (
        _REFUSED,
        "DtypeNotInMode",
        "Mode LLMAPI does not quantize.",
        "Write `target.dtype: auto` and a checkpoint in FP8.",
    )
    CUSTOM_TYPE_RESERVED = (
        _REFUSED,
        "CustomTypeReserved",
        "`custom.type` names a decoding type that the resource has itself.",
        "Write `speculation.decodingType`; see the message.",
    )
    CUSTOM_ARGS_CONFLICT = (
        _REFUSED,
        "CustomArgsConflict",
        "`custom.args` has an argument that a field of the resource decides.",
        "Write that field instead.",
    )
    PIPELINE_PARALLEL_WITH_SPECULATION = (
        _REFUSED,
        "PipelineParallelWithSpeculation",
        "TensorRT-LLM's LLM API does not speculate over pipeline stages.",
        "Write `pipelineParallelSize: 1`, or `decodingType: None`.",
    )
    FEATURE_WITH_SPECULATION = (
        _REFUSED,
        "FeatureWithSpeculation",
        "TensorRT-LLM cannot combine an argument in `extraLlmArgs` with speculation.",
        "Remove it, or write `decodingType: None`.",
    )
    KNOWN_BAD = (
        _REFUSED,
        "KnownBadCombination",
        "The profile's engine takes the combination and serves it wrongly, or does not have it"
        " ([table](known-bad.md)).",
        "Write what the message says.",
    )
    GUIDED_DECODING_WITH_REJECTION_SAMPLING = (
        _REFUSED,
        "GuidedDecodingWithRejectionSampling",
        "TensorRT-LLM cannot combine guided decoding with rejection sampling.",
        "Remove one of the two.",
    )
    TWO_MODELS_NOT_IN_PROFILE = (
        _REFUSED,
        "TwoModelsNotInProfile",
        "The profile's TensorRT-LLM has no Eagle3 with two models.",
        "Remove `eagle3.oneModel: false`, or write another profile.",
    )
    DYNAMIC_TREE_NOT_IN_PROFILE = (
        _REFUSED,
        "DynamicTreeNotInProfile",
        "The profile's TensorRT-LLM has no dynamic trees.",
        "Remove `eagle3.dynamicTreeMaxTopK`, or write another profile.",
    )
    DYNAMIC_TREE_SIZE_INVALID = (
        _REFUSED,
        "DynamicTreeSizeInvalid",
        "`eagle3.maxTotalDraftTokens` does not fit depth and width of the tree.",
        "Write a number within the bounds of the message, or remove it.",
    )
    SCHEDULE_NOT_ASCENDING = (
        _REFUSED,
        "ScheduleNotAscending",
        "The steps of `draftLenSchedule` are not in ascending order.",
        "Sort them by `maxBatchSize`.",
    )
    SCHEDULE_START_MISMATCH = (
        _REFUSED,
        "ScheduleStartMismatch",
        "The first step of `draftLenSchedule` does not draft `maxDraftLen`.",
        "Make the two equal.",
    )
    SCHEDULE_NOT_IN_PROFILE = (
        _REFUSED,
        "ScheduleNotInProfile",
        "The profile's TensorRT-LLM cannot change the draft length of this decoding type.",
        "Remove `draftLenSchedule`, or write another profile.",
    )
    EXTRA_LLM_ARGS_CONFLICT = (
        _REFUSED,
        "ExtraLlmArgsConflict",
        "`extraLlmArgs` has an argument that a field of the resource decides.",
        "Write that field instead.",
    )
    EXTRA_LLM_ARGS_UNKNOWN = (
        _REFUSED,
        "ExtraLlmArgsUnknown",
        "`extraLlmArgs` or `custom.args` has an argument that the profile's engine does not have in its version.",
        "Write the name that the message suggests, or remove it.",
    )
    # The rest of the resource
    AFFINITY_MALFORMED = (
        _REFUSED,
        "AffinityMalformed",
        "`placement.affinity` is not of the form that a PodSpec has.",
        "See `kubectl explain pod.spec.affinity --recursive`.",
    )
    POD_TEMPLATE_REFUSED = (
        _REFUSED,
        "PodTemplateRefused",
        "`podTemplate` has what is not safe, or what Tandem decides.",
        "Change the field that the message names.",
    )
    CLUSTER_TRIGGER_AUTHENTICATION_REFUSED = (
        _REFUSED,
        "ClusterTriggerAuthenticationRefused",
        "A KEDA trigger uses credentials that are not of this namespace.",
        "Write a `TriggerAuthentication` of this namespace.",
    )
    TRIGGER_TYPE_REFUSED = (
        _REFUSED,
        "TriggerTypeRefused",
        "A KEDA trigger is of a type that services may not have.",
        "Write one that is allowed, or add it to the Helm value `keda.allowedTriggers`.",
    )
    TRIGGER_IDENTITY_REFUSED = (
        _REFUSED,
        "TriggerIdentityRefused",
        "A KEDA trigger would act with KEDA's own cloud identity.",
        "Remove `identityOwner`, and write a `TriggerAuthentication` of this namespace.",
    )
    KUBERNETES_TOO_OLD = (
        _REFUSED,
        "KubernetesTooOld",
        "The cluster's Kubernetes is older than what the specification needs; the message has both versions.",
        "Write what the message names, or upgrade the cluster.",
    )
    CACHE_NOT_MANAGED_BY_TANDEM = (
        _REFUSED,
        "CacheNotManagedByTandem",
        "The namespace has a claim of the cache's name that Tandem did not make.",
        "Write it as `storage.cache.claimName` if services may fill it; else delete it.",
    )
    CACHE_NOT_SHAREABLE = (
        _REFUSED,
        "CacheNotShareable",
        "Pods may be on several nodes, and pods of one node alone can mount the cache's claim.",
        "Write `replicas: 1` and parallel sizes that one node holds, or a claim with access mode ReadWriteMany.",
    )
