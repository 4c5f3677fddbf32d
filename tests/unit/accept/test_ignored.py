"""Settings that cannot be honoured as they are written: each is refused, or served with a warning that says so."""

from dataclasses import replace
from typing import Any

import pytest

from support.services import DATA, QUICKSTART, parse
from tandem.accept import Accepted, accept
from tandem.accept.storage import several
from tandem.engines import engine_of
from tandem.rollout.decide import decide
from tandem.rollout.observed import CacheClaim, Observed
from tandem.settings import Settings

LLMAPI = """
apiVersion: serving.tandem.dev/v1alpha1
kind: SpeculativeInferenceService
metadata: {name: llama, namespace: default, uid: uid-1, generation: 1}
spec:
  runtime: {mode: LLMAPI, profile: trtllm-26.07}
  target: {model: {uri: hf://org/target}}
  speculation: {decodingType: None}
"""
TRUST = {"runtime__extraLlmArgs": {"trust_remote_code": True}}
NO_CODE = "downloads bring no code along, so hf://org/target loads only where it needs none of its own"
REPLACE = {"rollout": {"strategy": "Replace"}}
RWO = {"storage": {"cache": {"accessModes": ["ReadWriteOnce"]}}}
N_GRAM = {"decodingType": "NGram"}

# What is written, and what the warning has; empty: there is none of these.
ROWS: list[tuple[dict[str, Any], str]] = [
    (TRUST, f"runtime.extraLlmArgs.trust_remote_code: {NO_CODE}"),
    ({"runtime__extraLlmArgs": {"trust_remote_code": False}}, ""),
    ({**TRUST, "target__model__uri": "s3://bucket/target"}, "so s3://bucket/target loads only where"),
    ({**TRUST, "target__model__uri": "pvc://models/target"}, ""),
    ({**TRUST, "target__model__uri": "oci://models:1"}, ""),
    (
        {
            "speculation": {
                "decodingType": "Custom",
                "custom": {"type": "OurOwn", "args": {"trust_remote_code": True}},
            }
        },
        f"speculation.custom.args.trust_remote_code: {NO_CODE}",
    ),
    ({"speculation": {**N_GRAM, "nGram": {"isKeepAll": False}}}, "speculation.nGram.isUseOldest has no effect"),
    ({"speculation": {**N_GRAM, "nGram": {"isKeepAll": False, "isUseOldest": False}}}, ""),
    ({"speculation": {**N_GRAM, "nGram": {"isUseOldest": True}}}, ""),
    (
        {"speculation": {"decodingType": "None", "adaptive": {"minDraftLen": 2}}},
        "speculation.adaptive is for mode BLS, and has no effect in mode LLMAPI",
    ),
    ({"speculation": {"decodingType": "None", "adaptive": {"minDraftLen": 0}}}, ""),
    (
        {
            "placement": {
                "gpu": {"resourceName": "own/gpu"},
                "resourceClaims": [{"name": "g", "resourceClaimName": "g"}],
            }
        },
        "placement.gpu.resourceName own/gpu has no effect where placement.resourceClaims give",
    ),
    ({**RWO, "replicas": 2}, "there may be 2 replicas, and the claim tandem-cache has access mode ReadWriteOnce"),
    ({**RWO, "autoscaling": {"maxReplicas": 3}}, "there may be 3 replicas, and the claim tandem-cache"),
    (
        {**RWO, "target__tensorParallelSize": 16},
        "a replica is on 2 nodes, and the claim tandem-cache has access mode",
    ),
    (
        {**RWO, "placement": {"gpu": {"product": ["NVIDIA-L4"]}}},
        "storage.cache.accessModes ReadWriteOnce ties servers and Jobs to one node",
    ),
    ({**RWO, **REPLACE}, "the node of the first download may become the volume's, and a download asks for no GPU"),
    ({**RWO, **REPLACE, "placement": {"runtimeClassName": "nvidia"}}, ""),
    ({**RWO, **REPLACE, "placement": {"nodeSelector": {"pool": "gpu"}}}, ""),
    ({**RWO, **REPLACE, "placement": {"affinity": {"nodeAffinity": {}}}}, "asks for no GPU"),
    ({**REPLACE}, ""),
    ({**RWO, "placement": {"nodeSelector": {"kubernetes.io/hostname": "a"}}}, ""),
    ({**RWO, "target__model__uri": "file:///models/target"}, ""),
    ({"storage": {"cache": {"claimName": "c", "size": "1Ti"}}}, "storage.cache.size is of a claim that is made"),
    (
        {"storage": {"cache": {"claimName": "c", "size": "1Ti", "accessModes": ["ReadWriteOnce"]}}},
        "storage.cache.size and storage.cache.accessModes are of a claim that is made",
    ),
    ({"storage": {"cache": {"claimName": "c"}}}, ""),
]
WORDS = (
    "trust_remote_code",
    "isUseOldest",
    "adaptive",
    "placement.gpu",
    "access mode",
    "accessModes",
    "storage.cache",
)


@pytest.mark.parametrize(("changes", "warning"), ROWS)
def test_warned_of(changes: dict[str, Any], warning: str, settings: Settings) -> None:
    accepted = accept(parse(LLMAPI, **changes).spec, settings)
    assert isinstance(accepted, Accepted)
    found = [text for text in accepted.warnings if any(word in text for word in WORDS)]
    assert len(found) == bool(warning), found
    assert not warning or warning in found[0]


ENGINES = (DATA / "input/bls/guide-fast-logits.yaml").read_text("utf-8")
GUIDED = {"guided_decoding_backend": "xgrammar", "xgrammar_tokenizer_info_path": "/models/info.json"}
PARAMETERS: list[tuple[dict[str, str], str]] = [
    # engine.parameters, the warning
    ({"kv_cache_host_memory_byte": "1"}, "did you mean kv_cache_host_memory_bytes?"),
    ({"Cuda_graph_mode": "true"}, "did you mean cuda_graph_mode?"),
    ({"worker_pth_of_ours": "x"}, "see docs/reference/engines.md"),
    ({"cuda_graph_mode": "yes"}, "cannot read 'yes': write true or false"),
    ({"kv_cache_host_memory_bytes": "4Gi"}, "cannot read '4Gi': write a whole number"),
    ({"gpu_weights_percent": "all"}, "cannot read 'all': write a number"),
    ({"batch_scheduler_policy": "max"}, "write max_utilization or guaranteed_no_evict"),
    ({"max_attention_window_size": "4096;8192"}, "write whole numbers with commas"),
    ({"guided_decoding_backend": "xgrammar"}, "has no effect without xgrammar_tokenizer_info_path"),
    ({"cuda_graph_mode": "True", "gpu_weights_percent": ".5", "max_attention_window_size": "4096, 8192"}, ""),
    ({"kv_cache_host_memory_bytes": "0", "max_queue_delay_microseconds": "10", **GUIDED}, ""),
]


@pytest.mark.parametrize(("parameters", "warning"), PARAMETERS)
def test_parameters_that_the_backend_does_not_read(
    parameters: dict[str, str], warning: str, settings: Settings
) -> None:
    engine = {"build": {"maxSeqLen": 4096}, "parameters": parameters}
    service = parse(ENGINES, target__engine=engine, runtime__profile="trtllm-26.07")
    accepted = accept(service.spec, settings)
    assert isinstance(accepted, Accepted), accepted
    found = [text for text in accepted.warnings if "target.engine.parameters" in text]
    assert len(found) == bool(warning), found
    assert not warning or warning in found[0]


def test_what_gpus_have_means_nothing_on_cpus(settings: Settings) -> None:
    accepted = accept(parse(QUICKSTART, placement={"gpu": {"product": ["NVIDIA-L4"]}}).spec, settings)
    assert isinstance(accepted, Accepted)
    assert any(text.startswith("placement.gpu has no effect: profile 'reference'") for text in accepted.warnings)


@pytest.mark.parametrize(
    ("changes", "modes", "refused"),
    [
        ({}, ("ReadWriteOnce",), False),
        ({"replicas": 2}, ("ReadWriteOnce",), True),
        ({"replicas": 2}, ("ReadWriteOncePod",), True),
        ({"replicas": 2, **RWO}, ("ReadWriteMany",), False),
        ({"target__tensorParallelSize": 16}, ("ReadWriteOnce",), True),
    ],
    ids=["one replica", "several", "of one pod", "the claim that is there counts", "several nodes"],
)
def test_the_claim_that_is_there_decides(
    changes: dict[str, Any], modes: tuple[str, ...], refused: bool, settings: Settings
) -> None:
    observed = Observed(claim=CacheClaim("c", access_modes=modes, made_by_us=True))
    decision = decide(parse(LLMAPI, **changes), settings, observed)
    assert (decision.refusal is not None and decision.refusal.reason == "CacheNotShareable") is refused


@pytest.mark.parametrize(
    ("replicas", "modes", "warned"),
    [(1, ("ReadWriteOnce",), False), (2, ("ReadWriteOnce",), True), (2, ("ReadOnlyMany",), False), (2, (), False)],
)
def test_a_claim_with_a_model(replicas: int, modes: tuple[str, ...], warned: bool, settings: Settings) -> None:
    service = parse(LLMAPI, target__model__uri="pvc://models/target", replicas=replicas)
    observed = replace(Observed(), source_claims={"models": modes})
    text = f"there may be {replicas} replicas, and the claim of pvc://models has access mode ReadWriteOnce"
    assert any(text in each for each in decide(service, settings, observed).warnings) is warned
    profile = settings.profile("trtllm-26.07")
    assert profile
    assert bool(several(service.spec, engine_of(service.spec, profile))) is (replicas > 1), (
        "else its claims are not asked for"
    )
