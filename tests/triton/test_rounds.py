"""Rounds that the server makes by itself: what engines are asked, what is drafted ahead, who joins, what fails."""

import re
import time
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from triton import bls_client
from triton.bls_client import Array, Response, stream, unary
from triton.engine_client import Call, Client, open_client
from triton.harness import TritonServer
from triton.stand_in import (
    AHEAD_HANGS,
    COUNT_CALLS,
    COUNT_HUNG,
    COUNT_SEED,
    DRAFT_FAILS,
    DRAFT_HANGS,
    LET_GO,
    SLOW_TOKENS,
    TARGET_FAILS,
)
from triton.waits import eventually

K = 4
_numbers = count(1)
DRAFT, TARGET = "tensorrt_llm_draft_engine", "tensorrt_llm_engine"


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    folder = tmp_path_factory.mktemp("rounds")
    made = bls_client.repository(folder, "stand-in", max_engine_rows=64)
    with TritonServer(made) as server:
        yield server


def prompt(length: int, salt: int = 0) -> list[int]:
    return [300 + (7 * i + 13 * length + salt) % 900 for i in range(length)]


def filled(rows: list[list[int]]) -> Array:
    ids = np.zeros((len(rows), max(map(len, rows))), np.int32)
    for filled_row, row in zip(ids, rows, strict=True):
        filled_row[: len(row)] = row
    return ids


def column(values: list[int], kind: type[np.generic] = np.int32) -> Array:
    return np.array(values, kind)[:, None]


def asked(rows: list[list[int]], seed: int, **more: Array) -> dict[str, Array]:
    """Tensors that both engines get."""
    return {
        "input_ids": filled(rows),
        "input_lengths": column([len(row) for row in rows]),
        "exclude_input_in_output": np.ones((len(rows), 1), np.bool_),
        "end_id": column([1] * len(rows)),
        "seed": column([seed] * len(rows), np.uint64),
        **more,
    }


def a_round(
    rows: list[list[int]], seed: int, k: list[int] | None = None, most: int = 99, sequences: list[int] | None = None
) -> dict[str, Array]:
    return asked(
        rows,
        seed,
        round_sequence=column(sequences or [next(_numbers) for _ in rows], np.int64),
        round_draft_length=column(k or [K] * len(rows)),
        round_most=column([most] * len(rows)),
    )


def tokens(found: Response, row: int, ids: str = "output_ids", counts: str = "sequence_length") -> list[int]:
    made = found[ids].reshape(len(found[counts]), -1)[row]
    return [int(token) for token in made[: int(found[counts].reshape(-1)[row])]]


def drafts(found: Response, row: int) -> list[int]:
    return tokens(found, row, "round_draft_ids", "round_draft_lengths")


def play(engines: TritonServer, tensors: dict[str, Array]) -> Response:
    return unary(engines.grpc_url, tensors, "tensorrt_llm_engine_rounds")


def engine(engines: TritonServer, name: str, row: list[int], length: int, **more: Any) -> list[int]:
    """What an engine answers to one row by itself."""
    tensors = asked([row], 0, request_output_len=column([length]), **more)
    return [int(t) for r in stream(engines.grpc_url, tensors, name) for t in tokens(r, 0)]


def told(engines: TritonServer, question: int, role: str = DRAFT, about: int = 1) -> int:
    """What an engine answers to a question."""
    one = np.ones((1, 1), np.int32)
    tensors = {"input_ids": about * one, "input_lengths": one, "request_output_len": one}
    tensors["seed"] = np.array([[question]], np.uint64)
    return int(stream(engines.grpc_url, tensors, role)[0]["output_ids"].item())


def calls(engines: TritonServer, seed: int, role: str = DRAFT) -> int:
    """How many rows with this seed an engine has had."""
    return told(engines, COUNT_SEED, role, seed)


def hang(engines: TritonServer) -> None:
    """Wait until a draft has hung for a while."""
    eventually(lambda: told(engines, COUNT_HUNG) == 1, "a draft hangs")


def expected(engines: TritonServer, row: list[int], k: int, width: int) -> tuple[list[int], list[int]]:
    """A draft, and what the target makes of it, filled up to `width`."""
    drafted = engine(engines, DRAFT, row, k) if k else []
    padded = drafted + [row[-1]] * (width - len(drafted))
    return drafted, engine(engines, TARGET, row, width + 1, draft_input_ids=np.array([padded], np.int32))


ROUNDS = [
    # lengths of the prompts, draft lengths, reason
    ([9], [4], "a sequence alone"),
    ([9, 30, 17], [4, 4, 4], "prompts of unequal lengths"),
    ([9, 30, 17], [4, 1, 3], "drafts of unequal lengths: made-up tokens fill them up"),
    ([9, 30], [0, 2], "one without a draft"),
]


@pytest.mark.parametrize(("lengths", "k", "reason"), ROUNDS, ids=[reason for *_, reason in ROUNDS])
def test_a_round_is_a_draft_and_its_verification(
    engines: TritonServer, lengths: list[int], k: list[int], reason: str
) -> None:
    rows = [prompt(length, salt) for salt in (0, 5, 9) for length in lengths][: len(lengths)]
    found = play(engines, a_round(rows, seed=1, k=k))
    for i, row in enumerate(rows):
        assert (drafts(found, i), tokens(found, i)) == expected(engines, row, k[i], max(k)), reason
    assert (found["round_group"] > 0).all() and (found["round_members"] == 1).all()
    assert (found["round_target_ns"] > 0).all()


def after(found: Response, rows: list[list[int]]) -> list[list[int]]:
    return [row + tokens(found, i) for i, row in enumerate(rows)]


def test_the_next_round_takes_what_was_drafted_meanwhile(engines: TritonServer) -> None:
    seed, rows = 50_001, [prompt(12), prompt(20)]
    sequences = [next(_numbers) for _ in rows]

    def drafted(rounds: int) -> bool:
        return calls(engines, seed) == 2 * rounds

    for made in range(1, 6):
        found = play(engines, a_round(rows, seed, sequences=sequences))
        for i, row in enumerate(rows):
            assert (drafts(found, i), tokens(found, i)) == expected(engines, row, K, K)
        eventually(partial(drafted, made + 1), "each round is drafted once, the next one too")
        rows = after(found, rows)
    assert calls(engines, seed, TARGET) == 10


CHANGES: list[tuple[str, dict[str, Any], int]] = [
    # what is otherwise than foreseen, and how many more rows are drafted
    ("a shorter draft", {"k": [2]}, 0),
    ("a longer draft, which comes a round later", {"k": [6]}, 0),
    ("another sequence", {"sequences": [next(_numbers)]}, 1),
]


@pytest.mark.parametrize(("what", "change", "more"), CHANGES, ids=[what for what, *_ in CHANGES])
def test_what_comes_otherwise_than_foreseen_is_right_all_the_same(
    engines: TritonServer, what: str, change: dict[str, Any], more: int
) -> None:
    seed, row, sequence = 51_000 + CHANGES.index((what, change, more)), prompt(15), next(_numbers)
    first = play(engines, a_round([row], seed, sequences=[sequence]))
    (row,) = after(first, [row])
    found = play(engines, a_round([row], seed, **{"most": 0, "sequences": [sequence], **change}))
    k = min(K, change.get("k", [K])[0])
    assert (drafts(found, 0), tokens(found, 0)) == expected(engines, row, k, k)
    assert calls(engines, seed) == 2 + more


def test_a_longer_draft_comes_a_round_later_and_none_is_made_in_vain(engines: TritonServer) -> None:
    seed, row, sequence, longer = 51_500, prompt(15), next(_numbers), K + 2
    for asked_for, given in ((K, K), (longer, K), (longer, longer)):
        found = play(engines, a_round([row], seed, sequences=[sequence], k=[asked_for]))
        assert (drafts(found, 0), tokens(found, 0)) == expected(engines, row, given, given)
        (row,) = after(found, [row])
    eventually(lambda: calls(engines, seed) == 4, "each round is drafted once, the next one too")


@pytest.mark.parametrize(("known", "waits"), [(2, False), (3, True)])
def test_a_new_row_among_many_drafts_a_round_later(engines: TritonServer, known: int, waits: bool) -> None:
    seed = 54_000 + known
    rows = [prompt(12 + i) for i in range(known)]
    sequences = [next(_numbers) for _ in range(known + 1)]
    found = play(engines, a_round(rows, seed, sequences=sequences[:-1]))
    rows = [*after(found, rows), prompt(30)]
    first = play(engines, a_round(rows, seed, sequences=sequences))
    assert [len(drafts(first, i)) for i in range(known + 1)] == [K] * known + [0 if waits else K]
    assert tokens(first, known) == expected(engines, rows[-1], 0 if waits else K, K)[1]
    rows = after(first, rows)
    second = play(engines, a_round(rows, seed, sequences=sequences))
    for i, row in enumerate(rows):
        assert (drafts(second, i), tokens(second, i)) == expected(engines, row, K, K)
    made = 2 * known + (known + 1) * 2 + (not waits)
    eventually(lambda: calls(engines, seed) == made, "each row is drafted once a round, the next one too")


def test_other_tokens_than_foreseen_are_drafted_anew(engines: TritonServer) -> None:
    seed, row, sequence = 52_001, prompt(15), next(_numbers)
    play(engines, a_round([row], seed, sequences=[sequence]))
    other = [*row, 301]
    found = play(engines, a_round([other], seed, most=0, sequences=[sequence]))
    assert (drafts(found, 0), tokens(found, 0)) == expected(engines, other, K, K)
    assert calls(engines, seed) == 3


def test_nothing_is_drafted_behind_the_end(engines: TritonServer) -> None:
    """The most tokens that may come, or the text's end."""
    row = prompt(15)
    play(engines, a_round([row], 53_001, most=1))
    play(engines, a_round([row], 53_002, most=0))
    ending = next(p for p in (prompt(9, salt) for salt in range(5000)) if not engine(engines, TARGET, p, 1))
    assert tokens(play(engines, a_round([ending], 53_003)), 0) == []
    assert [calls(engines, seed) for seed in (53_001, 53_002, 53_003)] == [1, 1, 1]


def send(client: Client, engines: TritonServer, tensors: dict[str, Array], request_id: str = "") -> Call:
    return client.send("tensorrt_llm_engine_rounds", tensors, request_id)


def alone(row: list[int], seed: int) -> dict[str, Array]:
    """The target's first token of a new prompt."""
    return asked([row], seed, request_output_len=column([1]))


def test_a_call_of_the_target_joins_the_verification_of_the_round_under_way(engines: TritonServer) -> None:
    """A draft that hangs keeps the round from its verification until it is let go."""
    row, new = prompt(16), prompt(22)
    assert play(engines, alone(new, 54_001))["round_group"].tolist() == [[0]], "nothing is under way"
    right = [expected(engines, row, K, K)[1], expected(engines, new, 0, K)[1]]
    assert len(right[0]) > 1, "something is kept"

    def together() -> bool:
        """Nothing tells when a call has come to wait: a machine that stands still may bring it too late."""
        with open_client(engines.grpc_url) as client:
            round_ = send(client, engines, a_round([row], DRAFT_HANGS, most=0))
            hang(engines)
            joining = send(client, engines, alone(new, 54_001))
            time.sleep(0.3)
            told(engines, LET_GO)
            found = [*round_.responses(), *joining.responses()]
        if found[1]["round_group"].item() == 0:  # it went alone
            return False
        assert found[1]["round_group"].item() == found[0]["round_group"].item()
        assert [each["round_members"].item() for each in found] == [2, 2]
        assert [tokens(each, 0) for each in found] == right
        return True

    assert any(together() for _ in range(3))


@pytest.mark.parametrize(("seed", "message"), [(DRAFT_FAILS, "fails on demand"), (TARGET_FAILS, "fails on demand")])
def test_an_engine_s_error_is_the_round_s(engines: TritonServer, seed: int, message: str) -> None:
    with pytest.raises(InferenceServerException, match=message):
        play(engines, a_round([prompt(15), prompt(9)], seed))
    assert tokens(play(engines, a_round([prompt(15)], 1)), 0), "it goes on"


def stop(client: Client, engines: TritonServer, request_id: str) -> None:
    one = np.ones((1, 1), np.int32)
    tensors = {"input_ids": one, "input_lengths": one, "request_output_len": one, "stop": np.ones((1, 1), np.bool_)}
    list(send(client, engines, tensors, request_id).responses())


def test_a_round_that_hangs_is_stopped_and_holds_up_nobody_who_waits_for_it(engines: TritonServer) -> None:
    new = prompt(22)
    with open_client(engines.grpc_url) as client:
        hung = send(client, engines, a_round([prompt(15)], DRAFT_HANGS), "hung")
        hang(engines)
        joining = send(client, engines, alone(new, 1))
        stop(client, engines, "hung")
        with pytest.raises(InferenceServerException, match="the round was stopped"):
            list(hung.responses())
        (joined,) = joining.responses()
    assert tokens(joined, 0) == engine(engines, TARGET, new, 1)


def test_a_new_prompt_waits_only_for_a_moment_for_a_draft_that_hangs(engines: TritonServer) -> None:
    """It joins the verification that is to follow that."""
    new = prompt(22)
    with open_client(engines.grpc_url) as client:
        hung = send(client, engines, a_round([prompt(15)], DRAFT_HANGS), "hung")
        hang(engines)
        (answer,) = send(client, engines, alone(new, 1)).responses()
        assert told(engines, COUNT_HUNG) == 1, "and still does"
        stop(client, engines, "hung")
        with pytest.raises(InferenceServerException, match="the round was stopped"):
            list(hung.responses())
    assert tokens(answer, 0) == engine(engines, TARGET, new, 1)


def test_who_joined_a_round_is_answered_though_that_is_stopped(engines: TritonServer) -> None:
    """The engine ends all rows of a call that is stopped."""
    new = prompt(22)
    with open_client(engines.grpc_url) as client:
        slow = send(client, engines, a_round([prompt(15)], SLOW_TOKENS, k=[40], most=40), "slow")
        joining = [send(client, engines, alone(new, SLOW_TOKENS)) for _ in range(2)]
        eventually(lambda: calls(engines, SLOW_TOKENS, TARGET) > 0, "it is verified")
        stop(client, engines, "slow")
        list(slow.responses())
        answers = [response for call in joining for response in call.responses()]
    assert [tokens(answer, 0)[:1] for answer in answers] == 2 * [engine(engines, TARGET, new, 1)]


def test_a_draft_ahead_that_hangs_holds_up_no_new_prompt(engines: TritonServer) -> None:
    """Nobody asks for it, so that nobody stops it."""
    row, new, before = prompt(15), prompt(22), calls(engines, DRAFT_HANGS)
    with open_client(engines.grpc_url) as client:
        play(engines, a_round([row], DRAFT_HANGS, k=[0], most=99) | {"round_draft_length": column([0])})
        hung = send(client, engines, a_round([row], DRAFT_HANGS), "hangs")
        eventually(lambda: calls(engines, DRAFT_HANGS) > before, "it is drafted")
        stop(client, engines, "hangs")
        with pytest.raises(InferenceServerException, match="the round was stopped"):
            list(hung.responses())
        (answer,) = send(client, engines, alone(new, 1)).responses()
    assert tokens(answer, 0) == engine(engines, TARGET, new, 1)


def test_a_draft_ahead_that_never_ends_holds_up_no_new_prompt(engines: TritonServer) -> None:
    """Its client has left: no round asks for it, so that nothing stops it, and no verification follows."""
    row, new, sequence, before = prompt(15), prompt(22), next(_numbers), calls(engines, DRAFT_HANGS)
    (row,) = after(play(engines, a_round([row], 1, sequences=[sequence])), [row])
    with open_client(engines.grpc_url) as client:
        # It takes the draft that was made with the other seed: only the one ahead hangs.
        list(send(client, engines, a_round([row], DRAFT_HANGS, sequences=[sequence]), "left").responses())
        (answer,) = send(client, engines, alone(new, 1)).responses()
        eventually(lambda: calls(engines, DRAFT_HANGS) > before, "it is drafted")
        stop(client, engines, "left.ahead")
    assert tokens(answer, 0) == engine(engines, TARGET, new, 1)


def idle(engines: TritonServer) -> bool:
    return not any(told(engines, COUNT_CALLS, role) for role in (TARGET, DRAFT))


def test_a_round_that_is_stopped_ends_the_draft_ahead_that_it_waits_for(engines: TritonServer) -> None:
    row, sequence = prompt(15), next(_numbers)
    (row,) = after(play(engines, a_round([row], AHEAD_HANGS, sequences=[sequence])), [row])
    hang(engines)
    with open_client(engines.grpc_url) as client:
        waits = send(client, engines, a_round([row], 1, sequences=[sequence]), "waits")

        def stopped() -> bool:
            stop(client, engines, "waits")  # which may overtake the round
            return idle(engines)

        eventually(stopped, "both engines are idle")
        with pytest.raises(InferenceServerException, match="the round was stopped"):
            list(waits.responses())


def test_a_draft_ahead_goes_on_for_the_other_round_that_waits_for_it(engines: TritonServer) -> None:
    rows, sequences = [prompt(15), prompt(20)], [next(_numbers), next(_numbers)]
    rows = after(play(engines, a_round(rows, AHEAD_HANGS, sequences=sequences)), rows)
    hang(engines)
    with open_client(engines.grpc_url) as client:
        stopped, waits = (
            send(client, engines, a_round([row], 1, sequences=[sequence], most=0), name)
            for row, sequence, name in zip(rows, sequences, ("stopped", "waits"), strict=True)
        )
        for _ in range(3):  # they may be overtaken
            time.sleep(0.3)
            stop(client, engines, "stopped")
        time.sleep(0.3)
        assert told(engines, COUNT_HUNG) == 1
        told(engines, LET_GO)
        (found,) = waits.responses()
        with pytest.raises(InferenceServerException, match="the round was stopped"):
            list(stopped.responses())
    assert (drafts(found, 0), tokens(found, 0)) == expected(engines, rows[1], K, K)


ODD: list[tuple[str, dict[str, Any], str]] = [
    ("no draft lengths", {"round_draft_length": None}, "a round needs round_draft_length of each row"),
    ("no bound", {"round_most": None}, "a round needs round_most of each row"),
    ("longer than its tokens", {"input_lengths": column([99])}, "longer than input_ids, or empty"),
    ("empty", {"input_lengths": column([0])}, "longer than input_ids, or empty"),
]


@pytest.mark.parametrize(("what", "change", "message"), ODD, ids=[what for what, *_ in ODD])
def test_an_odd_round_is_refused(engines: TritonServer, what: str, change: dict[str, Any], message: str) -> None:
    tensors = {name: value for name, value in (a_round([prompt(15)], 1) | change).items() if value is not None}
    with pytest.raises(InferenceServerException, match=re.escape(message)):
        play(engines, tensors)


def test_rounds_leave_nothing_in_the_server(engines: TritonServer) -> None:
    """Drafts that nobody asks for are forgotten, and answers given back."""

    def kept() -> int:
        for i in range(300):
            play(engines, a_round([prompt(400, i), prompt(500, i)], 1))
        [found] = re.findall(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{engines.pid}/status").read_text())
        return int(found)

    kept(), kept()
    before = kept()
    assert kept() - before < 3_000, "kB"
