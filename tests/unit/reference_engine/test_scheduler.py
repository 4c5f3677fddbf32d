from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reference_engine.backend import Segment
from reference_engine.request import Finish, Output, Request, RequestError
from reference_engine.sampling import SamplingParams
from reference_engine.scheduler import Scheduler
from reference_engine.statistics import Statistics
from support.reference_engine import Ids, generate, run
from unit.reference_engine import tiny_llama

Passes = list[list[tuple[int, int]]]

PROMPT: Ids = np.arange(3, 33, dtype=np.int32)
OTHER: Ids = np.arange(60, 20, -1, dtype=np.int32)
SAMPLED = SamplingParams(top_p=0.95, temperature=1.5, seed=5)
PENALIZED = SamplingParams(top_k=20, seed=5, repetition_penalty=1.3, frequency_penalty=0.2, presence_penalty=0.1)


def watch(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> Passes:
    """(start, tokens) of the segments of each pass from now on."""
    passes: Passes = []
    forward = scheduler._model.forward

    def recorded(segments: Sequence[Segment]) -> Any:
        passes.append([(segment.start, len(segment.tokens)) for segment in segments])
        return forward(segments)

    monkeypatch.setattr(scheduler._model, "forward", recorded)
    return passes


EVERY = np.ones(97, np.float32)
ODD = [
    ("an end_id that no token has, below min_tokens", SamplingParams(min_tokens=2), 2**31 - 1),
    ("so cold that all are infinite", SamplingParams(top_p=0.9, temperature=1e-45, embedding_bias=20 * EVERY), -1),
    ("all must come", SamplingParams(top_p=0.9, embedding_bias=np.inf * EVERY), -1),
    ("none may come", SamplingParams(top_p=0.9, embedding_bias=-np.inf * EVERY), -1),
]


@pytest.mark.parametrize(("reason", "sampling", "end_id"), ODD, ids=[row[0] for row in ODD])
def test_odd_requests_do_not_stop_the_engine(reason: str, sampling: SamplingParams, end_id: int) -> None:
    scheduler = tiny_llama.scheduler()
    logits = scheduler._model.forward([Segment(0, 0, PROMPT, 1)]).repeat(2, axis=0)
    requests = [
        Request(PROMPT, 4, end_id=end_id, sampling=sampling, log_probs=True),
        Request(PROMPT, 4, draft_ids=OTHER[:2], draft_logits=logits, end_id=end_id, sampling=sampling),
    ]
    with np.errstate(all="ignore"):
        plain, verified = run(scheduler, *requests)
    assert (len(plain[0].tokens), plain[0].finish) == (4, Finish.LENGTH), reason
    assert verified[0].finish == Finish.LENGTH, reason


def test_the_coldest_choice_is_the_highest_logit() -> None:
    scheduler = tiny_llama.scheduler()
    with np.errstate(all="ignore"):
        cold = generate(scheduler, PROMPT, 8, SamplingParams(top_k=1, temperature=1e-45, presence_penalty=1e-9))
    assert cold == generate(scheduler, PROMPT, 8)


@pytest.mark.parametrize("sampling", [SamplingParams(), SAMPLED, PENALIZED], ids=["greedy", "sampled", "penalized"])
@pytest.mark.parametrize("kept", range(5))
def test_verification_keeps_what_the_target_would_say(kept: int, sampling: SamplingParams) -> None:
    scheduler = tiny_llama.scheduler()
    alone = generate(scheduler, PROMPT, 8, sampling)
    draft = np.array(alone[:4], np.int32)
    if kept < 4:
        draft[kept] = (draft[kept] + 1) % 97
    [[output]] = run(scheduler, Request(PROMPT, 5, draft_ids=draft, sampling=sampling))
    assert output.tokens == alone[: kept + 1]
    assert output.finish == Finish.LENGTH
    assert (output.stats.draft_tokens, output.stats.accepted_draft_tokens) == (4, kept)


@pytest.mark.parametrize("sampling", [SamplingParams(), SAMPLED, PENALIZED], ids=["greedy", "sampled", "penalized"])
@pytest.mark.parametrize("length", [1, 2, 4, 8])
def test_speculation_from_a_draft_model_equals_the_target_alone(length: int, sampling: SamplingParams) -> None:
    target, draft = tiny_llama.scheduler(), tiny_llama.scheduler({"num_hidden_layers": 1})
    alone = generate(tiny_llama.scheduler(), PROMPT, 40, sampling)
    text = PROMPT
    while len(text) < len(PROMPT) + 40:
        proposed = np.array(generate(draft, text, length, sampling), np.int32)
        [[output]] = run(target, Request(text, length + 1, draft_ids=proposed, sampling=sampling))
        text = np.concatenate([text, np.array(output.tokens, np.int32)])
    assert text[len(PROMPT) :][:40].tolist() == alone


def test_verification_is_one_pass_over_new_tokens_only(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = tiny_llama.scheduler()
    alone = generate(scheduler, PROMPT, 6)
    passes = watch(scheduler, monkeypatch)
    wrong = np.array([alone[0], (alone[1] + 1) % 97, 5, 6], np.int32)
    [[output]] = run(scheduler, Request(PROMPT, 5, draft_ids=wrong))
    text = np.concatenate([PROMPT, np.array(output.tokens, np.int32)])
    run(scheduler, Request(text, 5, draft_ids=np.array(alone[2:6], np.int32)))
    assert passes == [[(29, 5)], [(31, 5)]], "the rejected tokens' keys and values are not reused"


def test_company_changes_no_token() -> None:
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, 97, int(n)).astype(np.int32) for n in rng.integers(1, 120, 10)]
    alone = [generate(tiny_llama.scheduler(), prompt, 12, SAMPLED) for prompt in prompts]
    together = run(tiny_llama.scheduler(slots=4), *(Request(prompt, 12, sampling=SAMPLED) for prompt in prompts))
    assert [output.tokens for [output] in together] == alone


def test_prompts_come_in_pieces_and_hold_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = tiny_llama.scheduler(max_num_tokens=16)
    passes = watch(scheduler, monkeypatch)
    long = np.arange(50, dtype=np.int32)
    [first, second] = run(scheduler, Request(OTHER[:3], 6, streaming=True), Request(long, 1))
    assert all(sum(count for _, count in each) <= 16 for each in passes)
    assert passes[:4] == [[(0, 3), (0, 13)], [(3, 1), (13, 15)], [(4, 1), (28, 15)], [(5, 1), (43, 7)]]
    assert [len(output.tokens) for output in first] == [1] * 6
    assert second[0].tokens == generate(tiny_llama.scheduler(), long, 1)


def test_a_verification_is_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = tiny_llama.scheduler(max_num_tokens=10)
    passes = watch(scheduler, monkeypatch)
    run(scheduler, Request(PROMPT[:14], 9, draft_ids=OTHER[:8]))
    assert passes == [[(0, 10)], [(10, 3)], [(13, 9)]]


def test_a_short_piece_goes_before_a_long_prompt_that_came_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = tiny_llama.scheduler(max_num_tokens=16)
    generate(scheduler, PROMPT, 1)
    passes = watch(scheduler, monkeypatch)
    run(scheduler, Request(OTHER, 1), Request(PROMPT, 1))
    assert passes[0] == [(29, 1), (0, 15)]


def test_a_common_beginning_is_computed_once_and_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = tiny_llama.scheduler(max_num_tokens=256)
    beginning = np.random.default_rng(5).integers(0, 97, 100).astype(np.int32)
    texts = [np.concatenate([beginning, np.full(70, i, np.int32)]) for i in range(4)]
    expected = [generate(tiny_llama.scheduler(), text, 5, SAMPLED) for text in texts]
    assert generate(scheduler, texts[0], 5, SAMPLED) == expected[0]
    passes = watch(scheduler, monkeypatch)
    outputs = run(scheduler, *(Request(text, 5, sampling=SAMPLED) for text in texts))
    assert [output.tokens for [output] in outputs] == expected
    assert passes[0] == [(169, 1), (100, 70), (100, 70), (100, 70)]
    assert [output.stats.reused_tokens for [output] in outputs] == [169, 100, 100, 100]


def test_the_prompt_of_a_running_sequence_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = tiny_llama.scheduler()
    outputs: list[Output] = []
    scheduler.submit(Request(PROMPT, 50), outputs.append)
    scheduler.step()
    passes = watch(scheduler, monkeypatch)
    scheduler.submit(Request(np.concatenate([PROMPT, OTHER]), 5), outputs.append)
    scheduler.step()
    assert passes == [[(30, 1), (30, 40)]]
    while not scheduler.idle:
        scheduler.step()
    assert outputs[0].tokens == generate(tiny_llama.scheduler(), np.concatenate([PROMPT, OTHER]), 5)


STREAMS = [True, False]


@pytest.mark.parametrize("streaming", STREAMS)
def test_streaming_yields_each_token_once(streaming: bool) -> None:
    [outputs] = run(tiny_llama.scheduler(), Request(PROMPT, 7, streaming=streaming))
    assert len(outputs) == (7 if streaming else 1)
    assert [token for output in outputs for token in output.tokens] == generate(tiny_llama.scheduler(), PROMPT, 7)
    assert [output.finish for output in outputs] == [Finish.NONE] * (len(outputs) - 1) + [Finish.LENGTH]


def test_log_probs_and_logits_come_with_their_tokens() -> None:
    request = Request(PROMPT, 5, sampling=SAMPLED, log_probs=True, logits=True, streaming=True)
    [outputs] = run(tiny_llama.scheduler(), request)
    text = PROMPT
    for output in outputs:
        expected = tiny_llama.textbook_logits(tiny_llama.CONFIG, text)[-1]
        np.testing.assert_allclose(output.logits, expected[None], atol=2e-4)
        scaled = expected / SAMPLED.temperature
        log_prob = scaled[output.tokens[0]] - np.log(np.exp(scaled).sum())
        assert output.log_probs == pytest.approx([log_prob], abs=1e-3)
        text = np.concatenate([text, np.array(output.tokens, np.int32)])


def test_end_id_has_no_log_prob_and_no_logits() -> None:
    alone = generate(tiny_llama.scheduler(), OTHER, 4)
    request = Request(OTHER, 9, end_id=alone[3], log_probs=True, logits=True)
    [[output]] = run(tiny_llama.scheduler(), request)
    assert (len(output.tokens), len(output.log_probs), len(output.logits)) == (3, 3, 3)


def test_each_of_several_ends_is_one_and_none_comes_before_the_least_tokens() -> None:
    alone = generate(tiny_llama.scheduler(), OTHER, 6)
    request = Request(OTHER, 9, end_id=96, more_ends=(alone[4], alone[2]))
    [[output]] = run(tiny_llama.scheduler(), request)
    assert (output.tokens, output.finish) == (alone[:2], Finish.END_ID)
    sampling = SamplingParams(min_tokens=5)
    [[later]] = run(tiny_llama.scheduler(), replace(request, sampling=sampling))
    assert len(later.tokens) >= 5
    assert not {alone[2], alone[4]} & set(later.tokens)


def ends() -> list[tuple[str, dict[str, Any], int, Finish]]:
    """What ends the 12 tokens that the tiny model generates after OTHER, and after how many."""
    alone = generate(tiny_llama.scheduler(), OTHER, 12)
    assert len(set(alone[:6])) == 6, "the table below needs different tokens"
    before = int(OTHER[-1])
    return [
        ("nothing", {}, 12, Finish.LENGTH),
        ("end_id: not part of the output", {"end_id": alone[4]}, 4, Finish.END_ID),
        ("end_id at once", {"end_id": alone[0]}, 0, Finish.END_ID),
        ("a stop word is part of it", {"stop_words": ((alone[4],),)}, 5, Finish.STOP),
        ("of several stop words the first to come", {"stop_words": ((alone[5],), (*alone[2:4],))}, 4, Finish.STOP),
        ("a stop word that begins in the prompt", {"stop_words": ((before, alone[0]),)}, 1, Finish.STOP),
        ("a stop word in the prompt alone", {"stop_words": ((before,),)}, 12, Finish.LENGTH),
        ("a stop word that never comes", {"stop_words": ((96, 96, 96),)}, 12, Finish.LENGTH),
    ]


@pytest.mark.parametrize("drafted", [0, 12], ids=["decoded", "verified"])
@pytest.mark.parametrize("row", range(8))
def test_what_ends_a_sequence(row: int, drafted: int) -> None:
    reason, changes, count, finish = ends()[row]
    alone = generate(tiny_llama.scheduler(), OTHER, 12)
    draft = np.array(alone[:drafted], np.int32) if drafted else None
    scheduler = tiny_llama.scheduler()
    [[output]] = run(scheduler, Request(OTHER, 12, draft_ids=draft, **changes))
    assert (output.tokens, output.finish) == (alone[:count], finish), reason
    text = np.concatenate([OTHER, np.array(output.tokens, np.int32)])
    assert generate(scheduler, text, 3) == generate(tiny_llama.scheduler(), text, 3), "what is kept of it is right"


@pytest.mark.parametrize("drafted", [0, 6], ids=["decoded", "verified"])
def test_min_tokens_suppresses_end_id(drafted: int) -> None:
    alone = generate(tiny_llama.scheduler(), PROMPT, 12)
    sampling = SamplingParams(min_tokens=5)
    request = Request(PROMPT, 12, end_id=alone[2], sampling=sampling)
    [[output]] = run(tiny_llama.scheduler(), request)
    assert output.tokens[:2] == alone[:2]
    assert len(output.tokens) >= 5
    assert alone[2] not in output.tokens
    if drafted:
        draft = np.array(output.tokens[:drafted], np.int32)
        verify = Request(PROMPT, drafted + 1, draft_ids=draft, end_id=alone[2], sampling=sampling)
        assert run(tiny_llama.scheduler(), verify)[0][0].tokens == output.tokens[: drafted + 1]


def test_sequences_wait_for_slots_and_get_them() -> None:
    scheduler = tiny_llama.scheduler(slots=2)
    outputs: list[Output] = []
    for start in range(5):
        scheduler.submit(Request(PROMPT[start:], 3), outputs.append)
    scheduler.step()
    # Prompts of 30 and 29 tokens: a block of 64 each. A slot has 4, for 256 tokens.
    assert scheduler.statistics == Statistics(running=2, waiting=3, slots=2, used=2, blocks=8, iterations=1)
    while not scheduler.idle:
        scheduler.step()
    assert scheduler.statistics == Statistics(running=0, waiting=0, slots=2, used=0, blocks=8, iterations=9)
    assert len(outputs) == 5
    assert scheduler._slots.busy == 0


def test_a_sequence_holds_the_blocks_of_its_prompt_and_output() -> None:
    scheduler = tiny_llama.scheduler(slots=2)
    scheduler.submit(Request(PROMPT, 40, streaming=True), lambda _: None)
    used = []
    while not scheduler.idle:
        scheduler.step()
        used.append(scheduler.statistics.used)
    tokens = np.arange(31, 70)  # after each step
    assert used == [*np.ceil(tokens / 64), 0]


def test_cancelled_sequences_leave_at_the_next_step() -> None:
    scheduler = tiny_llama.scheduler(slots=2)
    outputs: dict[str, list[Output]] = {"running": [], "waiting": [], "other": []}
    first = scheduler.submit(Request(PROMPT, 100, streaming=True), outputs["running"].append)
    scheduler.submit(Request(OTHER, 6), outputs["other"].append)
    third = scheduler.submit(Request(OTHER, 100), outputs["waiting"].append)
    scheduler.step()
    first.cancelled = third.cancelled = True
    scheduler.step()
    assert outputs["running"][-1].finish == outputs["waiting"][-1].finish == Finish.CANCELLED
    assert (scheduler.statistics.running, scheduler.statistics.waiting) == (1, 0)
    while not scheduler.idle:
        scheduler.step()
    assert outputs["other"][0].tokens == generate(tiny_llama.scheduler(), OTHER, 6)
    assert scheduler._slots.busy == 0


REFUSED: list[tuple[str, Request, str]] = [
    ("no prompt", Request(PROMPT[:0], 5), "input_ids is empty"),
    ("nothing to generate", Request(PROMPT, 0), "request_output_len is 0: send 1 or more"),
    (
        "too long",
        Request(PROMPT, 227),
        "30 prompt tokens and 227 to generate are 257, more than the model's limit of 256",
    ),
    ("too long a draft", Request(PROMPT, 1, draft_ids=np.zeros(227, np.int32)), "more than the model's limit of 256"),
    ("ids of another tokenizer", Request(np.array([97], np.int32), 5), "input_ids holds ids outside 0..96"),
    (
        "negative draft ids",
        Request(PROMPT, 5, draft_ids=np.array([-1], np.int32)),
        "draft_input_ids holds ids outside",
    ),
    (
        "a draft that no pass holds",
        Request(PROMPT, 5, draft_ids=np.zeros(512, np.int32)),
        "draft_input_ids has 512 tokens: send 511 at most",
    ),
    (
        "draft logits without draft tokens",
        Request(PROMPT, 5, draft_logits=np.zeros((1, 97), np.float32)),
        "draft_logits has shape [1, 97] in a row: send [0, 97], the draft's generation_logits",
    ),
    (
        "draft logits of another vocabulary",
        Request(PROMPT, 5, draft_ids=OTHER[:2], draft_logits=np.zeros((2, 96), np.float32)),
        "draft_logits has shape [2, 96] in a row: send [2, 97]",
    ),
    (
        "draft logits that are no numbers",
        Request(PROMPT, 5, draft_ids=OTHER[:2], draft_logits=np.array([[0] * 97, [np.nan] * 97], np.float32)),
        "draft_logits holds NaN or infinity",
    ),
    (
        "draft logits that allow no token",
        Request(PROMPT, 5, draft_ids=OTHER[:1], draft_logits=np.full((1, 97), -np.inf, np.float32)),
        "draft_logits holds NaN or infinity",
    ),
    ("top_k", Request(PROMPT, 5, sampling=SamplingParams(top_k=-1)), "runtime_top_k is -1"),
    ("top_p", Request(PROMPT, 5, sampling=SamplingParams(top_p=1.5)), "runtime_top_p is 1.5"),
    ("temperature", Request(PROMPT, 5, sampling=SamplingParams(temperature=float("nan"))), "temperature is nan"),
    ("repetition", Request(PROMPT, 5, sampling=SamplingParams(repetition_penalty=0)), "repetition_penalty is 0"),
    (
        "presence",
        Request(PROMPT, 5, sampling=SamplingParams(presence_penalty=float("inf"))),
        "presence_penalty is inf",
    ),
    ("min_tokens", Request(PROMPT, 5, sampling=SamplingParams(min_tokens=-1)), "min_tokens is -1"),
    (
        "bad words",
        Request(PROMPT, 5, sampling=SamplingParams(bad_words=((97,),))),
        "bad_words_list holds ids outside",
    ),
    (
        "bias of another vocabulary",
        Request(PROMPT, 5, sampling=SamplingParams(embedding_bias=np.zeros(5, np.float32))),
        "embedding_bias has shape [5]: send 97 numbers",
    ),
]


@pytest.mark.parametrize(("reason", "request_", "message"), REFUSED, ids=[row[0] for row in REFUSED])
def test_bad_requests_are_refused(reason: str, request_: Request, message: str) -> None:
    scheduler = tiny_llama.scheduler(max_num_tokens=512)
    with pytest.raises(RequestError) as error:
        scheduler.submit(request_, lambda _: None)
    assert message in str(error.value)
    assert scheduler.idle
