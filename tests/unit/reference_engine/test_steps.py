"""What verifications return, call after call, is what the target alone returns in one call: to the bit."""

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pytest

from reference_engine import sampling
from reference_engine.backend import Segment
from reference_engine.request import Finish, Output, Request
from reference_engine.sampling import SamplingParams
from support.reference_engine import generate, run
from unit.reference_engine import tiny_llama

Ids = npt.NDArray[np.int32]

PROMPT: Ids = np.arange(3, 33, dtype=np.int32)
LENGTH = 20
BIAS = np.linspace(-2, 2, 97, dtype=np.float32)
SAMPLED = SamplingParams(top_p=0.95, temperature=1.5, seed=5)
TARGET = tiny_llama.scheduler()
DRAFT = tiny_llama.scheduler({"rms_norm_eps": 0.01})  # near the target: some of its tokens are accepted
ALONE = generate(tiny_llama.scheduler(), PROMPT, LENGTH)
BAD = ((ALONE[2],), (ALONE[0], ALONE[1]))

SETTINGS: list[tuple[str, SamplingParams]] = [
    ("greedy", SamplingParams()),
    ("temperature and top-p", SAMPLED),
    ("top-k", SamplingParams(top_k=12, temperature=0.8, seed=6)),
    ("top-k and top-p", SamplingParams(top_k=30, top_p=0.9, temperature=2, seed=2**63)),
    ("greedy with penalties", SamplingParams(repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.2)),
    ("penalties", replace(SAMPLED, repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.2)),
    ("bias", replace(SAMPLED, embedding_bias=BIAS)),
    ("greedy with bad words", SamplingParams(bad_words=BAD)),
    ("bad words", replace(SAMPLED, bad_words=BAD)),
    ("min_tokens", replace(SAMPLED, min_tokens=15)),
]


@dataclass
class Sum:
    """Outputs of calls, one after the other."""

    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    logits: list[npt.NDArray[np.float32]] = field(default_factory=list)
    accepted: int = 0

    def add(self, output: Output) -> None:
        self.tokens += output.tokens
        self.log_probs += output.log_probs
        self.logits += output.logits
        self.accepted += output.stats.accepted_draft_tokens


def request(params: SamplingParams, text: Ids, count: int, draft: Output | None = None) -> Request:
    """A request for tokens, log probs and logits; with a draft, for its verification."""
    made = len(text) - len(PROMPT)
    ids = None if draft is None else np.array(draft.tokens, np.int32)
    logits = np.stack(draft.logits) if draft is not None and draft.logits else None
    left = replace(params, min_tokens=max(0, params.min_tokens - made))
    end_id = ALONE[3] if params.min_tokens else -1
    return Request(text, count, ids, logits, end_id=end_id, sampling=left, log_probs=True, logits=True)


def by_steps(params: SamplingParams, length: int, by_logits: bool) -> Sum:
    """LENGTH tokens by verifications of `length` tokens of a draft model."""
    total, text, finish = Sum(), PROMPT, Finish.LENGTH
    while finish == Finish.LENGTH and (left := LENGTH - len(total.tokens)) > 0:
        proposal = request(replace(params, min_tokens=0), text, min(length, left - 1))
        if left > 1:
            [[drafted]] = run(DRAFT, replace(proposal, end_id=-1))
            assert len(drafted.logits) == len(drafted.tokens) == proposal.max_new_tokens
            checked = drafted if by_logits else replace(drafted, logits=[])
            [[output]] = run(TARGET, request(params, text, len(drafted.tokens) + 1, checked))
        else:
            [[output]] = run(TARGET, request(params, text, 1))
        total.add(output)
        text = np.concatenate([text, np.array(output.tokens, np.int32)])
        finish = output.finish
    return total


@pytest.mark.parametrize("length", range(1, 9))
@pytest.mark.parametrize(("name", "params"), SETTINGS, ids=[name for name, _ in SETTINGS])
def test_matching_steps_return_what_one_call_returns(name: str, params: SamplingParams, length: int) -> None:
    [[alone]] = run(tiny_llama.scheduler(), request(params, PROMPT, LENGTH))
    steps = by_steps(params, length, by_logits=False)
    assert steps.tokens == alone.tokens
    assert steps.log_probs == alone.log_probs
    assert np.array_equal(steps.logits, alone.logits)
    assert len(steps.tokens) == len(steps.log_probs) == len(steps.logits)
    assert 0 < steps.accepted < len(steps.tokens), "all or nothing was accepted: too easy"


@pytest.mark.parametrize("length", range(1, 9))
@pytest.mark.parametrize(("name", "params"), SETTINGS, ids=[name for name, _ in SETTINGS])
def test_steps_by_logits_return_the_targets_figures(name: str, params: SamplingParams, length: int) -> None:
    steps = by_steps(params, length, by_logits=True)
    text = np.concatenate([PROMPT, np.array(steps.tokens, np.int32)])
    alone = tiny_llama.model().forward([_segment(text)])
    assert np.array_equal(steps.logits, alone[: len(steps.tokens)])
    for i, token in enumerate(steps.tokens):
        banned = [ALONE[3]] if i < params.min_tokens else []
        processed = sampling.process(alone[i], params, text[: len(PROMPT) + i], banned)
        assert steps.log_probs[i] == sampling.log_prob(processed, token)
        assert processed[token] > -np.inf
    assert 0 < steps.accepted < len(steps.tokens), "all or nothing was accepted: too easy"


def _segment(text: Ids) -> Segment:
    return Segment(0, 0, text, len(text) - len(PROMPT) + 1)


def test_greedy_by_logits_is_greedy_by_match() -> None:
    for _, params in SETTINGS:
        if params.greedy:
            by_logits, by_match = by_steps(params, 4, by_logits=True), by_steps(params, 4, by_logits=False)
            assert (by_logits.tokens, by_logits.accepted) == (by_match.tokens, by_match.accepted)
