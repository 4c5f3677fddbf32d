"""The GPU benchmark's figures: what is made of records and counters, and of prompts."""

import base64
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from tritonclient.grpc import service_pb2 as pb

from bench.bls import client
from bench.gpu.served import load, measure, prompts, report, tables
from bench.gpu.served.load import Chunk, Window
from bench.gpu.served.measure import Counters
from bench.gpu.served.prompts import Prompt
from bench.gpu.served.repository import ROLES, Engines, build, build_llm_api
from bench.gpu.served.ways import CASES, WAYS
from bench.gpu.served.ways import bls as name_of
from reference_llm.llmapi.llm_args import LlmArgs
from tandem_serving.requests.tokenizer import Tokenizer
from triton.bls_client import PAIR

pytestmark = pytest.mark.nightly

NOTHING = Counters({"target": 0.0, "draft": 0.0}, {"target": 0, "draft": 0}, 0.0, 0, 0, [0.0, 0.0, 0.0])


def response(ids: list[int]) -> str:
    answer = pb.ModelStreamInferResponse()
    answer.infer_response.outputs.add(name="output_ids", datatype="INT32", shape=[1, len(ids)])
    answer.infer_response.raw_output_contents.append(np.array(ids, np.int32).tobytes())
    return base64.b64encode(answer.SerializeToString()).decode()


def test_chunks_are_timed_from_the_one_before() -> None:
    answers = [{"sent": 1.0, "chunks": [{"at": 1.5, "raw": response([7])}, {"at": 2.0, "raw": response([8, 9])}]}]
    expected = [Chunk(1.0, 1.5, 1, first=True), Chunk(1.5, 2.0, 2, first=False)]
    assert load.chunks({"answers": answers}) == expected


def test_tokens_count_for_the_part_of_their_time_that_is_in_the_window() -> None:
    found = [Chunk(0.0, 2.0, 8, first=True), Chunk(2.0, 2.5, 2, first=False), Chunk(2.5, 3.5, 4, first=False)]
    made = load.figures(found, 1.0, 3.0)
    assert made["tokens_per_second"] == pytest.approx((4 + 2 + 2) / 2)
    assert made["itl_ms"]["p50"] == pytest.approx(250), "half a second for two tokens"
    assert (made["ttft_ms"], made["requests"]) == (None, 0), "the request was sent before the window"
    assert made["tokens_a_chunk"] == 2


def test_what_is_beyond_the_engines_is_the_rest_of_a_round() -> None:
    last = replace(
        NOTHING, busy={"target": 0.6, "draft": 0.3}, calls={"target": 100, "draft": 100}, drafts=100, accepted=150,
        per_position=[90.0, 60.0, 0.0],
    )  # fmt: skip
    parts = measure.rounds(NOTHING, last, 1.0)
    assert parts is not None
    assert (parts["ms"], parts["target_ms"], parts["draft_ms"]) == pytest.approx((10, 6, 3))
    assert parts["beyond_engines_ms"] == pytest.approx(1)
    assert measure.speculation(NOTHING, last) == {"accepted_length": 2.5, "acceptance": [0.9, 0.6]}
    assert measure.rounds(NOTHING, replace(last, drafts=0), 1.0) is None
    assert measure.speculation(NOTHING, NOTHING)["accepted_length"] is None


@pytest.mark.parametrize("tokens", [0, 30, 500])
def test_prompts_have_the_length(tokens: int) -> None:
    texts = prompts.texts(PAIR / "prompts.jsonl")[:6]
    made = prompts.of_length(texts, Tokenizer(PAIR / "target"), tokens)
    assert len({each.text for each in made}) == 6
    for prompt, text in zip(made, texts, strict=True):
        if tokens:
            assert abs(len(prompt.ids) - tokens) <= 3
            assert prompt.text.endswith(text[-20:])
        else:
            assert prompt.text == text


def test_new_prompts_begin_unlike_each_other() -> None:
    texts, tokenizer = prompts.texts(PAIR / "prompts.jsonl")[:8], Tokenizer(PAIR / "target")
    made = prompts.in_other_orders(texts, tokenizer, 2000, 3)
    assert len(made) == 24
    assert len({each.ids[:32] for each in made}) == 24


def test_a_case_is_sent_as_it_says() -> None:
    given, window = [Prompt("abc", (1, 2, 3))], Window(2, 0.0, 0.1, 32)

    def sent(name: str) -> tuple[pb.ModelInferRequest, dict[str, bytes]]:
        message = pb.ModelInferRequest.FromString(load.messages(CASES[name], given, window)[-1])
        return message, dict(zip([i.name for i in message.inputs], message.raw_input_contents, strict=True))

    message, tensors = sent("k=4, sampled")
    assert message.model_name == "bls_fixed"
    assert tensors["num_draft_tokens"] == (4).to_bytes(4, "little")
    assert {"seed", "temperature", "top_p"} <= set(tensors)
    message, tensors = sent("adaptive")
    assert message.model_name == "speculative_bls"
    assert not {"num_draft_tokens", "seed"} & set(tensors)
    message, tensors = sent("engine")
    assert message.model_name == "tensorrt_llm_engine"
    assert tensors["input_ids"] == np.array([1, 2, 3], np.int32).tobytes()
    message, tensors = sent("LLM API, k=4, sampled")
    assert message.model_name == "tensorrt_llm_stream"
    assert tensors["streaming"] == tensors["sampling_param_exclude_input_from_output"] == b"\1"
    assert tensors["sampling_param_max_tokens"] == (32).to_bytes(4, "little")
    assert {"text_input", "sampling_param_top_p", "sampling_param_seed"} <= set(tensors)
    assert all(list(each.shape) == [1] for each in message.inputs)


def test_the_ideal_is_a_round_s_steps_and_nothing_else() -> None:
    steps = {"target 4 3": 8.0, "draft 4 1": 1.0, "target 4 1": 5.0}
    row = {"streams": 4, "accepted_length": 2.5}
    assert report.ideal(row, steps, 2) == pytest.approx(4 * 2.5 / 0.010)
    assert report.ideal({**row, "accepted_length": None}, steps, 0) == pytest.approx(4 / 0.005)
    assert report.ideal(row, steps, 7) is None


def test_tables_compare_with_the_target_alone() -> None:
    rows = [
        {"case": "alone", "streams": 4, "tokens_per_second": 500.0, "accepted_length": None},
        {"case": "k=2", "streams": 4, "tokens_per_second": 750.0, "accepted_length": 2.5},
        {"case": "sequential, k=4", "streams": 4, "tokens_per_second": 250.0, "accepted_length": 2.5},
    ]
    steps = {"target 4 3": 8.0, "target 4 5": 8.0, "draft 4 1": 1.0}
    text = tables.speed({"rows": rows, "steps_ms": steps})
    assert "| 750 (1.50 x; 0.75) |" in text
    assert "| 250 (0.50 x) |" in text, "its steps are of one row"


def test_each_way_has_a_bls_of_its_own_over_the_same_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from triton import backends

    for name in ("collector", "rounds", "streams"):
        monkeypatch.setattr(backends, name, lambda name=name: Path(f"/nowhere/libtriton_{name}.so"))
    parameters = {"backend": "torch", "max_num_sequences": "80"}
    placed = {"target": parameters, "draft": {**parameters, "gpu_device_ids": "1"}}
    engines = Engines({role: PAIR / role for role in ROLES}, placed, separate=True)
    models = build(tmp_path, engines, WAYS)
    for way in WAYS:
        bls = (models / name_of(way) / "config.pbtxt").read_text()
        assert f'name: "{name_of(way)}"' in bls
        assert ("tensorrt_llm_engine_rounds" in bls) == (way in ("fixed", "adaptive"))
        assert '"tensorrt_llm_draft_engine"' in bls
        assert 'key: "separate_devices" value { string_value: "true" }' in bls
    assert 'key: "gpu_device_ids"' in (models / "tensorrt_llm_draft_engine/config.pbtxt").read_text()
    config = (models / "tensorrt_llm_engine/config.pbtxt").read_text()
    assert config.count('key: "max_num_sequences"') == 1
    assert '"80"' in config
    assert (models / "tensorrt_llm_engine/1/model.py").resolve().parent.name == "metered_engine"


def test_the_llm_api_has_the_same_pair(tmp_path: Path) -> None:
    parameters = {"backend": "torch", "max_seq_len": "640", "max_num_tokens": "1024"}
    engines = Engines({role: PAIR / role for role in ROLES}, dict.fromkeys(ROLES, parameters))
    build_llm_api(tmp_path, engines, 7)
    arguments = yaml.safe_load((tmp_path / "models-llm_args.yaml").read_text())
    LlmArgs(**arguments)
    assert arguments["speculative_config"]["max_draft_len"] == 7
    assert (arguments["backend"], arguments["max_seq_len"]) == ("torch", 640)


def test_of_several_runs_the_median_counts() -> None:
    rows = [{"case": "k=4", "streams": 4, "tokens_per_second": speed} for speed in (3.0, 1.0, 2.0)]
    found = report.find(rows, "k=4", 4)
    assert found is not None
    assert (found["tokens_per_second"], found["speeds"]) == (2.0, [1.0, 2.0, 3.0])
    assert report.find(rows, "k=4", 16) is None


def test_a_message_carries_its_numbers() -> None:
    tensors = {name: (datatype, raw) for name, datatype, _, raw in client.completion("é", 3, seed=5, top_p=0.5)}
    assert tensors["text_input"] == ("BYTES", b"\2\0\0\0\xc3\xa9")
    assert tensors["seed"] == ("UINT64", (5).to_bytes(8, "little"))
    assert tensors["top_p"] == ("FP32", np.float32(0.5).tobytes())
