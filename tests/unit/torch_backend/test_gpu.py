"""Kernels, compiled layers and CUDA graphs, where there is a GPU (CI has none)."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

from transformers import AutoConfig, AutoModelForCausalLM  # noqa: E402

from reference_engine import sampling as host  # noqa: E402
from reference_engine.backend import Segment  # noqa: E402
from reference_engine.choice import Choice  # noqa: E402
from reference_engine.request import Output, Request  # noqa: E402
from reference_engine.sampling import SamplingParams  # noqa: E402
from reference_engine.scheduler import Capacity, Scheduler  # noqa: E402
from reference_engine.torch_backend import attention, checkpoints, layout, linear, loading, sampling  # noqa: E402
from reference_engine.torch_backend.attention import Pass, Scores  # noqa: E402
from reference_engine.torch_backend.layout import Shape  # noqa: E402
from reference_engine.torch_backend.loading import Sizes  # noqa: E402
from reference_engine.torch_backend.sampling import Chooser  # noqa: E402
from unit.reference_engine.chi_square import RIGHT, deviation  # noqa: E402
from unit.torch_backend.models import rope  # noqa: E402

SLOTS, LONGEST = 8, 2048
HEADS = [(32, 8, 128), (32, 8, 64), (8, 8, 80), (14, 2, 64), (9, 1, 96), (16, 8, 256)]
PASSES: list[tuple[str, list[tuple[int, int, int]], int, float]] = [
    ("one token", [(2, 1000, 1)], 0, 0.0),
    ("a first token", [(2, 0, 1)], 0, 0.0),
    ("a verification", [(2, 1000, 5)], 0, 0.0),
    ("eight tokens of eight lengths", [(i, i * 200 + 3, 1) for i in range(8)], 0, 0.0),
    ("seven verifications", [(i, i * 200 + 3, 5) for i in range(7)], 0, 0.0),
    ("prompts and a verification", [(0, 100, 300), (3, 1900, 5), (5, 0, 70)], 0, 0.0),
    ("a window", [(0, 900, 40), (1, 10, 3)], 100, 0.0),
    ("a cap on scores, and a window", [(0, 900, 40), (1, 10, 1)], 64, 5.0),
]


@pytest.mark.parametrize(("heads", "kv", "width"), HEADS)
@pytest.mark.parametrize(("reason", "spans", "window", "softcap"), PASSES, ids=[each[0] for each in PASSES])
def test_attention_is_the_textbook_s(
    heads: int, kv: int, width: int, reason: str, spans: list[tuple[int, int, int]], window: int, softcap: float
) -> None:
    segments = [Segment(slot, start, np.zeros(count, np.int32), count) for slot, start, count in spans]
    shape = Shape.of(segments)
    where = _pass(shape, segments)
    query, key, value = (_random(shape.tokens, n, width).transpose(0, 1) for n in (heads, kv, kv))
    keys, values = (_random(SLOTS + 1, kv, LONGEST, width) for _ in range(2))
    scores = Scores(width**-0.5, window, softcap)
    exact_keys, exact_values = keys.double(), values.double()
    out = torch.full((shape.tokens, heads, width), torch.nan, dtype=torch.bfloat16, device="cuda")
    attention.launch_store(key, value, keys, values, where)
    attention.launch_attend(query, keys, values, where, scores, out)
    expected = torch.empty(out.shape, dtype=torch.float64, device="cuda")
    attention._store(key.double(), value.double(), exact_keys, exact_values, where)
    attention._attend_by_tile(query.double(), exact_keys, exact_values, where, scores, expected)
    assert torch.equal(keys[:SLOTS].double(), exact_keys[:SLOTS]), reason
    assert torch.equal(values[:SLOTS].double(), exact_values[:SLOTS]), reason
    rows = slice(0, sum(count for _, _, count in spans))
    assert _distance(out[rows], expected[rows]) < 5e-3, reason


def _pass(shape: Shape, segments: list[Segment]) -> Pass:
    array = np.zeros(shape.entries, np.int32)
    layout.Input(array, shape, SLOTS).fill(segments)
    _, positions, slots, tile_row, tile_count, _ = torch.from_numpy(array).cuda().split(list(shape.sizes().values()))
    return Pass(positions, slots, tile_row, tile_count, shape.tile_tokens)


def _random(*shape: int) -> Any:
    return torch.randn(shape, dtype=torch.bfloat16, device="cuda")


def _distance(ours: Any, expected: Any) -> float:
    return float((ours.double() - expected.double()).norm() / expected.double().norm())


@pytest.mark.parametrize("rows", [1, 5, 16, 17])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(("width", "depth"), [(4096, 4096), (1000, 600), (97, 48)])
def test_linear_layers_are_torch_s(rows: int, exact: bool, width: int, depth: int) -> None:
    x, weight, bias = _random(rows, depth), _random(width, depth), _random(width)
    out = linear.linear(x, weight, bias, exact)
    assert out.dtype == (torch.float32 if exact else torch.bfloat16)
    assert _distance(out, x.double() @ weight.double().t() + bias.double()) < (1e-5 if exact else 5e-3)


SAMPLINGS = [
    SamplingParams(top_p=1.0),
    SamplingParams(top_p=0.8),
    SamplingParams(top_k=5),
    SamplingParams(top_k=20, top_p=0.7, temperature=0.6),
    SamplingParams(top_p=0.95, temperature=1.7),
]


@pytest.mark.parametrize("params", SAMPLINGS, ids=str)
def test_draws_have_the_distribution(params: SamplingParams) -> None:
    trials, ids = 4000, np.array([1, 2, 3], np.int32)
    logits = torch.from_numpy(np.random.default_rng(0).standard_normal(500).astype(np.float32) * 2)
    rows = [(i, Choice(Request(ids, 1, sampling=replace(params, seed=i)), ids, 3, 1)) for i in range(trials)]
    chooser, pinned = Chooser(trials, 500, torch.device("cuda")), _pinned(trials)
    tokens = _draw(chooser, logits.expand(trials, -1).cuda(), rows, pinned)
    expected = host.probabilities(host.process(logits.numpy(), params, ids, ()), params)
    assert deviation(Counter(tokens), dict(enumerate(expected))) < RIGHT
    assert _draw(chooser, logits.expand(trials, -1).cuda(), rows[::-1], pinned) == tokens, "whatever the order"


def _pinned(rows: int) -> Any:
    return torch.zeros((rows, sampling.FIELDS), dtype=torch.int64, pin_memory=True)


def _draw(chooser: Chooser, logits: Any, choices: list[tuple[int, Choice]], pinned: Any) -> list[int]:
    chooser.highest(logits)
    assert chooser.chosen[: len(logits)].tolist() == logits.argmax(-1).tolist()
    chooser.draw(choices, pinned)
    tokens: list[int] = chooser.chosen[: len(logits)].tolist()
    return tokens


@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0, 30.0])
def test_a_large_vocabulary_s_draws_are_the_race_s(spread: float) -> None:
    """Rows of all kinds of limits, next to a race in float64 over what those keep; equal logits stay together."""
    vocabulary, rng = 128_256, np.random.default_rng(1)
    logits = (rng.standard_normal((len(SAMPLINGS) * 3, vocabulary)) * spread).astype(np.float32)
    ids = np.array([1, 2, 3], np.int32)
    choices = [
        (row, Choice(Request(ids, 1, sampling=replace(SAMPLINGS[row % len(SAMPLINGS)], seed=row)), ids, row, 1))
        for row in range(len(logits))
    ]
    chooser = Chooser(len(logits), vocabulary, torch.device("cuda"))
    tokens = _draw(chooser, torch.from_numpy(logits).cuda(), choices, _pinned(len(logits)))
    right = [token == _race(logits[row], each) for token, (row, each) in zip(tokens, choices, strict=True)]
    assert sum(right) >= len(right) - 1, "one may hang on the rounding of a sum or of a clock"


def _race(logits: Any, each: Choice) -> int:
    params = each.request.sampling
    weights = np.exp((logits - logits.max()).astype(np.float64) / params.temperature)
    kept = weights >= (np.sort(weights)[-params.top_k] if params.top_k else 0)
    if 0 < params.top_p < 1:
        order = np.argsort(-np.where(kept, weights, 0))
        sums = np.cumsum(np.where(kept, weights, 0)[order])
        kept &= weights >= weights[order[np.searchsorted(sums, params.top_p * sums[-1])]]
    stream = _mixed(_mixed(np.uint64(params.seed) + _GOLDEN) ^ np.uint64(each.length))
    numbers = _mixed(stream + np.arange(len(logits), dtype=np.uint64) * _GOLDEN)
    shares = ((numbers >> np.uint64(40)).astype(np.float64) + 0.5) / 2**24
    return int(np.argmax(np.where(kept, weights / -np.log(shares), -1)))


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mixed(x: Any) -> Any:
    """SplitMix64's finalizer."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _llama(**values: Any) -> Any:
    """A small model of float32; the same one each time."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "llama", vocab_size=1000, hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=8,
        num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.1, **values,
    )  # fmt: skip
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=attention.NAME)


@pytest.mark.parametrize("kind", checkpoints.TRIED_ROPE)
def test_compiled_graphs_compute_what_the_plain_model_does(kind: str) -> None:
    values = {"rope_parameters": rope(kind)}
    models = [
        loading.build(_llama(**values), Sizes(4, 256, 128), compiled=False),
        loading.build(_llama(**values).cuda(), Sizes(4, 256, 128)),
    ]
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 1000, (4, 200)).astype(np.int32)
    done = [0] * 4
    for _ in range(40):
        counts = [min(int(rng.choice([0, 1, 1, 2, 5, 9, 20])), 200 - each) for each in done]
        batch = [Segment(i, done[i], ids[i, done[i] : done[i] + n], n) for i, n in enumerate(counts) if n]
        if not batch:
            continue
        rows = sum(counts)
        expected, ours = (model.forward(batch) for model in models)
        torch.cuda.synchronize()
        np.testing.assert_allclose(ours.values[:rows].cpu().numpy(), expected.values[:rows].numpy(), atol=2e-3)
        assert ours.chosen[:rows].tolist() == ours.values[:rows].argmax(-1).tolist()
        done = [at + count for at, count in zip(done, counts, strict=True)]


@pytest.mark.parametrize("params", [SamplingParams(), SAMPLINGS[4]], ids=["greedy", "sampled"])
def test_a_verification_accepts_what_the_model_alone_draws(params: SamplingParams) -> None:
    model = loading.build(_llama().cuda(), Sizes(8, 256, 128), compiled=False)
    scheduler = Scheduler(model, Capacity(128, 8, 256), 1000)
    prompts = [np.arange(5 + i, 40, dtype=np.int32) for i in range(8)]
    alone = _outputs(scheduler, [Request(ids, 9, sampling=params) for ids in prompts])
    drafts = [np.array(each.tokens[:4], np.int32) for each in alone]
    requests = [Request(ids, 5, draft_ids=draft, sampling=params) for ids, draft in zip(prompts, drafts, strict=True)]
    verified = _outputs(scheduler, requests)
    assert [each.tokens for each in verified] == [each.tokens[:5] for each in alone]
    assert all(each.stats.accepted_draft_tokens == 4 for each in verified)


@pytest.mark.parametrize("params", [SamplingParams(), SAMPLINGS[4]], ids=["greedy", "sampled"])
def test_passes_given_ahead_yield_what_passes_one_by_one_do(
    params: SamplingParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = loading.build(_llama().cuda(), Sizes(8, 256, 128), compiled=False)
    requests = [Request(np.arange(5 + i, 40, dtype=np.int32), 12 + i, sampling=params) for i in range(8)]
    ahead = _outputs(Scheduler(model, Capacity(128, 8, 256), 1000), requests)
    monkeypatch.setattr(model, "feeds", lambda choices: False)
    assert [each.tokens for each in _outputs(Scheduler(model, Capacity(128, 8, 256), 1000), requests)] == [
        each.tokens for each in ahead
    ]


def test_what_the_host_chooses_comes_next_to_what_the_device_does() -> None:
    model = loading.build(_llama().cuda(), Sizes(8, 256, 128), compiled=False)
    scheduler = Scheduler(model, Capacity(128, 8, 256), 1000)
    ids = np.arange(5, 40, dtype=np.int32)
    kinds = [Request(ids, 6), Request(ids, 6, log_probs=True), Request(ids, 6, sampling=SAMPLINGS[2])]
    alone = [_outputs(scheduler, [each])[0].tokens for each in kinds]
    assert [each.tokens for each in _outputs(scheduler, kinds)] == alone
    assert alone[0] == alone[1]


def _outputs(scheduler: Scheduler, requests: list[Request]) -> list[Output]:
    outputs: dict[int, Output] = {}
    for index, request in enumerate(requests):
        scheduler.submit(request, lambda output, index=index: outputs.__setitem__(index, output))  # type: ignore[misc]
    while not scheduler.idle:
        scheduler.step()
    return [outputs[index] for index in range(len(requests))]
