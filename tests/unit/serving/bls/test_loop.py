import json
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.serving.mock_engine import END, MockEngine, Model, counting, ending_after, run_loop, wrong_every
from tandem_serving.bls.calls import NewTokens, Output
from tandem_serving.bls.loop import LoopParams, SequenceLoop, mix
from tandem_serving.checkpoint import read_limits

PROMPT = np.arange(1, 11, dtype=np.int32)


def alone(model: Model, max_tokens: int) -> list[int]:
    """What the target alone generates."""
    ids: list[int] = PROMPT.tolist()
    for _ in range(max_tokens):
        token = model(ids)
        if token == END:
            break
        ids.append(token)
    return ids[len(PROMPT) :]


def generate(
    target: MockEngine, draft: MockEngine | None, k: int, max_tokens: int = 24, **settings: Any
) -> list[NewTokens]:
    sequence = LoopParams(PROMPT, max_tokens, frozenset({END}), **settings)
    return list(run_loop(SequenceLoop(sequence), target, draft, k))


def tokens(steps: Seq[NewTokens]) -> list[int]:
    return [token for step in steps for token in step.ids]


DRAFTS = [
    (counting, "always right"),
    (wrong_every(1), "always wrong"),
    (wrong_every(3), "right at two of three"),
    (ending_after(5), "always expects the end, proposes nothing"),
    (ending_after(20), "expects the end too early"),
]


@pytest.mark.parametrize("k", range(9))
@pytest.mark.parametrize(("draft", "reason"), DRAFTS, ids=[reason for _, reason in DRAFTS])
@pytest.mark.parametrize("max_tokens", [1, 2, 5, 24])
def test_output_equals_target_alone(draft: Model, reason: str, k: int, max_tokens: int) -> None:
    steps = generate(MockEngine(counting), MockEngine(draft), k, max_tokens)
    assert tokens(steps) == alone(counting, max_tokens), reason
    assert [step.finish for step in steps[:-1]] == [""] * (len(steps) - 1)
    assert steps[-1].finish == "length"


@pytest.mark.parametrize("includes_end", [False, True], ids=["end left out", "end returned"])
@pytest.mark.parametrize("length", range(10, 24))
@pytest.mark.parametrize("k", [0, 1, 4])
def test_end_id_wherever_it_falls(k: int, length: int, includes_end: bool) -> None:
    model = ending_after(length)
    target = MockEngine(model, includes_end=includes_end)
    steps = generate(target, MockEngine(wrong_every(3)), k)
    assert tokens(steps) == alone(model, 24)
    assert steps[-1].finish == "end_id"


@pytest.mark.parametrize("k", range(5))
@pytest.mark.parametrize("draft", [model for model, _ in DRAFTS], ids=[reason for _, reason in DRAFTS])
def test_the_longest_text_that_an_engine_takes_is_not_cut(draft: Model, k: int, tmp_path: Path) -> None:
    build = {"max_seq_len": 40, "max_num_tokens": 8192, "max_draft_len": 4}
    config = {"build_config": build, "pretrained_config": {"vocab_size": 300}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    limit = read_limits(tmp_path).max_sequence_len
    target = MockEngine(counting, max_seq_len=40, max_draft_len=4)
    steps = generate(target, MockEngine(draft), k, limit - len(PROMPT), target_limit=limit)
    assert tokens(steps) == alone(counting, limit - len(PROMPT))
    assert steps[-1].finish == "length"


def test_end_id_costs_no_extra_round() -> None:
    target = MockEngine(ending_after(len(PROMPT) + 5))
    draft = MockEngine(ending_after(len(PROMPT) + 5))
    steps = generate(target, draft, 4)
    assert (len(draft.calls), len(target.calls)) == (2, 2)
    assert [(step.drafted, step.accepted, len(step.ids)) for step in steps] == [(4, 4, 5), (0, 0, 0)]


CALLS = [
    # k, draft model, max tokens, draft calls, target calls, reason
    (4, counting, 10, 2, 2, "five tokens a round"),
    (4, counting, 11, 2, 3, "the last token needs no draft"),
    (4, wrong_every(1), 3, 2, 3, "one token a round, the last one without a draft"),
    (0, counting, 10, 0, 4, "calls of 1, 2, 4 and 3, not one a token"),
    (8, counting, 3, 1, 1, "never more drafts than may be used"),
]


@pytest.mark.parametrize(("k", "draft_model", "max_tokens", "drafts", "verifications", "reason"), CALLS)
def test_engine_calls(
    k: int, draft_model: Model, max_tokens: int, drafts: int, verifications: int, reason: str
) -> None:
    target, draft = MockEngine(counting), MockEngine(draft_model)
    generate(target, draft, k, max_tokens)
    assert (len(draft.calls), len(target.calls)) == (drafts, verifications), reason


def test_calls_without_a_draft_grow_and_those_among_drafts_are_short() -> None:
    loop, lengths = SequenceLoop(LoopParams(PROMPT, 60)), []
    for k in (0, 0, 0, 0, 0, 2, 0, 2, 2, 0):
        call = loop.begin(k)
        if call.role == "draft":
            call = loop.drafted(MockEngine(counting).run(call))
        lengths.append(call.output_len)
        loop.verified(MockEngine(counting).run(call))
    assert lengths == [1, 2, 4, 8, 16, 3, 4, 3, 3, 1], "one draft among long calls is a trial: they go on with 4"


def test_a_call_says_whether_it_brings_the_prompt() -> None:
    loop, brings = SequenceLoop(LoopParams(PROMPT, 24)), []
    for _ in range(2):
        call = loop.begin(2)
        verification = loop.drafted(MockEngine(counting).run(call))
        brings += [(call.role, call.first), (verification.role, verification.first)]
        loop.verified(MockEngine(counting).run(verification))
    assert brings == [("draft", True), ("target", True), ("draft", False), ("target", False)]


# Whether the engine streams, more of the sequence's settings, tokens of the calls of the target alone.
ALONE_CALLS = [
    (True, {}, [40], "one call of all"),
    (False, {}, [1, 2, 4, 8, 16, 9], "text flows nevertheless"),
    (False, {"one_call": True}, [40], "an engine that keeps track gets one, whatever becomes of the flow"),
]


@pytest.mark.parametrize(("streams", "more", "expected", "reason"), ALONE_CALLS, ids=[c[-1] for c in ALONE_CALLS])
def test_calls_of_the_target_alone(streams: bool, more: dict[str, Any], expected: list[int], reason: str) -> None:
    target = MockEngine(counting)
    steps = generate(target, None, 0, max_tokens=40, streams=streams, **more)
    assert tokens(steps) == alone(counting, 40)
    assert [call.output_len for call in target.calls] == expected, reason


def streamed(
    model: Model, sizes: Seq[int], max_tokens: int = 24, **more: Any
) -> tuple[SequenceLoop, list[NewTokens]]:
    """A stream that brings parts of these sizes, then its answer."""
    loop = SequenceLoop(LoopParams(PROMPT, max_tokens, frozenset({END}), streams=True, **more))
    call = loop.begin(0)
    assert loop.reads(call)
    output, steps, start = MockEngine(model).run(call), list[NewTokens](), 0
    for size in sizes:
        ids = output.ids[start : start + size]
        if not ids or loop.finish:
            break
        step = loop.part(start, ids)
        assert step is not None
        steps.append(step)
        start += size
    if not loop.finish:
        steps.append(loop.verified(output))
    return loop, steps


SIZES = [([], "all at its end"), ([1] * 24, "each token"), ([1, 2, 3, 4], "some"), ([1, 30], "all in one part")]


@pytest.mark.parametrize(("sizes", "reason"), SIZES, ids=[reason for *_, reason in SIZES])
@pytest.mark.parametrize("length", [len(PROMPT), len(PROMPT) + 1, len(PROMPT) + 5, 1000])
def test_parts_of_a_stream_and_its_answer_are_its_text(length: int, sizes: list[int], reason: str) -> None:
    model = ending_after(length)
    loop, steps = streamed(model, sizes)
    assert tokens(steps) == alone(model, 24), reason
    assert loop.finish == steps[-1].finish == ("length" if length == 1000 else "end_id")
    assert {step.finish for step in steps[:-1]} <= {""}
    assert {(step.drafted, step.accepted) for step in steps} == {(0, 0)}


def test_an_end_that_the_engine_does_not_know_ends_a_stream_in_a_part() -> None:
    loop = SequenceLoop(LoopParams(PROMPT, 24, frozenset({7}), streams=True, min_tokens=3))
    loop.begin(0)
    assert loop.part(0, [1, 7]) == NewTokens([1, 7]), "before min_tokens it is text"
    assert loop.part(2, [2, 7, 3]) == NewTokens([2], finish="end_id")
    assert loop.finish == "end_id"


def test_a_part_that_does_not_follow_is_left_to_the_answer() -> None:
    loop = SequenceLoop(LoopParams(PROMPT, 24, streams=True))
    output = MockEngine(counting).run(loop.begin(0))
    assert loop.part(0, output.ids[:2]) is not None
    assert loop.part(3, output.ids[3:5]) is None, "one before it is not known"
    assert loop.part(1, output.ids[1:5]) is None, "one of them is known"
    assert loop.verified(output).ids == output.ids[2:]
    assert loop.finish == "length"


@pytest.mark.parametrize("taken", range(1, 6))
def test_a_sequence_that_leaves_its_stream_goes_on_with_drafts(taken: int) -> None:
    loop, engine = SequenceLoop(LoopParams(PROMPT, 24, streams=True)), MockEngine(counting)
    gained = list(engine.run(loop.begin(0)).ids[:taken])
    assert loop.part(0, gained) is not None
    while not loop.finish:
        call = loop.begin(2)
        call = loop.drafted(engine.run(call)) if call.role == "draft" else call
        gained += loop.verified(engine.run(call)).ids
    assert gained == alone(counting, 24)


READS = [
    (0, 24, {}, True, "the target alone"),
    (2, 24, {}, False, "a draft"),
    (0, 1, {}, False, "one token: there is nothing to read before its answer"),
    (4, 24, {"one_call": True}, True, "a guide, so that its text flows, too"),
    (0, 24, {"streams": False}, False, "an engine that cannot stream"),
]


@pytest.mark.parametrize(("k", "max_tokens", "more", "expected", "reason"), READS, ids=[r[-1] for r in READS])
def test_which_calls_are_read_while_they_run(
    k: int, max_tokens: int, more: dict[str, Any], expected: bool, reason: str
) -> None:
    loop = SequenceLoop(LoopParams(PROMPT, max_tokens, **{"streams": True, **more}))
    assert loop.reads(loop.begin(k)) is expected, reason
    assert loop.reads(loop.next_token()) is more.get("one_call", False)
    assert not loop.reads(loop.drafted(Output([1, 2])))


def test_one_call_of_the_target_alone_where_the_engine_keeps_track() -> None:
    target, draft = MockEngine(counting), MockEngine(counting)
    steps = generate(target, draft, k=4, max_tokens=40, one_call=True)
    assert tokens(steps) == alone(counting, 40)
    assert (len(target.calls), len(draft.calls)) == (1, 0)


def test_draft_failure_goes_on_with_target_alone() -> None:
    target, draft = MockEngine(counting), MockEngine(counting, fail_at=2)
    steps = generate(target, draft, 4)
    assert tokens(steps) == alone(counting, 24)
    assert [call.output_len for call in target.calls] == [5, 5, 1, 2, 4, 7]


def test_no_draft_beyond_its_limit() -> None:
    draft = MockEngine(counting)
    steps = generate(MockEngine(counting), draft, 4, draft_limit=len(PROMPT) + 7)
    assert tokens(steps) == alone(counting, 24)
    assert max(len(call.ids) + call.output_len for call in draft.calls) == len(PROMPT) + 7


def test_min_tokens_counts_from_the_prompt() -> None:
    target, draft = MockEngine(counting), MockEngine(counting)
    generate(target, draft, 2, max_tokens=9, min_tokens=5)
    assert [call.min_tokens for call in target.calls] == [5, 2, 0]
    assert [call.min_tokens for call in draft.calls] == [5, 2, 0]


@pytest.mark.parametrize("k", [0, 1, 4])
def test_no_end_id_ends_a_text_before_min_tokens(k: int) -> None:
    """Engines know one end id and ban it; a model may have others, which are text until then."""
    other = 100

    def model(ids: list[int]) -> int:
        return other if len(ids) in (13, 20) else counting(ids)

    sequence = LoopParams(PROMPT, 24, frozenset({END, other}), min_tokens=8)
    steps = list(run_loop(SequenceLoop(sequence), MockEngine(model), MockEngine(wrong_every(3, model)), k))
    assert tokens(steps) == alone(model, 10)
    assert tokens(steps)[3] == other
    assert steps[-1].finish == "end_id"


def test_by_logits_the_draft_s_distribution_is_not_bent() -> None:
    loop = SequenceLoop(LoopParams(PROMPT, 24, min_tokens=5, use_draft_logits=True))
    assert (loop.begin(2).min_tokens, loop.drafted(Output([1, 2])).min_tokens) == (0, 5)


def test_seed_by_position_only_where_the_engine_needs_it() -> None:
    for mix_seed, expected in [(False, [7, 7]), (True, [mix(7, 10), mix(7, 13)])]:
        target = MockEngine(counting)
        generate(target, MockEngine(counting), 2, max_tokens=6, seed=7, mix_seed=mix_seed)
        assert [call.seed for call in target.calls] == expected


def test_log_probs_of_all_steps_are_those_of_the_tokens() -> None:
    steps = generate(MockEngine(counting), MockEngine(wrong_every(3)), 4)
    log_probs = np.concatenate([step.log_probs for step in steps if step.log_probs is not None])
    assert log_probs.tolist() == [-0.5 * token for token in alone(counting, 24)]


@pytest.mark.parametrize("longer", [1, 3])
@pytest.mark.parametrize("draft", [model for model, _ in DRAFTS], ids=[reason for _, reason in DRAFTS])
def test_made_up_draft_tokens_change_nothing(draft: Model, longer: int) -> None:
    target, drafter, loop = (
        MockEngine(counting),
        MockEngine(draft),
        SequenceLoop(LoopParams(PROMPT, 24, frozenset({END}))),
    )
    steps = []
    while not loop.finish:
        call = loop.begin(3)
        if call.role == "draft":
            call = loop.drafted(drafter.run(call))
            wide = loop.pad_to(call, 3 + longer)
            assert wide is not None
            assert (len(wide.draft_ids), wide.output_len) == (3 + longer, 4 + longer)
            call = wide
        steps.append(loop.verified(target.run(call)))
    assert tokens(steps) == alone(counting, 24)
    assert all(step.accepted <= step.drafted <= 3 for step in steps), "they are not counted"
    assert all(len(step.refused) == step.drafted - step.accepted for step in steps), "nor shown"
    assert not any(step.refused[:1] == tuple(step.ids[step.accepted :][:1]) for step in steps if step.refused)


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"target_limit": len(PROMPT) + 4}, id="beyond the target's limit"),
        pytest.param({"use_draft_logits": True}, id="beside logits: they have none"),
        pytest.param({"redrawn": True}, id="where the refused are drawn once more: they would come out too often"),
    ],
)
def test_no_made_up_tokens(more: dict[str, Any]) -> None:
    loop = SequenceLoop(LoopParams(PROMPT, 24, **more))
    loop.begin(2)
    logits = np.zeros((2, 8), np.float32) if "use_draft_logits" in more else None
    assert loop.pad_to(loop.drafted(Output([1, 2], logits=logits)), 4) is None


def test_by_logits_the_target_s_own_token_is_no_verification_of_made_up_ones() -> None:
    """They have no logits, and in a call either all rows have them or none."""
    loop = SequenceLoop(LoopParams(PROMPT, 24, use_draft_logits=True))
    assert loop.pad_to(loop.begin(0), 4) is None


def test_draft_and_target_share_a_seed_unless_they_must_be_independent() -> None:
    for logits in (False, True):
        loop = SequenceLoop(LoopParams(PROMPT, 24, seed=7, mix_seed=True, use_draft_logits=logits))
        draft = loop.begin(2)
        target = loop.drafted(Output([1, 2]))
        assert (draft.seed == target.seed) is not logits


def test_a_draft_stops_before_an_id_that_an_engine_does_not_have() -> None:
    """Of tables of different size for one vocabulary: the larger one's padding could be drawn."""
    target, draft = MockEngine(len), MockEngine(len)
    steps = generate(target, draft, 4, 12, vocabulary=17)
    assert tokens(steps) == list(range(10, 22))
    assert max(token for call in target.calls for token in call.draft_ids) == 16
    assert all(max(call.ids) < 17 for call in draft.calls), "nor is it drafted on after one"


def test_a_prompt_with_such_an_id_is_not_drafted_on() -> None:
    draft = MockEngine(len)
    steps = generate(MockEngine(len), draft, 4, 12, vocabulary=10)
    assert tokens(steps) == list(range(10, 22))
    assert draft.calls == []


LOST = [
    # tokens that came, in one call, what is asked for again, why
    (0, True, True, "nothing was delivered"),
    (0, False, True, "nothing was delivered"),
    (3, False, True, "it goes on after that"),
    (3, True, False, "a guide would begin anew"),
]


@pytest.mark.parametrize(("came", "one_call", "again", "why"), LOST, ids=[why for *_, why in LOST])
def test_what_is_asked_for_where_a_call_was_lost(came: int, one_call: bool, again: bool, why: str) -> None:
    loop = SequenceLoop(LoopParams(np.arange(5, dtype=np.int32), 20, streams=True, one_call=one_call))
    call = loop.begin(0)
    for i in range(came):
        loop.part(i, [7])
    found = loop.again(call)
    assert (found is not None) is again, why
    if found:
        assert found.ids.tolist() == [0, 1, 2, 3, 4, *[7] * came], why
        assert (found.output_len, loop.streamed) == (20 - came, 0)
