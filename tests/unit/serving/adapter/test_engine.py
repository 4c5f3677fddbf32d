"""Engine calls: which tensors go to which model, and what is made of its answer."""

import threading
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from support.serving import pb_utils
from tandem_serving.adapter.engine import PERF_METRICS, EngineModel, JoinModel, RoundModel, StreamModel, engine_inputs
from tandem_serving.bls.batches import Row
from tandem_serving.bls.calls import Call, Output, Part, Role, ServerRound
from tandem_serving.bls.request import BlsPrompt, BlsRequest
from tandem_serving.bls.sequence import EngineInputs
from tandem_serving.errors import EngineError
from tandem_serving.requests.tensors import Array

Calls = list[pb_utils.InferenceRequest]
TRUE = np.array([[True]])


def column(*values: int, kind: Any = np.int32) -> Array:
    return np.array(values, kind)[:, None]


def ints(*rows: list[int]) -> Array:
    """output_ids int32[B, 1, m]."""
    ids = np.zeros((len(rows), 1, max(map(len, rows))), np.int32)
    for filled, row in zip(ids, rows, strict=True):
        filled[0, : len(row)] = row
    return ids


def answer(*rows: list[int], **more: Array) -> pb_utils.InferenceResponse:
    """An engine's, with the tokens of each row."""
    return pb_utils.tensors(output_ids=ints(*rows), sequence_length=column(*map(len, rows)), **more)


def row(
    ids: Sequence[int], output_len: int = 4, outputs: tuple[str, ...] = (), stream: int = 0, **call: Any
) -> Row[Any]:
    role: Role = call.pop("role", "target")
    made = Call(role, np.array(ids, np.int32), output_len, **call)
    inputs = EngineInputs({"end_id": column(2)}, outputs)
    loop = SimpleNamespace(longest_draft=9)
    sequence = SimpleNamespace(engine_inputs={"target": inputs, "draft": inputs}, number=77, loop=loop)
    return Row(sequence, made, None, stream=stream)


@pytest.fixture
def target() -> Iterator[EngineModel]:
    model = EngineModel("engine", "target", "collector")
    yield model
    model.close()


def outputs(model: EngineModel, *rows: Row[Any]) -> list[Output]:
    """What an engine's call answers, each row once and in order."""
    [found] = model.call(rows)
    assert [index for index, _ in found] == list(range(len(rows)))
    return [output for _, output in found]


def test_rows_are_filled_up_and_their_answers_cut(target: EngineModel, calls: Calls) -> None:
    pb_utils.answers[0] = lambda call: answer([8, 9], [7, 6, 5])
    first, second = outputs(target, row([1, 2, 3]), row([4], output_len=3))
    assert (first.ids, second.ids) == ([8, 9], [7, 6, 5])
    [call] = calls
    assert (call.model_name, call.decoupled) == ("collector", False), "several rows go to what collects them"
    expected = {
        "input_ids": [[1, 2, 3], [4, 0, 0]],
        "input_lengths": [[3], [1]],
        "request_output_len": [[4], [3]],
        "end_id": [[2], [2]],
    }
    assert {name: array.tolist() for name, array in call.inputs.items()} == expected


def test_one_row_goes_to_the_engine_itself(target: EngineModel, calls: Calls) -> None:
    pb_utils.answers[0] = lambda call: answer([8])
    assert [output.ids for output in outputs(target, row([1]))] == [[8]]
    assert [(call.model_name, call.decoupled) for call in calls] == [("engine", True)]


def test_where_nothing_collects_rows_the_engine_takes_them(calls: Calls) -> None:
    pb_utils.answers[0] = lambda call: answer([8], [9])
    model = EngineModel("engine", "target")
    assert len(outputs(model, row([1]), row([2]))) == 2
    assert [(call.model_name, call.decoupled) for call in calls] == [("engine", False)]
    model.close()


SENT: list[tuple[str, list[dict[str, Any]], Array | None]] = [
    # a tensor, what calls have of it, what is sent
    ("draft_input_ids", [{"draft_ids": (5, 6)}, {"draft_ids": (7, 8)}], np.array([[5, 6], [7, 8]])),
    ("draft_input_ids", [{}, {}], None),
    ("min_tokens", [{"min_tokens": 0}, {"min_tokens": 3}], column(0, 3)),
    ("min_tokens", [{}, {}], None),
    ("seed", [{"seed": 1 << 63}, {"seed": 1}], column(1 << 63, 1, kind=np.uint64)),
    ("seed", [{}, {}], None),
    ("draft_logits", [{"draft_logits": np.ones((2, 3), np.float32)}] * 2, np.ones((2, 2, 3))),
    ("draft_logits", [{}, {}], None),
]


@pytest.mark.parametrize(("name", "made", "sent"), SENT)
def test_what_calls_have_beside_their_tokens(
    target: EngineModel, calls: Calls, name: str, made: list[dict[str, Any]], sent: Array | None
) -> None:
    pb_utils.answers[0] = lambda call: answer(*[[8]] * len(made))
    outputs(target, *(row([1], **each) for each in made))
    found = calls[0].inputs.get(name)
    assert (found is None) is (sent is None)
    assert found is None or (found == sent).all()


def test_scores_and_figures_are_each_row_s_own_and_only_where_asked_for(target: EngineModel, calls: Calls) -> None:
    more = {
        "output_log_probs": np.array([[[-1.0, -2.0, 0.0]], [[-3.0, -4.0, -5.0]]], np.float32),
        "generation_logits": np.arange(12, dtype=np.float32).reshape(2, 1, 3, 2),
        PERF_METRICS[0]: column(11, 12, kind=np.int64),
    }
    pb_utils.answers[0] = lambda call: answer([8, 9], [7, 6, 5], **more)
    asked = ("output_log_probs", "generation_logits", *PERF_METRICS)
    found = outputs(target, row([1], outputs=asked), row([2], outputs=asked))
    assert [output.log_probs.tolist() for output in found if output.log_probs is not None] == [[-1, -2], [-3, -4, -5]]
    assert [output.logits.tolist() for output in found if output.logits is not None] == [
        [[0, 1], [2, 3]],
        [[6, 7], [8, 9], [10, 11]],
    ]
    assert [output.perf_metrics for output in found] == [{PERF_METRICS[0]: 11}, {PERF_METRICS[0]: 12}]
    assert set(calls[0].outputs) == {"output_ids", "sequence_length", *asked}
    plain = outputs(target, row([1]), row([2]))
    assert [(output.log_probs, output.logits, output.perf_metrics) for output in plain] == [(None, None, None)] * 2


def test_a_handle_of_fast_logits_keeps_its_bits(target: EngineModel, calls: Calls) -> None:
    """It stands for all tokens of a draft, and may look like a NaN."""
    handle = np.frombuffer(b"\x01\x00\xa0\x7f" * 4, np.float32)
    pb_utils.answers[0] = lambda call: answer([8, 9], generation_logits=handle.reshape(1, 1, 1, 4))
    [output] = outputs(target, row([1], outputs=("generation_logits",)))
    assert output.logits is not None
    assert (output.logits.shape, output.logits.tobytes()) == ((1, 4), handle.tobytes())


FAILURES: list[tuple[Any, str, str, str]] = [
    # what the engine answers, the error, its code, why
    (
        pb_utils.InferenceResponse(error=pb_utils.TritonError("no blocks\n\nAt:\n  a.py", 4)),
        "target engine: no blocks",
        "UNAVAILABLE",
        "its own, without a trace",
    ),
    (pb_utils.TritonModelException("no such model"), "target engine: no such model", "INTERNAL", "no call was made"),
    (answer([8]), "the engine answered 1 of 2 sequences: set max_engine_rows to 1", "INTERNAL", "a row is missing"),
    (pb_utils.tensors(output_ids=ints([8], [9])), "lacks output_ids or sequence_length", "INTERNAL", "no lengths"),
    (
        answer([1, 2, 3, 4, 5], [3]),
        "the target engine answered 5 tokens where 4 were asked for: it must take exclude_input_in_output",
        "INTERNAL",
        "it repeats its input, which would become text",
    ),
]


@pytest.mark.parametrize(("found", "message", "code", "why"), FAILURES, ids=[why for *_, why in FAILURES])
def test_what_a_call_fails_with(
    target: EngineModel, calls: Calls, found: Any, message: str, code: str, why: str
) -> None:
    def answers(call: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        if isinstance(found, Exception):
            raise found
        made: pb_utils.InferenceResponse = found
        return made

    pb_utils.answers[0] = answers
    with pytest.raises(EngineError, match=message) as caught:
        outputs(target, row([1, 2]), row([3]))
    assert caught.value.code == code, why


def test_more_tokens_than_asked_for_are_no_repeated_input(target: EngineModel, calls: Calls) -> None:
    pb_utils.answers[0] = lambda call: answer([7, 7, 7, 7, 7])
    assert outputs(target, row([1, 2]))[0].ids == [7] * 5


def test_a_stop_goes_by_the_call_s_id_and_is_sent_again_only_once_it_is_answered(
    target: EngineModel, calls: Calls
) -> None:
    """Stops that an engine does not answer would fill up all threads."""
    answered, second = threading.Event(), threading.Event()

    def wait(call: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        assert call.inputs["stop"].tolist() == [[True]]
        (second if len(calls) > 1 else answered).wait(60)
        return pb_utils.InferenceResponse([])

    pb_utils.answers[0] = wait
    made = target.call([row([1])])
    for _ in range(3):
        made.stop()
    answered.set()
    while target._stopping:
        threading.Event().wait(0.005)
    made.stop()
    second.set()
    target._stops.shutdown()
    assert [call.request_id for call in calls] == [made._id] * 2


def test_calls_have_ids_of_their_own(target: EngineModel, calls: Calls) -> None:
    pb_utils.answers[0] = lambda call: answer([8])
    for _ in range(3):
        outputs(target, row([1]))
    assert len({call.request_id for call in calls}) == 3


def test_a_round_brings_its_drafts_and_its_times(calls: Calls) -> None:
    more = {
        "round_draft_ids": np.array([[8, 0], [6, 5]], np.int32),
        "round_draft_lengths": column(1, 2),
        "round_draft_ns": column(9_000_000, 9_000_000, kind=np.int64),
        "round_target_ns": column(12_000_000, 12_000_000, kind=np.int64),
        "round_group": column(3, 3, kind=np.int64),
        "round_members": column(2, 2),
    }
    pb_utils.answers[0] = lambda call: answer([8, 9], [6], **more)
    model = RoundModel("rounds")
    found = outputs(model, row([1], role="draft"), row([2, 3], 2, role="draft"))
    assert [(output.ids, output.drafted) for output in found] == [([8, 9], [8]), ([6], [6, 5])]
    for output in found:
        assert output.server_round == pytest.approx((0.009, 0.012, 3, 2, 2))
    sent = calls[0].inputs
    assert [sent[f"round_{name}"].ravel().tolist() for name in ("sequence", "most", "draft_length")] == [
        [77, 77],
        [9, 9],
        [4, 2],
    ]
    assert "request_output_len" not in sent, "the server asks each engine for its own"
    model.close()


def test_what_joins_a_round_may_bring_more_than_was_asked_for(calls: Calls) -> None:
    group = {"round_group": column(3, kind=np.int64), "round_members": column(2)}
    pb_utils.answers[0] = lambda call: answer([1, 2, 3], **group)
    model = JoinModel("rounds", "target")
    [output] = outputs(model, row([1, 2], output_len=1))
    assert (output.ids, output.drafted) == ([1, 2, 3], None)
    assert output.server_round == ServerRound(0.0, 0.0, 3, 2)
    model.close()


def test_streams_are_read_together(target: EngineModel, calls: Calls) -> None:
    parts: dict[str, Array] = {
        "stream_number": np.array([[5, 6]], np.int64),
        "stream_start": np.array([[0, 2]], np.int32),
        "stream_length": np.array([[1, 2]], np.int32),
    }
    pb_utils.answers[0] = lambda call: (
        pb_utils.tensors(output_ids=np.array([[[8, 7, 6]]], np.int32), **parts)
        if "stream_wait_ms" in call.inputs
        else answer([8])
    )
    model = StreamModel("streams", target)
    outputs(model, row([1], output_len=9, stream=5))
    assert model.read() == [Part(5, 0, [8]), Part(6, 2, [7, 6])]
    opened, read = (call.inputs for call in calls)
    assert (opened["stream_number"].item(), opened["streaming"].item()) == (5, True)
    assert opened["stream_caller"].item() == read["stream_caller"].item()
    pb_utils.answers[0] = lambda call: pb_utils.InferenceResponse([])
    assert model.read() == [], "nothing came"
    made = model.call([row([1], output_len=9, stream=7)])
    made.stop()
    target._stops.shutdown()
    assert calls[-1].model_name == "engine", "the engine itself is asked to stop"
    model.close()


def prompt(**more: Any) -> BlsPrompt:
    tensors = {"end_id": column(2), "temperature": np.array([[0.5]], np.float32)}
    ids = np.array([1], np.int32)
    known: dict[str, Any] = {"seed": None, "target_tensors": {"lora_task_id": column(3)}, **more}
    return BlsPrompt(0, "", ids, 8, 4, 0, known["seed"], frozenset(), (), False, tensors, known["target_tensors"])


REQUESTS: list[tuple[str, dict[str, Any], Role, set[str], tuple[str, ...]]] = [
    # what is asked for, of which engine, its tensors beside the prompt's, its outputs beside tokens
    ("plain", {}, "target", {"end_id", "lora_task_id"}, ()),
    ("plain", {}, "draft", {"end_id"}, ()),
    (
        "log_probs",
        {"log_probs": True},
        "target",
        {"end_id", "lora_task_id", "return_log_probs"},
        ("output_log_probs",),
    ),
    ("log_probs", {"log_probs": True}, "draft", {"end_id"}, ()),
    (
        "logits",
        {"generation_logits": True},
        "target",
        {"end_id", "lora_task_id", "return_generation_logits"},
        ("generation_logits",),
    ),
    ("figures", {"perf_metrics": True}, "target", {"end_id", "lora_task_id", "return_perf_metrics"}, PERF_METRICS),
    ("by logits", {"use_draft_logits": True}, "target", {"end_id", "lora_task_id"}, ()),
    ("by logits", {"use_draft_logits": True}, "draft", {"return_generation_logits"}, ("generation_logits",)),
]


@pytest.mark.parametrize(("what", "asked", "role", "tensors", "wanted"), REQUESTS)
def test_what_goes_with_each_call_of_a_request(
    what: str, asked: dict[str, Any], role: Role, tensors: set[str], wanted: tuple[str, ...]
) -> None:
    made = prompt()
    found = engine_inputs(made, BlsRequest((made,), stream=True, **asked))[role]
    assert found.tensors.keys() == {"temperature", "exclude_input_in_output", *tensors}, what
    assert (found.outputs, found.seeded) == (wanted, False)
    seeded = prompt(seed=7)
    assert engine_inputs(seeded, BlsRequest((seeded,), stream=True, **asked))[role].seeded
