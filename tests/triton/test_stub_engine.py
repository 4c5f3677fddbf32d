"""The benchmark's stub engine on the real server: tokens, costs by its meter, calls that are stopped or refused."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from bench.bls import stub, tokens
from bench.bls.in_flight import Costs, StepLimits
from bench.bls.stub import Meter, Stub
from triton.engine_client import TRUE, Array, Client, Response, open_client
from triton.harness import TritonServer

pytestmark = pytest.mark.nightly

COSTS = Costs(2.0, per_sequence=0.05, per_draft_token=0.5, per_prefill_token=0.01)
SLOW = Costs(100.0)
ALPHA = 0.7
PROMPT = 64
NARROW = 140  # tokens of a step
Rows = list[list[int]]


class Stubs:
    """A server with stub engines, and their meters."""

    def __init__(self, url: str, client: Client, meters: dict[str, Meter]) -> None:
        self.url, self.client, self._meters = url, client, meters

    def call(self, model: str, rows: Rows, output_lens: list[int], drafted: Array | None = None) -> Response:
        return next(self.client.send(model, inputs(rows, output_lens, drafted)).responses())

    def milliseconds(self, model: str) -> float:
        return self._meters[model].read()[0] * 1e3

    def steps(self, model: str) -> int:
        return self._meters[model].read()[1]


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stubs]:
    folder = tmp_path_factory.mktemp("stubs")
    library, models = stub.build(), folder / "models"
    device = folder / "device"
    made = {
        "target": Stub("target", COSTS, (ALPHA,), folder / "target.meter"),
        "draft": Stub("draft", COSTS, (ALPHA,), folder / "draft.meter"),
        "slow": Stub("target", SLOW, (ALPHA,), folder / "slow.meter", device),
        "slow_too": Stub("draft", SLOW, (ALPHA,), folder / "slow_too.meter", device),
        "small": Stub("target", COSTS, (ALPHA,), folder / "small.meter", limits=StepLimits(rows=2)),
        "narrow": Stub("target", COSTS, (ALPHA,), folder / "narrow.meter", limits=StepLimits(tokens=NARROW)),
        "chunks": Stub("target", COSTS, (ALPHA,), folder / "chunks.meter", limits=StepLimits(None, NARROW, True)),
        stub.behind("collected"): Stub("draft", COSTS, (ALPHA,), folder / "collected.meter", decoupled=True),
    }
    for name, each in made.items():
        stub.install(models, name, each, library)
    stub.collect(models, "collected")
    with TritonServer(models) as server, open_client(server.grpc_url) as client:
        yield Stubs(server.grpc_url, client, {name: Meter(each.meter) for name, each in made.items()})


def prompts(first: int, rows: int, length: int = PROMPT) -> Rows:
    """Prompts that no other test sends: `first` differs."""
    made: Rows = (first * 1000 + np.arange(rows)[:, None] * 7 + np.arange(length) * 3 + 1).tolist()
    return made


def inputs(rows: Rows, output_lens: list[int], drafted: Array | None = None) -> dict[str, Array]:
    longest = max(map(len, rows))
    tensors = {
        "input_ids": np.array([row + [0] * (longest - len(row)) for row in rows], np.int32),
        "input_lengths": np.array([[len(row)] for row in rows], np.int32),
        "request_output_len": np.array(output_lens, np.int32)[:, None],
    }
    return tensors if drafted is None else tensors | {"draft_input_ids": drafted.astype(np.int32)}


def true_ids(rows: Rows, count: int) -> tokens.Ids:
    positions = np.array([[len(row)] for row in rows]) + np.arange(count)
    return tokens.true_tokens(keys(rows), positions)


def keys(rows: Rows) -> tokens.U64:
    return tokens.keys(np.array([row[: tokens.KEY_TOKENS] for row in rows], np.int32))


def test_the_target_makes_the_true_tokens_and_the_draft_those_that_agree(stubs: Stubs) -> None:
    rows = prompts(1, 40)
    true = true_ids(rows, 9)
    made = {model: stubs.call(model, rows, [9] * 40) for model in ("target", "draft")}
    assert made["target"]["output_ids"][:, 0].tolist() == true.tolist()
    positions = PROMPT + np.zeros((40, 1), np.int64) + np.arange(9)
    agreed = tokens.agrees(keys(rows), positions, np.full(40, ALPHA))
    assert ((made["draft"]["output_ids"][:, 0] == true) == agreed).all()
    assert agreed.any()
    assert not agreed.all()


@pytest.mark.parametrize(("rows", "k"), [(1, 4), (5, 1), (32, 8)])
def test_speculation_gives_the_targets_tokens(stubs: Stubs, rows: int, k: int) -> None:
    """Draft and verify like a loop would, rows of unequal lengths in one call: the target's own tokens."""
    sequences = prompts(10 + k, rows)
    wanted, accepted = true_ids(sequences, 100), 0
    while min(map(len, sequences)) < PROMPT + 40:
        proposal = stubs.call("draft", sequences, [k] * rows)["output_ids"][:, 0]
        answer = stubs.call("target", sequences, [k + 1] * rows, proposal)
        counts = answer["sequence_length"][:, 0].tolist()
        for sequence, row, count in zip(sequences, answer["output_ids"][:, 0], counts, strict=True):
            sequence.extend(row[:count].tolist())
            accepted += count - 1
    assert accepted, "some drafts are accepted"
    for sequence, row in zip(sequences, wanted, strict=True):
        assert sequence[PROMPT : PROMPT + 40] == row[:40].tolist()


def test_made_up_draft_tokens_change_nothing(stubs: Stubs) -> None:
    rows = prompts(20, 1)
    padded = np.concatenate([true_ids(rows, 2), [[1, 1]]], 1)
    assert stubs.call("target", rows, [5], padded)["sequence_length"].tolist() == [[3]]
    assert stubs.call("target", rows, [2], padded)["sequence_length"].tolist() == [[2]], (
        "request_output_len bounds it"
    )


# prompts, request_output_len, draft tokens, milliseconds of all steps together, why. A step is 2 ms, 0.05 a sequence.
CALLS = [
    (prompts(30, 1), [1], 0, 2.05 + 0.63, "63 tokens are prefilled; the last is the step's own"),
    (prompts(30, 1), [1], 0, 2.05 + 0.31, "the last token is computed again, with its whole block"),
    (prompts(30, 1, 65), [1], 0, 2.05, "two full blocks are cached"),
    (prompts(31, 3), [1, 1, 1], 0, 2.15 + 3 * 0.63, "sequences cost time"),
    (prompts(31, 2, 65), [1, 3], 0, 2.1 + 2.05 + 2.05, "the shorter row leaves"),
    (prompts(30, 2, 65), [4, 4], 3, 2.1 + 6 * 0.5 + 0.64, "a verification is one step; half of it is new"),
]


def test_calls_cost_what_the_model_says(stubs: Stubs) -> None:
    for rows, output_lens, k, milliseconds, why in CALLS:
        before = stubs.milliseconds("target")
        stubs.call("target", rows, output_lens, np.ones((len(rows), k)) if k else None)
        assert stubs.milliseconds("target") - before == pytest.approx(milliseconds), why


# request_output_len of five rows, draft tokens, milliseconds of each step, why: prompts are cached, 2 rows a step
IN_TURN = [
    ([1] * 5, 0, [2.1, 2.1, 2.05], "those that came last wait for places"),
    ([3, 1, 2, 1, 1], 0, [2.1] * 4, "a place that becomes free is taken at once"),
    ([2] * 5, 1, [3.1, 3.1, 2.55], "so it is with verifications"),
]


def test_an_engine_takes_as_many_rows_into_a_step_as_its_batch(stubs: Stubs) -> None:
    rows = prompts(70, 5, 65)
    stubs.call("small", rows, [1] * 5)
    for lens, k, each, why in IN_TURN:
        before, steps = stubs.milliseconds("small"), stubs.steps("small")
        answer = stubs.call("small", rows, lens, np.ones((5, k)) if k else None)
        assert stubs.steps("small") - steps == len(each), why
        assert stubs.milliseconds("small") - before == pytest.approx(sum(each)), why
        assert answer["output_ids"][:, 0, 0].tolist() == true_ids(rows, 1)[:, 0].tolist(), "rows keep their order"


# model, context's tokens, request_output_len of three rows, draft tokens, milliseconds of each step, why: all but the
# last token of each context is cached, and a step takes 140 tokens
FITTING = [
    ("narrow", 65, [1] * 3, 0, [2.1, 2.05], "two contexts of 65 tokens fit, reused or not"),
    ("narrow", 65, [1] * 3, 5, [2.1 + 5.0, 2.05 + 2.5], "with five draft tokens each"),
    ("narrow", 65, [1] * 3, 6, [2.05 + 3.0] * 3, "not with six"),
    ("narrow", 65, [3, 1, 1], 0, [2.1, 2.1, 2.05], "a token of one that generates leaves room for another"),
    ("chunks", 65, [1] * 3, 0, [2.1, 2.05], "a piece shorter than a block is none"),
    ("chunks", 65, [1] * 3, 6, [2.1 + 3.0, 2.05 + 3.0], "draft tokens of the second go, unseen"),
]


def test_a_step_takes_as_many_tokens_as_fit(stubs: Stubs) -> None:
    rows = prompts(80, 3, 65)
    for model in ("narrow", "chunks"):
        stubs.call(model, rows, [1] * 3)
    for model, length, lens, k, each, why in FITTING:
        before, steps = stubs.milliseconds(model), stubs.steps(model)
        stubs.call(model, [row[:length] for row in rows], lens, np.ones((3, k)) if k else None)
        assert stubs.steps(model) - steps == len(each), why
        assert stubs.milliseconds(model) - before == pytest.approx(sum(each)), why


def test_dropped_draft_tokens_look_like_the_end_of_the_text(stubs: Stubs) -> None:
    """Fewer tokens than all kept ones and the target's own: why chunked context stays off for targets."""
    rows = prompts(82, 3, 65)
    answer = stubs.call("chunks", rows, [7] * 3, true_ids(rows, 6))
    assert sorted(answer["sequence_length"].ravel().tolist()) == [1, 7, 7]


def test_a_context_that_never_fits_is_refused(stubs: Stubs) -> None:
    rows = prompts(84, 1, NARROW)
    with pytest.raises(InferenceServerException, match="more than max_num_tokens"):
        stubs.call("narrow", rows, [2], np.ones((1, 1)))
    assert stubs.call("narrow", rows, [1])["sequence_length"].tolist() == [[1]]


def test_short_prompts_are_refused(stubs: Stubs) -> None:
    with pytest.raises(InferenceServerException, match="at least 16 tokens"):
        stubs.call("target", prompts(40, 1, 8), [1])
    assert stubs.call("target", prompts(40, 1), [1])["sequence_length"].tolist() == [[1]]


def test_a_call_that_is_stopped_ends_without_tokens(stubs: Stubs) -> None:
    before = stubs.steps("slow")
    running = stubs.client.send("slow", inputs(prompts(50, 1), [100_000]), request_id="one")
    while stubs.steps("slow") == before:
        time.sleep(0.01)
    one = np.ones((1, 1), np.int32)
    required = dict.fromkeys(("input_ids", "input_lengths", "request_output_len"), one)
    with open_client(stubs.url) as other:
        assert list(other.send("slow", {**required, "stop": TRUE}, request_id="one").responses()) == []
    assert list(running.responses()) == []


def test_a_shared_device_serves_one_step_at_a_time(stubs: Stubs) -> None:
    begun = time.monotonic()
    calls = [stubs.client.send(model, inputs(prompts(60, 1), [2])) for model in ("slow", "slow_too")]
    for call in calls:
        assert len(call.tokens()) == 2
    assert time.monotonic() - begun > 4 * 0.1, "four steps of 100 ms, one after the other"


def test_an_engine_without_settings_says_what_is_missing(tmp_path: Path) -> None:
    library = stub.build()
    stub.install(tmp_path / "models", "target", Stub("target", COSTS, (), tmp_path / "meter"), library)
    with pytest.raises(RuntimeError, match="role, meter, acceptance and fixed have to be given"):
        TritonServer(tmp_path / "models").start()


def test_rows_that_are_collected_are_those_of_one_answer(stubs: Stubs) -> None:
    """Of a decoupled engine, which answers each row by itself."""
    rows, lens = prompts(90, 3), [4, 2, 3]
    collected, at_once = (stubs.call(name, rows, lens) for name in ("collected_collector", "draft"))
    assert len(list(stubs.client.send(stub.behind("collected"), inputs(rows, lens)).responses())) == 3
    for name in ("output_ids", "sequence_length"):
        np.testing.assert_array_equal(collected[name], at_once[name])


def test_a_collector_has_the_name_of_its_engine(tmp_path: Path) -> None:
    made = Stub("draft", COSTS, (ALPHA,), tmp_path / "meter", decoupled=True)
    stub.install(tmp_path / "models", stub.behind("some"), made, stub.build())
    stub.collect(tmp_path / "models", "some")
    misnamed = (tmp_path / "models" / "some_collector").rename(tmp_path / "models" / "rows")
    config = misnamed / "config.pbtxt"
    config.write_text(config.read_text().replace("some_collector", "rows"))
    with pytest.raises(RuntimeError, match="rows: a model of this backend is named X_collector, and calls X_engine"):
        TritonServer(tmp_path / "models").start()


def test_a_call_that_its_engine_refuses_gets_the_engines_error(stubs: Stubs) -> None:
    with pytest.raises(InferenceServerException, match="the stub engine needs prompts of at least 16 tokens"):
        stubs.call("collected_collector", prompts(93, 2, length=8), [2, 2])
    assert stubs.call("collected_collector", prompts(93, 2), [2, 2])["sequence_length"].ravel().tolist() == [2, 2]
