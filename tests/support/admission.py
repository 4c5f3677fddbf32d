"""Manifests that the API server takes or refuses, and why: `tandem validate` must agree."""

from typing import Any

NONE_TYPE = {"decodingType": "None"}
CRON = {"type": "cron", "metadata": {"timezone": "Etc/UTC"}}
QUEUE = {
    "type": "External",
    "external": {"metric": {"name": "queue_length"}, "target": {"type": "AverageValue", "averageValue": "4"}},
}
CPU = {"type": "cpu", "metricType": "Utilization", "metadata": {"value": "60"}}


ROWS: list[tuple[dict[str, Any], str, str]] = [
    ({"draft": None}, "needs a draft model: write spec.draft.model.uri", "a draft is missing"),
    ({"speculation": NONE_TYPE}, "remove spec.draft", "a draft where none belongs"),
    ({"runtime__mode": "Fast"}, 'supported values: "LLMAPI", "BLS"', "an unknown mode"),
    (
        {"speculation__decodingType": "Draft_Target"},
        'supported values: "DraftTarget", "Eagle3"',
        "TensorRT-LLM's word",
    ),
    ({"runtime__mode": None}, "spec.runtime.mode: Required value", "the mode is never guessed"),
    ({"target": None}, "spec.target: Required value", "no target"),
    ({"speculation": None}, "spec.speculation: Required value", "no decoding type"),
    ({"target__model__uri": "/opt/model"}, "uri must be hf://ORG/NAME", "a path is no URI"),
    ({"target__model__uri": "hf://model"}, "uri must be hf://ORG/NAME", "the organisation is missing"),
    ({"target__model__uri": "http://x.example/model"}, "uri must be hf://ORG/NAME", "no scheme that is fetched"),
    (
        {"target__model": {"uri": "file:///m", "revision": "main"}},
        "only hf:// has revisions",
        "a revision of a folder",
    ),
    (
        {"target__model": {"uri": "pvc://c/m", "secretName": "s"}},
        "secretName is for downloads",
        "nothing to log in to",
    ),
    ({"target__kvCache": {"maxTokens": 1, "freeGpuMemoryFraction": 0.5}}, "not both", "two memory budgets"),
    ({"target__kvCache": {"freeGpuMemoryFraction": 0}}, "must be at least 0.01", "no memory at all"),
    (
        {"target__engine": {"build": {}, "parameters": {"no name": "1"}}},
        "engine.parameters are parameters of TensorRT-LLM's Triton backend",
        "a parameter with a space",
    ),
    (
        {"target__engine": {"parameters": {"max_queue_delay_microseconds": "1s"}}},
        "max_queue_delay_microseconds must be a whole number",
        "a delay with a unit",
    ),
    ({"target__engine": {}}, "write engine.build to build the engine, or engine.prebuilt", "an empty engine"),
    (
        {"target__engine": {"build": {"extraArgs": {"--gemm_plugin": "auto"}}}},
        "flags of trtllm-build without dashes",
        "a flag with its dashes",
    ),
    (
        {"target__engine": {"build": {"extraArgs": {"a" * 64: "1"}}}},
        "flags of trtllm-build without dashes",
        "a flag that is none",
    ),
    ({"target__model__uri": "file:///a/../../etc"}, "must not contain '..' or '.' as a part", "path traversal"),
    ({"target__model__uri": "file:///a;rm -rf"}, "letters, digits", "shell metacharacters"),
    ({"speculation__maxDraftLen": 0}, "should be greater than or equal to 1", "no draft tokens"),
    ({"speculation__maxDraftLen": 33}, "should be less than or equal to 32", "beyond any use"),
    ({"speculation__maxDraftLen": "four"}, 'must be of type integer: "string"', "a word for a number"),
    ({"speculation__maxDraftLen": "4"}, 'must be of type integer: "string"', "a number as a text"),
    ({"speculation__adaptive": {"enabled": "true"}}, 'must be of type boolean: "string"', "a truth as a text"),
    ({"speculation__adaptive": {"minDraftLen": 5}}, "must not be above maxDraftLen", "a minimum above the maximum"),
    ({"speculation__adaptive": {"minDraftLen": -1}}, "should be greater than or equal to 0", "fewer than none"),
    ({"replicas": -1}, "should be greater than or equal to 0", "negative replicas"),
    ({"serving__maxBatchSize": 0}, "should be greater than or equal to 1", "an empty batch"),
    ({"runtime__profile": ""}, "should be at least 1 chars long", "an empty profile"),
    ({"placement__nodeSelector": {"a": "b" * 64}}, "Too long", "no label value"),
    ({"speculation__maxDraftLenn": 4}, "unknown field", "a misspelt field"),
    ({"draft__kvcache": {}}, "unknown field", "a field of another release"),
    (
        {"speculation__decodingType": "NGram"},
        "takes no draft model: remove spec.draft",
        "a draft where n-grams guess",
    ),
    (
        {"draft": None, "speculation": {"decodingType": "NGram"}},
        "mode BLS runs decodingType DraftTarget",
        "only LLMAPI",
    ),
    ({"speculation__medusa": {}}, "speculation.medusa is for decodingType Medusa", "another type's block: Medusa"),
    (
        {"runtime__mode": "LLMAPI", "draft": None, "speculation": {"decodingType": "Lookahead"}},
        "is for TensorRT engines: write runtime.mode: BLS",
        "only engines",
    ),
    ({"speculation__nGram": {}}, "speculation.nGram is for decodingType NGram", "another type's block"),
    ({"speculation__mtp": {}}, "speculation.mtp is for decodingType MTP", "another type's block: MTP"),
    ({"speculation__dFlash": {}}, "speculation.dFlash is for decodingType DFlash", "another type's block: DFlash"),
    ({"speculation__dSpark": {}}, "speculation.dSpark is for decodingType DSpark", "another type's block: DSpark"),
    (
        {"speculation__suffixAutomaton": {}},
        "speculation.suffixAutomaton is for decodingType Eagle3, Eagle or MTP, or Custom with type PARD",
        "a suffix automaton without arguments for it",
    ),
    ({"speculation__eagle3": {}}, "speculation.eagle3 is for decodingType Eagle3", "another type's block: Eagle3"),
    ({"speculation__lookahead": {}}, "is for decodingType Lookahead", "another type's block: Lookahead"),
    (
        {"speculation__userProvided": {"entryPoint": "a:b"}},
        "UserProvided and speculation",
        "another type's block: code",
    ),
    ({"speculation__custom": {"type": "PARD"}}, "Custom and speculation.custom.type", "another type's block: custom"),
    (
        {"runtime__mode": "LLMAPI", "speculation": {"decodingType": "Eagle3", "eagle3": {"maxTotalDraftTokens": 9}}},
        "write eagle3.dynamicTreeMaxTopK too",
        "the size of a tree that is none",
    ),
    ({"speculation__maxConcurrency": 4}, "are for mode LLMAPI", "BLS adapts by itself"),
    (
        {"speculation__draftLenSchedule": [{"maxBatchSize": 1, "draftLen": 9}]},
        "must not draft more than maxDraftLen",
        "a schedule above the bound",
    ),
    (
        {"speculation__minAcceptedLength": 1},
        "write more than 1, and at most maxDraftLen + 1",
        "each step gives one token",
    ),
    (
        {"speculation__minAcceptedLength": 5.5},
        "write more than 1, and at most maxDraftLen + 1",
        "more than is drafted",
    ),
    (
        {"draft": None, "speculation": {**NONE_TYPE, "minAcceptedLength": 2}},
        "minAcceptedLength is for a service that speculates",
        "nothing is drafted",
    ),
    (
        {"speculation__draftLenSchedule": [{"maxBatchSize": 1, "draftLen": 2}], "speculation__maxConcurrency": 4},
        "write maxConcurrency or draftLenSchedule, not both",
        "two ends of speculation",
    ),
    ({"speculation__acceptance": {"fastLogits": True}}, "are for method Logits", "fast logits of nothing"),
    ({"speculation__acceptance": {"threshold": 0.5}}, "are for method Logits", "a threshold of nothing"),
    (
        {"draft": None, "speculation": {**NONE_TYPE, "acceptance": {"method": "Logits"}}},
        "compares a draft model's logits",
        "logits of no draft",
    ),
    (
        {"runtime__mode": "LLMAPI", "draft": None, "speculation": {**NONE_TYPE, "maxConcurrency": 4}},
        "without speculation there is no draft length",
        "a limit of nothing",
    ),
    ({"runtime__extraLlmArgs": {"a": 1}}, "extraLlmArgs is for mode LLMAPI", "arguments of the other stack"),
    (
        {"runtime__mode": "LLMAPI", "placement": {"strategy": "Separate"}},
        "write placement.strategy: Shared",
        "one mapping",
    ),
    (
        {"runtime__mode": "LLMAPI", "draft__dtype": "float16"},
        "in the target's own type and memory",
        "the draft has no own",
    ),
    ({"runtime__mode": "LLMAPI", "target__engine": {"build": {}}}, "runs checkpoints", "an engine in the LLM API"),
    (
        {"runtime__mode": "LLMAPI", "speculation__acceptance": {"method": "Logits"}},
        "acceptance.method Logits is for mode BLS",
        "no draft logits in the LLM API",
    ),
    (
        {"runtime__mode": "LLMAPI", "serving__queueTimeoutSeconds": 1},
        "queueTimeoutSeconds is for mode BLS",
        "a line that is the engine's own",
    ),
    (
        {"serving": {"queueTimeoutSeconds": 60, "requestTimeoutSeconds": 60}},
        "and below requestTimeoutSeconds",
        "a wait as long as the request may take",
    ),
    ({"serving__openAI": {"port": 8001}}, "must be another than Triton's 8000, 8001, 8002", "Triton's own port"),
    (
        {"serving__openAI": {"enabled": False, "route": {"parentRefs": [{"name": "public"}]}}},
        "route and inferencePool lead to the endpoint",
        "a route to nothing",
    ),
    ({"serving__openAI": {"servedModelName": "a$(B)"}}, "should match", "what Kubernetes would expand"),
    ({"serving__openAI": {"thinking": {"begin": "</think>"}}}, "must differ", "one marker for both"),
    ({"serving__openAI": {"thinking": {"end": "<end think>"}}}, "should match", "a marker of two words"),
    ({"serving__queueTimeoutSeconds": 0}, "queueTimeoutSeconds must be at least 0.1", "no time at all"),
    ({"serving__queueTimeoutSeconds": 0.05}, "queueTimeoutSeconds must be at least 0.1", "no time to be looked at"),
    (
        {"draft": None, "speculation": NONE_TYPE, "placement": {"strategy": "Separate"}},
        "write strategy: Shared",
        "no draft",
    ),
    ({"placement": {"gpu": {"resourceName": "gpu"}}}, "spec.placement.gpu.resourceName", "no extended resource"),
    ({"placement": {"resourceClaims": [{"name": "a"}]}}, "exactly one", "a claim of nothing"),
    ({"storage": {"cache": {"claimName": "c", "storageClassName": "s"}}}, "is a claim that exists", "two caches"),
    ({"podTemplate": {"spec": {"hostNetwork": True}}}, "unknown field", "not on the list"),
    ({"autoscaling": {"minReplicas": 3, "maxReplicas": 2}}, "maxReplicas is below minReplicas", "bounds that cross"),
    ({"autoscaling": {"minReplicas": 0, "maxReplicas": 2}}, "write source: KEDA and", "nobody sees demand at zero"),
    (
        {"autoscaling": {"maxReplicas": 2, "keda": {"cooldownPeriod": 60}}},
        "autoscaling.keda is for source KEDA",
        "another source's block",
    ),
    (
        {"autoscaling": {"maxReplicas": 2, "source": "KEDA", "keda": {"idleReplicaCount": 1}}},
        "idleReplicaCount can only be 0",
        "KEDA's own rule",
    ),
    ({"podTemplate": {"spec": {"containers": [{"name": "x"}]}}}, 'supported values: "triton"', "no other container"),
    ({"autoscaling": {"minReplicas": 4, "maxReplicas": 2}}, "maxReplicas is below minReplicas", "bounds that cross"),
    ({"autoscaling": {"minReplicas": 1}}, "spec.autoscaling.maxReplicas: Required value", "no upper bound"),
    (
        {"autoscaling": {"minReplicas": 0, "maxReplicas": 2}},
        "that sees demand while there is no pod",
        "an HPA at zero",
    ),
    (
        {"autoscaling": {"minReplicas": 0, "maxReplicas": 2, "source": "KEDA"}},
        "that sees demand while there is no pod",
        "KEDA at zero sees nothing of a service without pods",
    ),
    (
        {"autoscaling": {"minReplicas": 0, "maxReplicas": 2, "metrics": []}},
        "spec.autoscaling.metrics",
        "an empty list of metrics",
    ),
    (
        {"autoscaling": {"minReplicas": 0, "maxReplicas": 2, "metrics": [{"type": "Pods"}]}},
        "autoscaling.metrics are of type Object or External",
        "pods have no metrics at zero",
    ),
    (
        {"autoscaling": {"maxReplicas": 2, "source": "KEDA", "metrics": [QUEUE]}},
        "with source KEDA write keda.triggers",
        "the HPA is KEDA's own",
    ),
    (
        {"autoscaling": {"minReplicas": 0, "maxReplicas": 2, "source": "KEDA", "keda": {"triggers": []}}},
        "write source: KEDA and keda.triggers",
        "an empty list of triggers",
    ),
    (
        {
            "autoscaling": {
                **{"minReplicas": 0, "maxReplicas": 2, "source": "KEDA"},
                "keda": {"triggers": [CPU, {"type": "memory"}, {"metadata": {}}]},
            }
        },
        "keda.triggers of another type than cpu and memory",
        "nothing uses cpu or memory at zero",
    ),
    (
        {"autoscaling": {"maxReplicas": 2, "source": "KEDA", "keda": {"idleReplicaCount": 0, "triggers": [CPU]}}},
        "keda.triggers of another type than cpu and memory",
        "idle at zero by cpu alone",
    ),
    (
        {"autoscaling": {"maxReplicas": 2, "source": "KEDA", "keda": {"idleReplicaCount": 0}}},
        "keda.idleReplicaCount 0 need a source",
        "idle at zero, and nobody who sees demand there",
    ),
    (
        {"autoscaling": {"maxReplicas": 2, "source": "KEDA", "keda": {"idleReplicaCount": 1, "triggers": [CRON]}}},
        "can only be 0",
        "KEDA idles at zero alone",
    ),
    (
        {
            "autoscaling": {
                "minReplicas": 0,
                "maxReplicas": 2,
                "source": "KEDA",
                "keda": {"idleReplicaCount": 0, "triggers": [CRON]},
            }
        },
        "must be below minReplicas",
        "idle replicas that are the minimum",
    ),
    (
        {"autoscaling": {"maxReplicas": 2, "keda": {"triggers": [CRON]}}},
        "keda is for source KEDA",
        "KEDA's in an HPA",
    ),
    (
        {"autoscaling": {"maxReplicas": 2, "objectives": {"timeToFirstToken": "0.0s"}}},
        "timeToFirstToken is 0, which no server keeps",
        "no time to the first token",
    ),
    (
        {"autoscaling": {"maxReplicas": 2, "objectives": {"interTokenLatency": "0ms"}}},
        "interTokenLatency is 0, which no server keeps",
        "no time between tokens",
    ),
    (
        {"autoscaling": {"maxReplicas": 2, "objectives": {"interTokenLatency": "50"}}},
        "spec.autoscaling.objectives.interTokenLatency",
        "a time without its unit",
    ),
]
METADATA: list[tuple[str, str, str]] = [
    # metadata beside the name, path of what is wrong, reason
    ("labels: {version: 2}", "metadata.labels", "a label that YAML reads as a number"),
    ("labels: {build: 1e3}", "metadata.labels", "a digest that kubectl reads as a number"),
    ("labels: [team-a]", "metadata.labels", "labels without values"),
    ("labels: {team: a b}", "metadata.labels", "no label value"),
    ("annotations: {reviewed: yes}", "metadata.annotations", "an annotation that YAML reads as a truth"),
    ("lables: {team: a}", "metadata.lables", "a misspelt field"),
    ("namespace: 7", "metadata.namespace", "a namespace that YAML reads as a number"),
]


def with_metadata(service: str, metadata: str) -> str:
    """The service `svc` with further metadata, as YAML."""
    return service.replace("{name: svc}", f"{{name: svc, {metadata}}}")


SCALARS = """
small: 1e-5
thousand: 1e3
signed: 1.0e+5
whole: 2.0
half: .5
octal: 017
its_new_spelling: 0o17
hexadecimal: 0x1f
no_octal: 08
grouped: 1_000
date: 2026-01-01
moment: 2026-01-01T00:00:00Z
minutes: 1:30
truth: yes
its_letter: y
switched: on
"equals": =
12: a number for a key
true: a truth for a key
quoted: "1e3"
"""
