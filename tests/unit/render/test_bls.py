"""Mode BLS on TensorRT engines: each resource of tests/data/input/bls with its launch plan and the parameters of its
models in tests/data/output/bls, and one engine's configuration in full.

Update them with `make goldens`, and read the difference.
"""

import json
import os
import re
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from support.profiles import TENSORRT
from support.services import DATA
from tandem.accept import Accepted, accept
from tandem.api.profile import Profile
from tandem.api.roles import Role, downloads
from tandem.api.types import SpeculativeInferenceService
from tandem.engines.tensorrt_engines.builds import DECIDED_PARAMETERS, OPEN_PARAMETERS
from tandem.render import LATEST, Record, Revision, render
from tandem.render.v1.bls import CLIENT_MODELS
from tandem.settings import Settings

INPUTS = sorted((DATA / "input" / "bls").glob("*.yaml"))
OUTPUT = DATA / "output" / "bls"
SETTINGS = Settings(profiles=[TENSORRT])


def rendered(path: Path, profile: Profile = TENSORRT) -> Revision:
    service = SpeculativeInferenceService.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    accepted = accept(service.spec, SETTINGS)
    assert isinstance(accepted, Accepted), accepted
    fetched = {role: f"/cache/models/{role}" for role in downloads(service.spec)}
    return render(
        Record(renderer=LATEST, serving_image="serving:1", profile=profile, spec=service.spec, fetched=fetched)
    )


def check(path: Path, text: str) -> None:
    if os.environ.get("UPDATE_GOLDENS"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), "run `make goldens` and read the difference"


def parsed(revision: Revision, name: str) -> Any:
    return text_format.Parse(revision.files[f"{name}.config.pbtxt"], model_config_pb2.ModelConfig())


def engine_of(revision: Revision) -> str:
    """The target's engine."""
    name = "tensorrt_llm_engine"
    return name if f"{name}.config.pbtxt" in revision.files else "tensorrt_llm"


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    revision = rendered(path)
    plan = json.loads(revision.files["launch.json"])
    configs = {name: parsed(revision, name) for name in plan["models"]}
    parameters = {
        name: {key: value.string_value for key, value in sorted(config.parameters.items())}
        for name, config in configs.items()
        if config.parameters
    }
    golden = {"launch.json": plan, "parameters": parameters}
    check(OUTPUT / path.name, yaml.safe_dump(golden, sort_keys=False, width=110))


def test_golden_of_an_engines_configuration() -> None:
    revision = rendered(DATA / "input" / "bls" / "guide-fast-logits.yaml")
    check(OUTPUT / "tensorrt_llm_engine.config.pbtxt", revision.files["tensorrt_llm_engine.config.pbtxt"])


@pytest.mark.parametrize(
    ("calls", "without_draft", "rows"),
    [
        pytest.param("Single", False, False, id="a call has one row"),
        pytest.param("Collected", False, True, id="each row is answered by itself"),
        pytest.param("Collected", True, False, id="without a draft each has calls of its own anyway"),
    ],
)
def test_engines_are_tensorrt_llms_which_stream_and_clients_get_one_response(
    calls: str, without_draft: bool, rows: bool
) -> None:
    """`rows`: whether sequences share calls."""
    profile = TENSORRT.model_copy(update={"engine": TENSORRT.engine.model_copy(update={"calls": calls})})
    paths = [path for path in INPUTS if ("draft" not in yaml.safe_load(path.read_text())["spec"]) == without_draft]
    assert paths
    for path in paths:
        revision = rendered(path, profile)
        models = json.loads(revision.files["launch.json"])["models"]
        configs = {name: parsed(revision, name) for name in models}
        found = {name: config for name, config in configs.items() if config.backend == "tensorrtllm"}
        engines = ["tensorrt_llm_engine"] if without_draft else ["tensorrt_llm_engine", "tensorrt_llm_draft_engine"]
        assert sorted(found) == sorted(engines)
        assert all(config.model_transaction_policy.decoupled for config in found.values())
        for name, config in found.items():
            assert config.name == name
            assert "source" not in models[name], "the backend has the code"
        for name in ("tensorrt_llm", "tensorrt_llm_draft"):
            assert name not in configs or not configs[name].model_transaction_policy.decoupled
        collectors = [name for name, config in configs.items() if config.backend == "collector"]
        assert [name.replace("_collector", "_engine") for name in collectors] == engines
        assert all("decoupled_model_name" not in configs[name].parameters for name in collectors), "by their names"
        assert [name for name, config in configs.items() if config.backend == "streams"] == [f"{engines[0]}_streams"]
        loop = configs["speculative_bls"]
        assert loop.parameters["max_engine_rows"].string_value == (str(loop.max_batch_size) if rows else "1")


def test_logits_that_are_compared_are_not_collected(tmp_path: Path) -> None:
    """They are megabytes; a handle of fast logits is not."""
    fast, slow = DATA / "input" / "bls" / "guide-fast-logits.yaml", tmp_path / "slow.yaml"
    slow.write_text(fast.read_text("utf-8").replace("fastLogits: true", "fastLogits: false"), encoding="utf-8")
    rows = [parsed(rendered(path), "speculative_bls").parameters["max_engine_rows"] for path in (fast, slow)]
    assert int(rows[0].string_value) > 1
    assert rows[1].string_value == "1"


def test_all_that_is_rendered_belongs_together() -> None:
    """Names in one model's configuration are those of others."""
    revision = rendered(DATA / "input" / "bls" / "guide-fast-logits.yaml")
    models = json.loads(revision.files["launch.json"])["models"]
    named = {
        (name, key): value.string_value
        for name in models
        for key, value in parsed(revision, name).parameters.items()
        if key.endswith(("model_name", "collector_name", "streams_name"))
    }
    engines = CLIENT_MODELS.values()
    assert set(named.values()) <= set(models)
    assert {(name, value) for (name, _), value in named.items()} >= {
        *((caller, f"{name}_engine") for name in engines for caller in ("speculative_bls", name)),
        *(("speculative_bls", f"{name}_collector") for name in engines),
        ("speculative_bls", "tensorrt_llm_engine_streams"),
        ("tensorrt_llm_bls", "speculative_bls"),
    }


UPSTREAM_PARAMETERS = {
    *("FORCE_CPU_ONLY_INPUT_TENSORS", "batch_scheduler_policy", "cancellation_check_period_ms"),
    *("cross_kv_cache_fraction", "cuda_graph_cache_size", "cuda_graph_mode", "decoding_mode"),
    *("eagle_choices", "enable_chunked_context", "enable_context_fmha_fp32_acc", "enable_kv_cache_reuse"),
    *("enable_trt_overlap", "encoder_model_path", "exclude_input_in_output", "executor_worker_path"),
    *("gpt_model_path", "gpt_model_type", "gpu_device_ids", "gpu_weights_percent"),
    *("guided_decoding_backend",),
    *("iter_stats_max_iterations", "kv_cache_free_gpu_mem_fraction", "kv_cache_host_memory_bytes"),
    *("kv_cache_onboard_blocks", "lookahead_ngram_size", "lookahead_verification_set_size"),
    *("lookahead_window_size", "lora_cache_gpu_memory_fraction", "lora_cache_host_memory_bytes"),
    *("lora_cache_max_adapter_size", "lora_cache_optimal_adapter_size", "lora_prefetch_dir"),
    *("max_attention_window_size", "max_beam_width", "max_tokens_in_paged_kv_cache", "medusa_choices"),
    *("multi_block_mode", "normalize_log_probs", "num_nodes", "participant_ids"),
    *("request_stats_max_iterations", "sink_token_length", "speculative_decoding_fast_logits"),
    *("stats_check_period_ms", "tokenizer_dir", "xgrammar_tokenizer_info_path"),
}
"""Of triton_backend/all_models/inflight_batcher_llm/tensorrt_llm/config.pbtxt (TensorRT-LLM, 0c8de69a)."""


def test_each_parameter_of_upstream_s_is_the_resource_s_or_the_user_s() -> None:
    ours = {*DECIDED_PARAMETERS, *OPEN_PARAMETERS}
    assert ours == {*UPSTREAM_PARAMETERS, "recv_poll_period_ms", "max_queue_delay_microseconds"}
    assert not DECIDED_PARAMETERS.keys() & OPEN_PARAMETERS.keys()


PASSED_ON = {
    "max_attention_window_size": "4096",
    "kv_cache_host_memory_bytes": "1073741824",
    "enable_chunked_context": "true",
    "cuda_graph_mode": "true",
    "lora_cache_gpu_memory_fraction": "0.1",
    "batch_scheduler_policy": "max_utilization",
    "guided_decoding_backend": "xgrammar",
    "xgrammar_tokenizer_info_path": "/models/info.json",
}


def test_parameters_without_a_field_are_passed_on(tmp_path: Path) -> None:
    plain = DATA / "input" / "bls" / "guide-fast-logits.yaml"
    resource = yaml.safe_load(plain.read_text("utf-8"))
    engine = resource["spec"]["target"].setdefault("engine", {})
    engine["parameters"] = {**PASSED_ON, "max_queue_delay_microseconds": "1000"}
    path = tmp_path / "passed-on.yaml"
    path.write_text(yaml.safe_dump(resource), encoding="utf-8")
    before, after = (parsed(rendered(each), engine_of(rendered(each))) for each in (plain, path))
    changed = {
        key: value.string_value
        for key, value in after.parameters.items()
        if key not in before.parameters or before.parameters[key].string_value != value.string_value
    }
    tokenizer = parsed(rendered(plain), "preprocessing").parameters["tokenizer_dir"].string_value
    assert changed == {**PASSED_ON, "tokenizer_dir": tokenizer}
    assert (
        before.dynamic_batching.max_queue_delay_microseconds,
        after.dynamic_batching.max_queue_delay_microseconds,
    ) == (
        0,
        1000,
    )
    draft = "tensorrt_llm_draft_engine"
    assert parsed(rendered(path), draft) == parsed(rendered(plain), draft), "the target's are not the draft's"
    text = rendered(path).files[f"{engine_of(rendered(path))}.config.pbtxt"]
    assert text.count('key: "batch_scheduler_policy"') == 1


def test_every_parameter_of_upstreams_template_is_set_or_knowingly_left_unset() -> None:
    parameters: set[str] = set()
    for path in INPUTS:
        parameters |= set(parsed(rendered(path), engine_of(rendered(path))).parameters)
    assert parameters <= UPSTREAM_PARAMETERS
    template = resources.files("tandem.render.v1").joinpath("repository/_tensorrtllm.pbtxt.j2").read_text("utf-8")
    named = re.findall(r"[\w*]+", template.partition("-#}")[0])
    unset = {name for name in UPSTREAM_PARAMETERS if any(fnmatchcase(name, word) for word in named)}
    assert UPSTREAM_PARAMETERS - parameters == unset, (
        "the template's comment names those that are left unset, and why"
    )


def test_engines_are_built_on_one_gpu_of_the_kind_that_serves_into_the_cache() -> None:
    builds = rendered(DATA / "input" / "bls" / "guide-fast-logits.yaml").builds
    assert list(builds) == [Role.TARGET, Role.DRAFT]
    (container,) = builds[Role.DRAFT].pod["containers"]
    assert container["command"][2:] == ["build", "--revision", "/etc/tandem/revision", "--role", "draft"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert {"name": "cache", "mountPath": "/cache"} in container["volumeMounts"], "writable"
    assert "NVIDIA-H100-80GB-HBM3" in str(builds[Role.DRAFT].pod["affinity"])
    assert builds[Role.TARGET].digest != builds[Role.DRAFT].digest


def test_an_engine_that_was_brought_along_has_no_build() -> None:
    assert list(rendered(DATA / "input" / "bls" / "shared-orchestrator.yaml").builds) == [Role.DRAFT]


@pytest.mark.parametrize("method", ["TokenMatch", "Logits"])
def test_what_the_preflight_asks_of_engines_that_were_brought_along(tmp_path: Path, method: str) -> None:
    """A target that verifies; by logits both give them out. Those that we build are built so."""
    path = tmp_path / "service.yaml"
    service = yaml.safe_load((DATA / "input" / "bls" / "shared-orchestrator.yaml").read_text("utf-8"))
    service["spec"]["speculation"]["acceptance"] = {"method": method}
    path.write_text(yaml.safe_dump(service), encoding="utf-8")
    asked = json.loads(rendered(path).files["launch.json"])["preflight"]["engines"]
    assert asked["target"]["speculative_decoding_mode"] == "draft_tokens_external"
    assert "speculative_decoding_mode" not in asked["draft"]
    gathered = {role for role, engine in asked.items() if engine.get("gather_generation_logits")}
    assert gathered == ({"target", "draft"} if method == "Logits" else set())
