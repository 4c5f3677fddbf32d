import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from reference_engine import blas, engine, layout, weights
from reference_engine import config as model_config
from reference_engine.config import CheckpointError
from unit.reference_engine import tiny_llama

ROPES: list[tuple[str, dict[str, Any], float, str]] = [
    ("transformers 4", {"rope_theta": 500.0, "rope_scaling": None}, 500.0, "default"),
    (
        "transformers 5",
        {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 7.0}},
        7.0,
        "default",
    ),
    ("neither: the default of both", {"rope_theta": None}, 10000.0, "default"),
    ("linear, the old key", {"rope_scaling": {"type": "linear", "factor": 2.0}}, 10000.0, "linear"),
]


@pytest.mark.parametrize(("reason", "changes", "theta", "kind"), ROPES, ids=[row[0] for row in ROPES])
def test_rope_is_read_as_written(reason: str, changes: dict[str, Any], theta: float, kind: str) -> None:
    config = model_config.parse({**tiny_llama.CONFIG, **changes})
    assert (config.rope_theta, config.rope_scaling.kind) == (theta, kind)


def transformers_frequency(i: int, scaling: dict[str, Any]) -> float:
    """Frequency of the i-th pair of a head of 16, as modeling_rope_utils defines it."""
    frequency = float(1 / 10000.0 ** (2 * i / 16))
    if scaling["rope_type"] == "linear":
        return frequency / float(scaling["factor"])
    old, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    wavelength = 2 * np.pi / frequency
    if wavelength < old / high:
        return frequency
    if wavelength > old / low:
        return float(frequency / factor)
    smooth = (old / wavelength - low) / (high - low)
    return float((1 - smooth) * frequency / factor + smooth * frequency)


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
SCALINGS: list[dict[str, Any]] = [{"rope_type": "linear", "factor": 4.0}, {"rope_type": "llama3", **LLAMA3}]


@pytest.mark.parametrize(
    "scaling", [{"rope_type": "linear", "factor": 1.0}, *SCALINGS], ids=["none", "linear", "llama3"]
)
def test_rotary_angles_are_transformers(scaling: dict[str, Any]) -> None:
    config = model_config.parse({**tiny_llama.CONFIG, "rope_scaling": scaling})
    rotation = layout.rotation(config, 50)
    for position, i in [(0, 3), (1, 0), (7, 2), (49, 1), (49, 4), (49, 7)]:
        expected = np.exp(1j * position * transformers_frequency(i, scaling))
        assert rotation[position, i] == pytest.approx(expected, abs=1e-6)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("another architecture", {"model_type": "gpt2"}, "model_type is 'gpt2': the reference engine runs 'llama'"),
    ("another activation", {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ("biases", {"attention_bias": True}, "attention_bias is true"),
    ("heads that do not divide", {"num_key_value_heads": 3}, "4 heads of 16 over 3 key-value heads"),
    ("yarn", {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "rope_type is 'yarn'"),
    ("a shape that differs from the file's", {"vocab_size": 98}, "config.json says (98, 48)"),
    ("a layer more than the file has", {"num_hidden_layers": 3}, "lacks the tensor model.layers.2."),
]


@pytest.mark.parametrize(("reason", "changes", "message"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_cannot_be_served_is_refused(reason: str, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    tiny_llama.write(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**tiny_llama.CONFIG, **changes}))
    with pytest.raises(CheckpointError) as error:
        engine.load(engine.Settings(tmp_path))
    assert message in str(error.value)


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"cannot read .*config\.json"):
        engine.load(engine.Settings(tmp_path))
    tiny_llama.write(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0 not a header")
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged"):
        engine.load(engine.Settings(tmp_path))
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"cannot read .*model\.safetensors"):
        engine.load(engine.Settings(tmp_path))


def test_sharded_files_are_read(tmp_path: Path) -> None:
    values = tiny_llama.tensors(tiny_llama.CONFIG)
    halves = [dict(list(values.items())[::2]), dict(list(values.items())[1::2])]
    names: dict[str, str] = {}
    for i, half in enumerate(halves):
        save_file(half, tmp_path / f"part{i}.safetensors")
        names |= dict.fromkeys(half, f"part{i}.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    read = weights.read(tmp_path, model_config.parse(tiny_llama.CONFIG))
    np.testing.assert_array_equal(read.lm_head, values["lm_head.weight"])


STORED = [
    ("F32", np.array([1.5, -2.0], np.float32).tobytes()),
    ("F16", np.array([1.5, -2.0], np.float16).tobytes()),
    ("BF16", b"\xc0\x3f\x00\xc0"),  # 0x3fc0, 0xc000
]


@pytest.mark.parametrize(("kind", "data"), STORED)
def test_stored_types_become_float32(kind: str, data: bytes) -> None:
    array = weights.to_float32("x", {"dtype": kind, "shape": [2, 1], "data": data})
    assert array.dtype == np.float32
    assert array.tolist() == [[1.5], [-2.0]]


def test_other_types_are_refused() -> None:
    with pytest.raises(CheckpointError, match="x is stored as F8_E4M3"):
        weights.to_float32("x", {"dtype": "F8_E4M3", "shape": [1], "data": b"\0"})


PARAMETERS = [
    ("no path", {}, "model_path is missing"),
    ("not a number", {"model_path": "x", "max_num_tokens": "many"}, "max_num_tokens is 'many'"),
    ("zero sequences", {"model_path": "x", "max_num_sequences": "0"}, "max_num_sequences is '0'"),
    ("a cache of no bytes", {"model_path": "x", "kv_cache_bytes": "0"}, "kv_cache_bytes is '0'"),
    ("no GPU's index", {"model_path": "x", "gpu_device_ids": "0,x"}, "gpu_device_ids is '0,x': set it to different"),
    ("a GPU twice", {"model_path": "x", "gpu_device_ids": "1,1"}, "gpu_device_ids is '1,1': set it to different"),
    ("numpy on two GPUs", {"model_path": "x", "gpu_device_ids": "0,1"}, "write backend torch, or one GPU"),
    ("no backend's name", {"model_path": "x", "backend": "jax"}, "backend is 'jax': set it to numpy or torch"),
]


@pytest.mark.parametrize(("reason", "parameters", "message"), PARAMETERS, ids=[row[0] for row in PARAMETERS])
def test_wrong_parameters_are_refused(reason: str, parameters: dict[str, str], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        engine.Settings.parse(parameters)


def test_the_gpu_is_read() -> None:
    settings = engine.Settings.parse({"model_path": "x", "backend": "torch", "gpu_device_ids": "1"})
    assert (settings.backend, settings.gpu_device_ids) == ("torch", (1,))
    split = engine.Settings.parse({"model_path": "x", "backend": "torch", "gpu_device_ids": "2,3"})
    assert split.gpu_device_ids == (2, 3)
    assert engine.Settings.parse({"model_path": "x", "gpu_device_ids": "0"}).gpu_device_ids == (0,)


def test_the_cache_is_bounded(tmp_path: Path) -> None:
    tiny_llama.write(tmp_path)
    slot = 2 * 2 * 256 * 2 * 16 * 4
    scheduler = engine.load(engine.Settings(tmp_path, kv_cache_bytes=3 * slot + 1))
    assert scheduler.statistics.slots == 3
    with pytest.raises(CheckpointError, match="kv_cache_bytes is 1, one sequence of 256 tokens takes"):
        engine.load(engine.Settings(tmp_path, kv_cache_bytes=1))


CORES = [
    ("AVX-512", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2", "fma"}, "SkylakeX"),
    ("half of AVX-512 (Knights Landing)", {"avx512f", "avx512cd", "avx2", "fma"}, "Haswell"),
    ("no AVX2, or no x86", {"sse2"}, ""),
]


@pytest.mark.parametrize(("reason", "flags", "core"), CORES, ids=[row[0] for row in CORES])
def test_kernels_fit_the_processor(reason: str, flags: set[str], core: str) -> None:
    assert blas.best_core(flags) == core
