"""Passes that are given to a backend before the last one's tokens are taken: faster, and nothing else."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from reference_engine.request import Finish, Output, Request
from reference_engine.sampling import SamplingParams
from reference_engine.scheduler import Scheduler
from support.reference_engine import generate, run
from unit.reference_engine import feeding, tiny_llama

Ids = npt.NDArray[np.int32]
PROMPT: Ids = np.arange(3, 33, dtype=np.int32)
OTHER: Ids = np.arange(60, 20, -1, dtype=np.int32)
SAMPLED = SamplingParams(top_p=0.95, temperature=1.5, seed=5)
PENALIZED = SamplingParams(top_k=20, seed=5, repetition_penalty=1.3)


def test_each_pass_but_the_first_is_given_before_the_last_tokens_are_taken() -> None:
    scheduler, model = feeding.scheduler()
    generate(scheduler, PROMPT, 5)
    assert model.events == ["pass", "fed", "take", "fed", "take", "fed", "take", "fed", "take", "take"]


def test_sequences_of_several_lengths_leave_without_a_row_for_nothing() -> None:
    scheduler, _ = feeding.scheduler()
    outputs = run(scheduler, *(Request(PROMPT[i : i + 10], 3 + i) for i in range(4)))
    assert scheduler.statistics.iterations == 6, "as many as the longest output has tokens"
    assert [len(output.tokens) for [output] in outputs] == [3, 4, 5, 6]


@pytest.mark.parametrize("sampling", [SAMPLED, PENALIZED], ids=["on the device", "on the host"])
def test_what_the_host_chooses_is_waited_for(sampling: SamplingParams) -> None:
    scheduler, model = feeding.scheduler()
    generate(scheduler, PROMPT, 4, sampling)
    assert ("fed" in model.events) == (sampling is SAMPLED)


def test_a_piece_of_a_long_prompt_does_not_go_ahead() -> None:
    scheduler, model = feeding.scheduler(max_num_tokens=16)
    outputs: list[Output] = []
    scheduler.submit(Request(PROMPT[:4], 3), outputs.append)
    scheduler.step()
    scheduler.submit(Request(OTHER, 1), outputs.append)
    scheduler.step()
    assert model.events == ["pass", "fed", "take", "take"], "the prompt's first piece would have gone with a fed row"
    while not scheduler.idle:
        scheduler.step()
    assert [each.tokens for each in outputs] == [
        generate(tiny_llama.scheduler(), PROMPT[:4], 3),
        generate(tiny_llama.scheduler(), OTHER, 1),
    ]


def test_an_arrival_joins_the_second_pass_to_come() -> None:
    scheduler, model = feeding.scheduler()
    scheduler.submit(Request(PROMPT, 9), lambda _: None)
    scheduler.step()
    late: list[Output] = []
    scheduler.submit(Request(OTHER[:9], 1), late.append)
    scheduler.step()
    assert not late
    scheduler.step()
    assert [each.tokens for each in late] == [generate(tiny_llama.scheduler(), OTHER[:9], 1)]
    assert model.events.count("pass") == 1, "each later pass has a token of the last one"


def ended(scheduler: Scheduler, request: Request) -> tuple[Output, list[int]]:
    """A request's output, and what another one generates from its text afterwards, with what is kept of it."""
    [[output]] = run(scheduler, request)
    text = np.concatenate([request.input_ids, np.array(output.tokens, np.int32)])
    return output, generate(scheduler, text, 3)


ALONE = generate(tiny_llama.scheduler(), OTHER, 12)
ENDS: list[tuple[str, dict[str, Any], int, Finish]] = [
    ("end_id", {"end_id": ALONE[4]}, 4, Finish.END_ID),
    ("end_id at once", {"end_id": ALONE[0]}, 0, Finish.END_ID),
    ("a stop word", {"stop_words": ((*ALONE[2:4],),)}, 4, Finish.STOP),
]


@pytest.mark.parametrize(("reason", "changes", "count", "finish"), ENDS, ids=[row[0] for row in ENDS])
def test_what_was_computed_behind_the_end_is_dropped(
    reason: str, changes: dict[str, Any], count: int, finish: Finish
) -> None:
    scheduler, model = feeding.scheduler(slots=1)
    output, more = ended(scheduler, Request(OTHER, 12, **changes))
    assert (output.tokens, output.finish) == (ALONE[:count], finish)
    assert more == generate(tiny_llama.scheduler(), np.concatenate([OTHER, np.array(ALONE[:count], np.int32)]), 3)
    assert "fed" in model.events, reason


def test_a_cancelled_sequence_takes_nothing_of_the_pass_under_way() -> None:
    scheduler, _ = feeding.scheduler(slots=1)
    outputs: list[Output] = []
    sequence = scheduler.submit(Request(PROMPT, 9), outputs.append)
    scheduler.step()
    sequence.cancelled = True
    other: list[Output] = []
    scheduler.submit(Request(OTHER, 4), other.append)
    while not scheduler.idle:
        scheduler.step()
    assert (outputs[-1].finish, len(outputs[-1].tokens)) == (Finish.CANCELLED, 1)
    assert [each.tokens for each in other] == [generate(tiny_llama.scheduler(), OTHER, 4)]


def requests(rng: np.random.Generator) -> list[Request]:
    """Of all kinds, with common beginnings."""
    made = []
    for i in range(40):
        ids = np.concatenate(
            [PROMPT[: rng.integers(1, 30)], rng.integers(0, 97, rng.integers(1, 60)).astype(np.int32)]
        )
        sampling = PENALIZED if i % 10 == 9 else [SamplingParams(), replace(SAMPLED, seed=i)][i % 2]
        request = Request(
            ids,
            int(rng.integers(1, 20)),
            draft_ids=rng.integers(0, 97, 3).astype(np.int32) if i % 5 == 0 else None,
            end_id=int(rng.integers(0, 97)) if i % 3 else -1,
            stop_words=((int(rng.integers(0, 97)),),) if i % 3 == 1 else (),
            sampling=sampling,
            streaming=i % 7 == 0,
            log_probs=i % 20 == 3,
        )
        made.append(request)
    return made


@pytest.mark.parametrize("seed", range(4))
def test_requests_that_come_and_go_get_what_they_would_alone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scheduler, model = feeding.scheduler(slots=5, max_num_tokens=48)
    everything = requests(rng)
    outputs: list[list[Output]] = [[] for _ in everything]
    for request, sink in zip(everything, outputs, strict=True):
        scheduler.submit(request, sink.append)
        for _ in range(rng.integers(0, 6)):
            scheduler.step()
    while not scheduler.idle:
        scheduler.step()
    for request, received in zip(everything, outputs, strict=True):
        [expected] = run(tiny_llama.scheduler(), request)
        assert [token for each in received for token in each.tokens] == [t for each in expected for t in each.tokens]
        assert received[-1].finish == expected[-1].finish
        assert received[-1].log_probs == expected[-1].log_probs
    assert model.events.count("fed") > 10
