"""The torch backend against transformers' own models, where torch is installed (CI has none: it is large)."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from reference_engine.backend import Segment  # noqa: E402
from reference_engine.config import CheckpointError  # noqa: E402
from reference_engine.engine import Settings, load  # noqa: E402
from reference_engine.request import Output, Request  # noqa: E402
from reference_engine.sampling import SamplingParams  # noqa: E402
from reference_engine.scheduler import Capacity, Scheduler  # noqa: E402
from reference_engine.torch_backend import attention, checkpoints, loading  # noqa: E402
from reference_engine.torch_backend.loading import Sizes  # noqa: E402
from support.reference_engine import run  # noqa: E402
from unit.reference_engine import tiny_llama  # noqa: E402
from unit.torch_backend.models import PAIR, VOCABULARY, rope, stock  # noqa: E402

Ids = npt.NDArray[np.int32]
TOLERANCE = 1e-4  # absolute, float32


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def greedy(scheduler: Scheduler, request: Request) -> Output:
    outputs: list[Output] = []
    scheduler.submit(request, outputs.append)
    while not scheduler.idle:
        scheduler.step()
    return outputs[-1]


KINDS: list[tuple[str, dict[str, Any]]] = [
    *((kind, {}) for kind in checkpoints.TRIED),
    *(("llama", {"rope_parameters": rope(kind)}) for kind in checkpoints.TRIED_ROPE),
    ("qwen3", {"rope_parameters": rope("yarn")}),  # as its card says for long texts
]


@pytest.mark.parametrize(("kind", "values"), KINDS)
def test_logits_in_pieces_are_transformers_own(kind: str, values: dict[str, Any]) -> None:
    module = stock(kind, **values).eval()
    ids = np.random.default_rng(1).integers(3, VOCABULARY, (2, 60)).astype(np.int32)
    with torch.no_grad():
        expected = module(input_ids=torch.from_numpy(ids.astype(np.int64)), use_cache=False).logits.numpy()
    assert np.abs(expected).max() > 0.1, "flat logits show nothing"
    module.set_attn_implementation(attention.NAME)
    model = loading.build(module, Sizes(3, 64, 128), compiled=False)
    pieces = [(0, 0, 33), (1, 0, 7), (0, 33, 1), (1, 7, 5), (0, 34, 26), (1, 12, 48)]
    for first, second in zip(pieces[::2], pieces[1::2], strict=True):
        batch = [Segment(row, start, ids[row, start : start + count], count) for row, start, count in (first, second)]
        logits = model.forward(batch).values.numpy()
        wanted = [expected[row, start : start + count] for row, start, count in (first, second)]
        np.testing.assert_allclose(logits[: first[2] + second[2]], np.concatenate(wanted), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("role", ["target", "draft"])
def test_the_pair_writes_the_golden_text(role: str) -> None:
    golden = np.load(PAIR / "golden.npz")
    scheduler = load(Settings(PAIR / role, max_num_sequences=2, max_seq_len=400, backend="torch"))
    ids, expected = golden["prompt_2"], golden[f"{role}_greedy_2"][:16].tolist()
    assert greedy(scheduler, Request(ids, len(expected))).tokens == expected
    draft = np.array([*expected[:3], expected[3] + 1], np.int32)
    verified = greedy(scheduler, Request(ids, 5, draft_ids=draft))
    assert verified.tokens == expected[:4]
    assert (verified.stats.accepted_draft_tokens, verified.stats.reused_tokens) == (3, len(ids) - 1)


@pytest.mark.parametrize(
    "sampling", [SamplingParams(), SamplingParams(top_p=0.9, temperature=1.3, seed=3)], ids=["greedy", "sampled"]
)
def test_tokens_log_probs_and_logits_are_the_numpy_backend_s(tmp_path: Path, sampling: SamplingParams) -> None:
    folder = tiny_llama.write(tmp_path)
    request = Request(np.arange(3, 40, dtype=np.int32), 8, sampling=sampling, log_probs=True, logits=True)
    ours, numpys = (
        greedy(load(Settings(folder, max_num_sequences=2, backend=backend)), request)
        for backend in ("torch", "numpy")
    )
    assert ours.tokens == numpys.tokens
    np.testing.assert_allclose(ours.log_probs, numpys.log_probs, atol=TOLERANCE)
    np.testing.assert_allclose(ours.logits, numpys.logits, atol=TOLERANCE)


def test_passes_given_ahead_yield_what_passes_one_by_one_do(monkeypatch: pytest.MonkeyPatch) -> None:
    model = loading.build(_slotted("llama"), Sizes(4, 64, 64), compiled=False)
    given: list[int] = []
    forward = model.forward

    def counted(segments: Sequence[Segment]) -> Any:
        given.append(sum(int((each.tokens < 0).sum()) for each in segments))
        return forward(segments)

    monkeypatch.setattr(model, "forward", counted)
    requests = [Request(np.arange(3 + i, 12, dtype=np.int32), 6 + i) for i in range(4)]
    ahead = run(Scheduler(model, Capacity(64, 4, 64), VOCABULARY), *requests)
    assert given == [0, 4, 4, 4, 4, 4, 3, 2, 1]
    monkeypatch.setattr(model, "feeds", lambda choices: False)
    single = run(Scheduler(model, Capacity(64, 4, 64), VOCABULARY), *requests)
    assert [output.tokens for [output] in ahead] == [output.tokens for [output] in single]
    assert given[9:] == [0] * 9


def test_a_prefix_is_copied_to_another_slot() -> None:
    model = loading.build(_slotted("llama"), Sizes(3, 64, 64), compiled=False)
    ids = np.arange(3, 23, dtype=np.int32)
    whole = model.forward([Segment(0, 0, ids, 1)]).values[0].clone()
    model.copy_kv(0, 2, 19)
    again = model.forward([Segment(2, 19, ids[19:], 1)]).values[0]
    np.testing.assert_allclose(again.numpy(), whole.numpy(), atol=TOLERANCE)


def test_padding_touches_no_slot() -> None:
    model = loading.build(_slotted("llama"), Sizes(2, 64, 64), compiled=False)
    model.forward([Segment(0, 0, np.arange(3, 12, dtype=np.int32), 1)])
    keys = model.cache.keys[0]
    assert keys[0, :, :9].any()
    assert not keys[0, :, 9:].any()
    assert not keys[1].any()


def _slotted(kind: str) -> Any:
    module = stock(kind)
    module.set_attn_implementation(attention.NAME)
    return module


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (
        "an architecture that was not tried",
        {"model_type": "gpt2"},
        "model_type is 'gpt2': the torch backend was tried",
    ),
    ("quantized weights", {"quantization_config": {"quant_method": "fp8"}}, "is quantized"),
]


@pytest.mark.parametrize(("reason", "changes", "message"), REFUSED, ids=[reason for reason, _, _ in REFUSED])
def test_refused_before_weights_are_read(tmp_path: Path, reason: str, changes: dict[str, Any], message: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**tiny_llama.CONFIG, **changes}))
    with pytest.raises(CheckpointError, match=message):
        load(Settings(tmp_path, backend="torch"))


def test_a_checkpoint_that_lacks_a_tensor_is_refused(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    folder = tiny_llama.write(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"lacks model\.layers\.1\.mlp\.up_proj\.weight"):
        load(Settings(folder, backend="torch"))


def test_too_small_a_cache_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="kv_cache_bytes is 1000"):
        load(Settings(tiny_llama.write(tmp_path), kv_cache_bytes=1000, backend="torch"))


def test_capacity_counts_slots(tmp_path: Path) -> None:
    scheduler = load(Settings(tiny_llama.write(tmp_path), max_num_sequences=3, backend="torch"))
    assert scheduler._capacity == Capacity(512, 3, 256)
