"""Each case of `tandem conformance` on a server that keeps its promises, and on ones that break each of them."""

import asyncio

import pytest

from support.conforming import CHANGES, WRONG, Faults, Server
from tandem.client.conformance import cases, soak, subject
from tandem.client.conformance.cases import CASES
from tandem.client.conformance.exactness import EPSILON, TIE_TEMPERATURE, Tie, tie
from tandem.client.conformance.results import CaseOutcome, CaseResult
from tandem.client.conformance.subject import Alone

VERIFIED, BROKE, NOT_APPLICABLE = CaseOutcome


async def run(name: str, faults: Faults | None = None, mode: str = "BLS", *, alone: bool = True) -> CaseResult:
    return await CASES[name](Server(faults, mode).subject(alone=alone))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "SLOTS_SECONDS", 0.05)
    monkeypatch.setattr(cases, "SETTLE_SECONDS", 0)
    monkeypatch.setattr(subject, "ANSWER_SECONDS", 5.0)


@pytest.mark.parametrize("mode", ["BLS", "LLMAPI"])
@pytest.mark.parametrize("name", CASES)
async def test_a_service_that_keeps_its_promises(name: str, mode: str) -> None:
    found = await run(name, mode=mode)
    expected = NOT_APPLICABLE if (name, mode) == ("parameter-min_p", "BLS") else VERIFIED
    assert (found.outcome, found.case, found.evidence) == (expected, name, ()), found.detail


WRONG_5 = Faults(wrong_at=5)
TABLE = [
    # what is broken, the case, its outcome, what its detail holds
    (
        "other tokens",
        WRONG_5,
        "exact-1",
        BROKE,
        "other tokens from token 5 on; compared 64 tokens as the target alone",
    ),
    ("only where rows share a batch: one row", Faults(wrong_at=5, rows=4), "exact-1", VERIFIED, "64 tokens"),
    ("only where rows share a batch: four", Faults(wrong_at=5, rows=4), "exact-4", BROKE, "from token 5 on"),
    ("only in large batches: four", Faults(wrong_at=5, rows=16), "exact-4", VERIFIED, "64 tokens"),
    ("only in large batches: sixteen", Faults(wrong_at=5, rows=16), "exact-16", BROKE, "from token 5 on"),
    ("the first token", Faults(wrong_at=0), "exact-1", BROKE, "other tokens from token 0 on"),
    ("among other requests", Faults(wrong_at=5, rows=9), "mixed", BROKE, "from token 5 on"),
    ("a near-tie", Faults(wrong_at=5, gap=0.01), "exact-1", VERIFIED, "4 near-ties within 0.25"),
    ("not quite a near-tie", Faults(wrong_at=5, gap=0.6), "exact-1", BROKE, "from token 5 on"),
    ("nothing is drafted", Faults(drafts=False), "exact-1", NOT_APPLICABLE, "says nothing of speculation"),
    ("too many rows at once fail", Faults(most_rows=15), "exact-16", BROKE, "CUDA runtime error"),
    ("likewise in the mix", Faults(most_rows=15), "mixed", BROKE, "CUDA runtime error"),
    ("no answer", Faults(hangs=True), "exact-1", BROKE, "no answer within 0 s"),
    ("a seed is ignored", Faults(ignores_seeds=True), "sampled", BROKE, "a seed does not repeat"),
    ("nothing is drawn", Faults(ignores_temperature=True), "sampled", BROKE, "seeds 7 and 8 give the same texts"),
    *(
        (f"{name} has no effect", Faults(ignores=(name,)), f"parameter-{name}", BROKE, detail)
        for name, detail in [
            ("top_k", "4 texts of 4 samples"),
            ("top_p", "4 texts of 4 samples"),
            *((name, "it has no effect") for name in CHANGES),
        ]
    ),
    ("nothing is drawn at all", Faults(ignores_temperature=True), "parameter-temperature", BROKE, "nothing is drawn"),
    *(
        (f"{name} is refused, as it should be", Faults(refuses=(name,)), case, VERIFIED, "refused by its name")
        for name, case in [("presence_penalty", "parameter-presence_penalty"), ("seed", "sampled")]
    ),
    *(
        (
            f"{name} should be refused, and is answered",
            Faults(refuses=(name,), ignores=(name,)),
            case,
            BROKE,
            "it was answered, though",
        )
        for name, case in [("presence_penalty", "parameter-presence_penalty"), ("seed", "sampled")]
    ),
    ("samples without seeds are drawn", Faults(refuses=("seed",)), "parameter-temperature", VERIFIED, "4 prompts"),
    ("the mix needs no seeds", Faults(refuses=("seed",)), "mixed", VERIFIED, "tokens"),
    ("samples fail", Faults(most_rows=0), "sampled", BROKE, "CUDA runtime error"),
    ("long contexts alone", Faults(wrong_at=5, prompt_tokens=2000), "exact-16", VERIFIED, "256 tokens"),
    ("long contexts", Faults(wrong_at=5, prompt_tokens=2000), "long", BROKE, "the limit is 4000: other tokens"),
    (
        *("the engine takes shorter ones than the model", Faults(most_prompt_tokens=2500), "long", VERIFIED),
        "longer ones are refused: request refused: max_num_tokens",
    ),
    ("no long one is taken", Faults(most_prompt_tokens=300), "long", BROKE, "max_num_tokens; the service's limit is"),
    ("no limit is known", Faults(hides_limit=True), "long", NOT_APPLICABLE, "does not name its longest sequence"),
    ("sequences of clients that left stay", Faults(keeps_sequences=True), "cancels", BROKE, "16 sequences still run"),
    ("stop words are ignored", Faults(ignores_stop_words=True), "stop-words", BROKE, "(length)"),
    ("stop words are cut", Faults(keeps_stop_words=False), "stop-words", BROKE, "does not end at the stop word"),
]


@pytest.mark.parametrize(
    ("faults", "name", "outcome", "says"), [row[1:] for row in TABLE], ids=[f"{row[0]}: {row[2]}" for row in TABLE]
)
async def test_a_broken_promise(
    faults: Faults, name: str, outcome: CaseOutcome, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if faults.hangs:
        monkeypatch.setattr(subject, "ANSWER_SECONDS", 0.01)
    found = await run(name, faults)
    assert (found.outcome, says in found.detail) == (outcome, True), found.detail
    assert bool(found.evidence) == (outcome is BROKE)


async def test_the_llm_api_may_ignore_seeds_as_its_older_versions_do() -> None:
    found = await run("sampled", Faults(ignores_seeds=True), "LLMAPI")
    assert (found.outcome, "17599" in found.detail, len(found.evidence)) == (NOT_APPLICABLE, True, 4)
    assert (await run("sampled", Faults(ignores_temperature=True), "LLMAPI")).outcome is BROKE


async def test_the_evidence_is_short_and_whole() -> None:
    first = (await run("exact-1", WRONG_5)).evidence[0]
    assert (first["prompt"], first["firstDifference"], first["got"]["ids"][0]) == ("def fibonacci(n):\n", 5, WRONG)
    assert first["expected"]["ids"][0] != WRONG
    assert first["expected"]["ids"][1:] == first["got"]["ids"][1:]
    assert first["samples"] == {"reached": 32, "expected": 32, "got": 0}
    assert first["expected"]["text"] != first["got"]["text"]
    assert len(first["got"]["text"]) <= 60


async def test_a_long_prompt_is_shown_by_its_end() -> None:
    found = await run("long", WRONG_5)
    assert len(found.evidence[0]["prompt"]) < 300
    assert found.evidence[0]["prompt"].startswith("[15")


async def test_figures() -> None:
    assert (await run("exact-4")).figures == {
        "tokens": 64,
        "nearTies": 0,
        "draftTokens": 64,
        "meanAcceptedLength": 1 + 32 / 8,
    }


ALONE = [
    # case, outcome, what its detail holds
    ("exact-1", NOT_APPLICABLE, "it cannot"),
    ("exact-4", VERIFIED, "as one row at a time (there is no target alone to ask)"),
]


@pytest.mark.parametrize(("name", "outcome", "says"), ALONE)
async def test_without_the_target_alone_rows_are_compared_with_one(
    name: str, outcome: CaseOutcome, says: str
) -> None:
    found = await run(name, alone=False)
    assert (found.outcome, says in found.detail) == (outcome, True)


async def test_another_service_may_run_the_target_alone() -> None:
    one, other = Server(WRONG_5, "LLMAPI"), Server()
    tried = one.subject()
    tried.alone = Alone(other, None)  # type: ignore[arg-type]  # a fake
    assert (await CASES["exact-1"](tried)).outcome is BROKE
    assert other.asked > 0


async def test_the_target_alone_is_asked_once_for_each_prompt() -> None:
    server = Server()
    tried = server.subject()
    await CASES["exact-1"](tried)
    before = server.asked
    await CASES["exact-4"](tried)
    assert server.asked == before + 4


async def test_a_soak_repeats_the_mix_and_says_when_it_broke() -> None:
    looks: list[int] = []

    async def look() -> None:
        looks.append(1)

    for faults, outcome in ((Faults(), VERIFIED), (WRONG_5, BROKE)):
        looks.clear()
        found = await soak.soak(Server(faults).subject(), 0.005, look, lambda _: None)
        assert found.outcome is outcome
        assert found.figures["rounds"] == len(looks) > 0
        assert len(found.evidence) <= soak.MOST_EVIDENCE
        assert all(each["minute"] >= 0 for each in found.evidence)


IDS = (1, 2, 3)
TIES = [
    # samples of the target alone, gap in logits, near, why
    ([IDS] * 32, None, False, "the other token never came"),
    ([IDS] * 16 + [(1, 2, 9)] * 16, 0.0, True, "as often as the expected one"),
    ([IDS] * 4 + [(1, 2, 9)] * 28, -0.243, True, "more often: rounding decides"),
    ([IDS] * 28 + [(1, 2, 9)] * 4, 0.243, True, "just within"),
    ([IDS] * 29 + [(1, 2, 9)] * 3, 0.284, False, "just beyond"),
    ([IDS] * 28 + [(1, 2)] * 4, None, False, "an end is another token than that which came"),
    ([IDS] * 4 + [(1, 2, 9)] * 3 + [(8, 8, 8)] * 25, None, False, "too few reach the position"),
]


@pytest.mark.parametrize(("samples", "gap", "near", "why"), TIES, ids=[row[3] for row in TIES])
def test_near_ties(samples: list[tuple[int, ...]], gap: float | None, near: bool, why: str) -> None:
    found = tie(IDS, (1, 2, 9), 2, samples)
    assert found.near is near, why
    assert found.gap == (None if gap is None else pytest.approx(gap, abs=1e-3))


def test_an_end_counts_as_a_token() -> None:
    assert tie(IDS, (1, 2), 2, [(1, 2)] * 8 + [IDS] * 8) == Tie(8, 8, 16)


def test_the_temperature_parts_what_is_within_from_what_is_beyond() -> None:
    assert TIE_TEMPERATURE < EPSILON


async def test_requests_of_a_case_are_sent_at_once() -> None:
    server, most = Server(), 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, server.running)
            await asyncio.sleep(0)

    watching = asyncio.ensure_future(watch())
    await CASES["exact-16"](server.subject())
    watching.cancel()
    assert most == 16
