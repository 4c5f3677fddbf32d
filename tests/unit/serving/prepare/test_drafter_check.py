"""What drafts in TensorRT-LLM's engine, by row: names of tensors as they are published, and the verdict."""

import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

from support.serving.model_folders import ModelFolder
from tandem_serving.prepare.preflight import verdict

EAGLE3 = ("midlayer.hidden_norm.weight", "midlayer.self_attn.q_proj.weight", "fc.weight", "d2t", "lm_head.weight")
EAGLE3_LAYERS = ("layers.0.hidden_norm.weight", "layers.1.hidden_norm.weight", "fc.weight", "norm.weight")
EAGLE = (
    "layers.0.self_attn.q_proj.weight",
    "layers.0.post_attention_layernorm.weight",
    "fc.weight",
    "embed_tokens.weight",
)
LLAMA = ("model.layers.0.self_attn.q_proj.weight", "model.norm.weight", "lm_head.weight")
MEDUSA = ("medusa_head.0.0.linear.weight", "medusa_head.0.1.weight")

Plan = dict[str, Any]


def weights(folder: Path, names: tuple[str, ...]) -> None:
    save_file({name: np.zeros((1, 1), np.float16) for name in names}, str(folder / "model.safetensors"))


def pickled(folder: Path, names: tuple[str, ...]) -> None:
    """As torch.save writes them: a zip archive, the tensors' names in a pickle."""
    content = io.BytesIO()
    pickle.dump(dict.fromkeys(names, (1, 1)), content, protocol=2)
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w") as archive:
        archive.writestr("pytorch_model/data.pkl", content.getvalue())


@pytest.fixture
def plan(model_folder: ModelFolder, tmp_path: Path) -> Plan:
    """launch.json's `preflight` part for a target of hidden size 64, in mode LLMAPI."""
    folder = model_folder("target", hidden_size=64, num_hidden_layers=2)
    save_file({"model.embed_tokens.weight": np.zeros((300, 4), np.float16)}, str(folder / "model.safetensors"))
    return {"target": {"path": str(folder)}, "llm_args": {"file": "llm_args.yaml", "engine": "TensorRT-LLM"}}


def pair(plan: Plan, tmp_path: Path, **speculative: object) -> dict[str, str]:
    (tmp_path / "llm_args.yaml").write_text(yaml.safe_dump({"speculative_config": speculative}))
    return {check["type"]: check for check in verdict(plan, tmp_path)["checks"]}["PairCompatible"]


SPECULATORS = {"model_type": "llama", "hidden_size": 64, "vocab_size": 300, "max_position_embeddings": 16}
HEADS: list[tuple[str, tuple[str, ...], dict[str, object], str, str]] = [
    # why, tensors, config.json, reason, part of the message
    ("EAGLE-3", EAGLE3, {"hidden_size": 64}, "HeadsMatch", "the heads are there"),
    ("EAGLE-3 of two layers", EAGLE3_LAYERS, {"hidden_size": 64}, "HeadsMatch", "the heads are there"),
    ("narrow heads of a wide target", EAGLE3, {"hidden_size": 32, "target_hidden_size": 64}, "HeadsMatch", ""),
    (
        "of the speculators library",
        EAGLE3,
        {"vocab_size": None, "target_hidden_size": None, "transformer_layer_config": SPECULATORS},
        "HeadsMatch",
        "the target's 300 words; warning: the heads' context is 16 tokens, the target's 128: longer",
    ),
    (
        "of the speculators library for another",
        EAGLE3,
        {"vocab_size": None, "transformer_layer_config": {**SPECULATORS, "hidden_size": 128}},
        "HeadsNotForTarget",
        "for a target of hidden_size 128, and this one has 64",
    ),
    ("shorter", EAGLE3, {"hidden_size": 64, "max_position_embeddings": 16}, "HeadsMatch", "context is 16 tokens"),
    ("as long", EAGLE3, {"hidden_size": 64, "max_position_embeddings": 128}, "HeadsMatch", "300 words"),
    (
        "EAGLE-1 or 2",
        EAGLE,
        {"hidden_size": 64},
        "HeadsNotForTarget",
        "heads are of EAGLE-1 or 2, not of EAGLE-3",
    ),
    ("a plain Llama", LLAMA, {"hidden_size": 64}, "HeadsNotForTarget", "write speculation.decodingType: DraftTarget"),
    ("Medusa's", MEDUSA, {"hidden_size": 64}, "HeadsNotForTarget", "heads are Medusa's"),
    ("something else", ("x",), {"hidden_size": 64}, "HeadsNotForTarget", "midlayer.hidden_norm.weight"),
    (
        "of a larger target",
        EAGLE3,
        {"hidden_size": 128},
        "HeadsNotForTarget",
        "for a target of hidden_size 128, and this one has 64: name heads trained for it",
    ),
]


@pytest.mark.parametrize("write", [weights, pickled])
@pytest.mark.parametrize(
    ("names", "config", "reason", "message"), [row[1:] for row in HEADS], ids=[row[0] for row in HEADS]
)
def test_heads_for_eagle3(
    plan: Plan,
    tmp_path: Path,
    write: Any,
    names: tuple[str, ...],
    config: dict[str, object],
    reason: str,
    message: str,
) -> None:
    folder = tmp_path / "heads"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"vocab_size": 300, **config}))
    write(folder, names)
    plan["heads"] = {"path": str(folder)}
    check = pair(plan, tmp_path, decoding_type="Eagle3")
    assert (check["status"], check["reason"]) == ("True" if reason == "HeadsMatch" else "False", reason)
    assert message in check["message"]
    assert ("warning" in check["message"]) == ("context is" in message)


@pytest.mark.parametrize(
    ("speculative", "names", "reason"),
    [
        ({"decoding_type": "Eagle3"}, LLAMA, "HeadsNotForTarget"),
        ({"method": "eagle3"}, LLAMA, "HeadsNotForTarget"),
        ({"method": "mtp"}, (), "MtpLayersMissing"),
        ({"method": "draft_model", "use_heterogeneous_vocab": True}, (), "PairMatches"),
    ],
    ids=["TensorRT-LLM's spelling", "vLLM's", "vLLM's of MTP", "vLLM translates"],
)
def test_engines_spell_it_differently(
    plan: Plan, tmp_path: Path, speculative: dict[str, object], names: tuple[str, ...], reason: str
) -> None:
    if names:
        folder = tmp_path / "heads"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"vocab_size": 300, "hidden_size": 64}))
        weights(folder, names)
        plan["heads"] = {"path": str(folder)}
    assert pair(plan, tmp_path, **speculative)["reason"] == reason


@pytest.mark.parametrize(
    "speculative", [{"decoding_type": "PARD"}, {"decoding_type": "Eagle3", "eagle3_model_arch": "mistral_large3"}]
)
def test_heads_of_another_kind_are_the_engine_s_to_judge(
    plan: Plan, tmp_path: Path, speculative: dict[str, object]
) -> None:
    folder = tmp_path / "heads"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"vocab_size": 300}))
    weights(folder, LLAMA)
    plan["heads"] = {"path": str(folder)}
    assert pair(plan, tmp_path, **speculative)["reason"] == "HeadsMatch"


def test_a_pickle_is_read_and_not_run(plan: Plan, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "run",))

    folder = tmp_path / "heads"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"vocab_size": 300, "hidden_size": 64}))
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w") as archive:
        archive.writestr("x/data.pkl", pickle.dumps({"midlayer.hidden_norm.weight": Evil()}))
    plan["heads"] = {"path": str(folder)}
    assert pair(plan, tmp_path, decoding_type="Eagle3")["reason"] == "HeadsMatch"
    assert not (tmp_path / "run").exists()


PLAIN = ("model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight")
MTP: list[tuple[str, tuple[str, ...], dict[str, object], str, str]] = [
    # why, tensors, config.json, reason, part of the message
    (
        "DeepSeek's layer after the last",
        (*PLAIN, "model.layers.2.eh_proj.weight"),
        {"num_nextn_predict_layers": 1},
        "MtpLayersFound",
        "",
    ),
    ("a layer after the last", (*PLAIN, "model.layers.2.mlp.up_proj.weight"), {}, "MtpLayersFound", ""),
    ("Qwen3-Next's", (*PLAIN, "mtp.fc.weight"), {}, "MtpLayersFound", ""),
    ("MiMo's", (*PLAIN, "model.mtp_layers.0.mlp.up_proj.weight"), {}, "MtpLayersFound", ""),
    (
        "a plain Llama",
        PLAIN,
        {},
        "MtpLayersMissing",
        "target: the checkpoint has no layers for multi-token prediction: name a checkpoint with them",
    ),
    (
        "a quantized copy without them",
        PLAIN,
        {"num_nextn_predict_layers": 1},
        "MtpLayersMissing",
        "config.json states num_nextn_predict_layers 1, and the checkpoint has no layers",
    ),
]


@pytest.mark.parametrize("indexed", [False, True], ids=["one file", "indexed"])
@pytest.mark.parametrize(
    ("names", "config", "reason", "message"), [row[1:] for row in MTP], ids=[row[0] for row in MTP]
)
def test_layers_for_mtp(
    plan: Plan,
    tmp_path: Path,
    indexed: bool,
    names: tuple[str, ...],
    config: dict[str, object],
    reason: str,
    message: str,
) -> None:
    folder = Path(plan["target"]["path"])
    written = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**written, **config}))
    save_file({name: np.zeros((300, 4), np.float16) for name in names}, str(folder / "model.safetensors"))
    if indexed:
        index = {"weight_map": dict.fromkeys(names, "model.safetensors")}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    check = pair(plan, tmp_path, decoding_type="MTP", max_draft_len=1)
    assert (check["status"], check["reason"]) == ("True" if reason == "MtpLayersFound" else "False", reason)
    assert message in check["message"]


NO_MODEL = [
    (EAGLE3, "has EAGLE-3's heads and no model: write decodingType: Eagle3 (mode LLMAPI)"),
    (EAGLE, "has heads of EAGLE-1 or 2 and no model: name EAGLE-3's and write decodingType: Eagle3"),
    (MEDUSA, "has Medusa's heads and no model: write decodingType: Medusa (mode BLS)"),
    ((*LLAMA, *MEDUSA), "tokenizer.json is missing"),
    (("wte.weight", "h.0.mlp.c_fc.weight"), "tokenizer.json is missing"),
]


@pytest.mark.parametrize(
    ("names", "message"), NO_MODEL, ids=["EAGLE-3", "EAGLE-1 or 2", "Medusa", "Medusa in a model", "GPT-2"]
)
def test_heads_where_a_model_is_needed(
    plan: Plan, tmp_path: Path, model_folder: ModelFolder, names: tuple[str, ...], message: str
) -> None:
    """They have no tokenizer, either: to give them one would be no help."""
    folder = model_folder("draft")
    (folder / "tokenizer.json").unlink()
    save_file({name: np.zeros((300, 4), np.float16) for name in names}, str(folder / "model.safetensors"))
    del plan["llm_args"]
    checks = {check["type"]: check for check in verdict({**plan, "draft": {"path": str(folder)}}, tmp_path)["checks"]}
    assert checks["ModelsReady"]["reason"] == "ModelInvalid"
    assert message in checks["ModelsReady"]["message"]
