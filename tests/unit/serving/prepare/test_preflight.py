import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from support.serving.model_folders import ModelFolder, byte_level
from tandem_serving.prepare.preflight import verdict
from tandem_serving.prepare.verdict import MAX_MESSAGE_BYTES

Change = Callable[[Path], object]


def weights(folder: Path, rows: int = 300, name: str = "model.safetensors") -> None:
    save_file({"model.embed_tokens.weight": np.zeros((rows, 4), np.float16)}, str(folder / name))


@pytest.fixture
def pair(model_folder: ModelFolder) -> dict[str, Any]:
    """launch.json's `preflight` part for a target and a draft that fit."""
    folders = {role: model_folder(role) for role in ("target", "draft")}
    for folder in folders.values():
        weights(folder)
    return {**{role: {"path": str(folder)} for role, folder in folders.items()}, "max_draft_len": 4}


def checks(plan: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {check["type"]: check for check in verdict(plan, Path())["checks"]}


def edit(name: str, **changes: object) -> Change:
    """Change keys of a JSON file of a model folder."""

    def change(folder: Path) -> None:
        path = folder / name
        data = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(data | changes))

    return change


def edit_tokenizer(change: Callable[[dict[str, Any]], object]) -> Change:
    def apply(folder: Path) -> None:
        data = json.loads((folder / "tokenizer.json").read_text())
        change(data)
        (folder / "tokenizer.json").write_text(json.dumps(data))

    return apply


def write(name: str, content: bytes) -> Change:
    return lambda folder: (folder / name).write_bytes(content)


def remove(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


INDEX = "model.safetensors.index.json"


def sharded(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    edit(INDEX, weight_map={"a": "one.safetensors", "b": "two.safetensors"})(folder)
    weights(folder, name="one.safetensors")


def swap_two(data: dict[str, Any]) -> None:
    vocab = data["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]


def another_vocabulary(folder: Path) -> None:
    byte_level(280).save(str(folder / "tokenizer.json"))


def small_model(folder: Path) -> None:
    edit("config.json", vocab_size=200)(folder)
    weights(folder, 200)


def image_token(special: bool = True) -> Change:
    """As Gemma 3 1B has it: a tokenizer of models that read images, one token longer than the vocabulary."""

    def change(folder: Path) -> None:
        tokenizer = byte_level()
        size = tokenizer.get_vocab_size()
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(["<image>"])
        tokenizer.save(str(folder / "tokenizer.json"))
        edit("config.json", vocab_size=size)(folder)
        weights(folder, size)

    return change


def image_token_in_chats(folder: Path) -> None:
    image_token()(folder)
    (folder / "chat_template.jinja").write_text("<image>{{ messages }}")


def image_token_ends(folder: Path) -> None:
    image_token()(folder)
    edit("generation_config.json", eos_token_id=[0, 297])(folder)


def engine_folder(folder: Path) -> None:
    build = {"build_config": {"max_seq_len": 128}, "pretrained_config": {"vocab_size": 300}}
    (folder / "config.json").write_text(json.dumps(build))
    (folder / "model.safetensors").unlink()


ROWS: list[tuple[Change, str, str, str, str]] = [
    # change to the draft's folder, condition, status, reason, part of the message
    (lambda folder: None, "ModelsReady", "True", "ModelsLoad", "draft: vocabulary 300, context 128"),
    (lambda folder: None, "PairCompatible", "True", "PairMatches", "tokenizers are equal"),
    (remove("config.json"), "ModelsReady", "False", "ModelInvalid", "config.json is missing"),
    (remove("config.json"), "PairCompatible", "Unknown", "ModelsNotReady", "waits"),
    (write("config.json", b"{"), "ModelsReady", "False", "ModelInvalid", "config.json cannot be read"),
    (write("config.json", b"[]"), "ModelsReady", "False", "ModelInvalid", "is no JSON object"),
    (edit("config.json", vocab_size="many"), "ModelsReady", "False", "ModelInvalid", "states no vocab_size"),
    (remove("model.safetensors"), "ModelsReady", "False", "ModelInvalid", "lacks model.safetensors"),
    (write("model.safetensors", b"\x10"), "ModelsReady", "False", "ModelInvalid", "model.safetensors cannot be read"),
    (sharded, "ModelsReady", "False", "ModelInvalid", "lacks two.safetensors"),
    (
        edit(INDEX, weight_map=["one.safetensors"]),
        "ModelsReady",
        "False",
        "ModelInvalid",
        "lists no files of weights",
    ),
    (edit(INDEX, weight_map={"a": 1}), "ModelsReady", "False", "ModelInvalid", "lists no files of weights"),
    (lambda folder: weights(folder, 299), "ModelsReady", "False", "ModelInvalid", "has 299 embedding rows"),
    (remove("tokenizer.json"), "ModelsReady", "False", "ModelInvalid", "write draft.model.tokenizer"),
    (write("tokenizer.json", b"{}"), "ModelsReady", "False", "ModelInvalid", "is no tokenizer"),
    (small_model, "ModelsReady", "False", "ModelInvalid", "only 200"),
    (image_token(), "ModelsReady", "True", "ModelsLoad", "draft: vocabulary 297"),
    (
        image_token(special=False),
        "ModelsReady",
        "False",
        "ModelInvalid",
        "298 tokens, the model's vocabulary only 297",
    ),
    (image_token_in_chats, "ModelsReady", "False", "ModelInvalid", "298 tokens, the model's vocabulary only 297"),
    (image_token_ends, "ModelsReady", "False", "ModelInvalid", "298 tokens, the model's vocabulary only 297"),
    (engine_folder, "ModelsReady", "False", "ModelInvalid", "rank0.engine is missing"),
    (edit_tokenizer(swap_two), "PairCompatible", "False", "TokenizerDiffers", "2 tokens differ, e.g. 'a': id"),
    (another_vocabulary, "PairCompatible", "False", "TokenizerDiffers", "tokens differ"),
    (
        edit_tokenizer(lambda data: data["model"]["merges"].reverse()),
        "PairCompatible",
        "False",
        "TokenizerDiffers",
        "the merges differ",
    ),
    (
        edit_tokenizer(lambda data: data["added_tokens"][0].update(special=False)),
        "PairCompatible",
        "False",
        "TokenizerDiffers",
        "special tokens differ: ['<|endoftext|>']",
    ),
    (
        edit_tokenizer(lambda data: data["pre_tokenizer"].update(add_prefix_space=True)),
        "PairCompatible",
        "True",
        "PairMatches",
        "warning: they split text differently (normalizer or pre_tokenizer of tokenizer.json)",
    ),
    (
        edit_tokenizer(lambda data: data["model"].update(merges=[" ".join(m) for m in data["model"]["merges"]])),
        "PairCompatible",
        "True",
        "PairMatches",
        "tokenizers are equal",
    ),
    (
        edit("config.json", max_position_embeddings=5),
        "PairCompatible",
        "False",
        "DraftLengthTooLong",
        "maxDraftLen is 4 and the shorter context 5 tokens",
    ),
    (
        edit("config.json", max_position_embeddings=64),
        "PairCompatible",
        "True",
        "PairMatches",
        "the draft's context is 64 tokens, the target's 128",
    ),
    (
        edit("tokenizer_config.json", chat_template="x"),
        "PairCompatible",
        "True",
        "PairMatches",
        "warning: the chat templates differ",
    ),
]


@pytest.mark.parametrize(("change", "kind", "status", "reason", "message"), ROWS)
def test_verdict(pair: dict[str, Any], change: Change, kind: str, status: str, reason: str, message: str) -> None:
    change(Path(pair["draft"]["path"]))
    check = checks(pair)[kind]
    assert (check["status"], check["reason"]) == (status, reason)
    assert message in check["message"]


def older_spelling(data: dict[str, Any]) -> None:
    """The same pre-tokenizer in a sequence, as newer files write it (Qwen2.5 against Qwen2, Llama 3 against 3.2)."""
    data["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [data["pre_tokenizer"]]}


SAME: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
    # what the draft's tokenizer.json has otherwise, though ids, specials and merges are equal
    (
        "post-processor",
        lambda data: data.update(
            post_processor={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
        ),
    ),
    ("trim_offsets", lambda data: data["pre_tokenizer"].update(trim_offsets=False)),
    ("an older spelling of the pre-tokenizer", older_spelling),
    ("decoder", lambda data: data["decoder"].update(add_prefix_space=False)),
    ("flags of specials", lambda data: data["added_tokens"][0].update(lstrip=True, rstrip=True, normalized=True)),
    (
        "order of the vocabulary",
        lambda data: data["model"].update(vocab=dict(reversed(data["model"]["vocab"].items()))),
    ),
]


@pytest.mark.parametrize("change", [row[1] for row in SAME], ids=[row[0] for row in SAME])
def test_what_the_draft_never_uses_is_not_compared(
    pair: dict[str, Any], change: Callable[[dict[str, Any]], object]
) -> None:
    edit_tokenizer(change)(Path(pair["draft"]["path"]))
    check = checks(pair)["PairCompatible"]
    assert (check["reason"], check["message"]) == ("PairMatches", "tokenizers are equal")


def another_special(data: dict[str, Any]) -> None:
    data["added_tokens"].append({**data["added_tokens"][0], "id": 299, "content": "<|im_end|>"})


def test_a_special_token_of_one_model_alone(pair: dict[str, Any]) -> None:
    edit_tokenizer(another_special)(Path(pair["draft"]["path"]))
    check = checks(pair)["PairCompatible"]
    assert check["reason"] == "TokenizerDiffers"
    assert "1 tokens differ, e.g. '<|im_end|>': id None in the target, 299 in the draft" in check["message"]


LLM_API = {"llm_args": {"file": "llm_args.yaml", "engine": "TensorRT-LLM"}}
PADDED: list[tuple[str, dict[str, Any], str, str]] = [
    # why, what launch.json's part has besides, reason, part of the message
    (
        "only ids are handed over",
        {},
        "PairMatches",
        "tokenizers are equal (target has 300 vocabulary rows, draft 320: padding, which no token has)",
    ),
    (
        "logits are compared row by row",
        {"compares_logits": True},
        "VocabularyDiffers",
        "target has 300 vocabulary rows, draft 320, though their tokenizers are equal: acceptance.method Logits"
        " compares them row by row: write TokenMatch, or fill up the smaller one to 320 rows",
    ),
    (
        "the LLM API",
        LLM_API,
        "VocabularyDiffers",
        "mode LLMAPI is known to run equal ones alone: write runtime.mode: BLS",
    ),
]


@pytest.mark.parametrize("larger", ["draft", "target"])
@pytest.mark.parametrize(("part", "reason", "message"), [row[1:] for row in PADDED], ids=[row[0] for row in PADDED])
def test_one_vocabulary_in_tables_of_different_size(
    pair: dict[str, Any], tmp_path: Path, part: dict[str, Any], reason: str, message: str, larger: str
) -> None:
    """As Qwen2.5 of 0.5B and 72B: "choose one of the same family" would be no help."""
    (tmp_path / "llm_args.yaml").write_text("{}")
    folder = Path(pair[larger]["path"])
    edit("config.json", vocab_size=320)(folder)
    weights(folder, 320)
    check = {check["type"]: check for check in verdict({**pair, **part}, tmp_path)["checks"]}["PairCompatible"]
    assert (check["status"], check["reason"]) == ("True" if reason == "PairMatches" else "False", reason)
    if larger == "target":
        message = message.replace("target has 300", "target has 320").replace("draft 320", "draft 300")
    assert message in check["message"]


def test_other_tokens_in_tables_of_different_size(pair: dict[str, Any]) -> None:
    folder = Path(pair["draft"]["path"])
    edit("config.json", vocab_size=320)(folder)
    weights(folder, 320)
    another_vocabulary(folder)
    check = checks(pair)["PairCompatible"]
    assert check["reason"] == "TokenizerDiffers"
    assert check["message"].startswith("target has 300 vocabulary rows, draft 320, and ")
    assert "same tokenizer" in check["message"]


def test_a_tokenizer_in_a_folder_of_its_own(pair: dict[str, Any], tmp_path: Path) -> None:
    """As where a fine-tuned target came without one: it is the one that counts, also for the pair."""
    (Path(pair["target"]["path"]) / "tokenizer.json").rename(tmp_path / "tokenizer.json")
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    assert "tokenizer.json is missing" in checks(pair)["ModelsReady"]["message"]
    pair["target"]["tokenizer"] = str(tmp_path)
    assert "names no token that ends a text" in checks(pair)["ModelsReady"]["message"]
    edit("tokenizer_config.json", eos_token="<|endoftext|>")(tmp_path)
    found = checks(pair)
    assert found["ModelsReady"]["status"] == "True"
    assert found["PairCompatible"]["message"] == (
        "tokenizers are equal; warning: the chat templates differ; the target's is the one that counts"
    )
    another_vocabulary(tmp_path)
    assert checks(pair)["PairCompatible"]["reason"] == "TokenizerDiffers"


def bf16(folder: Path) -> None:
    edit("config.json", torch_dtype="bfloat16")(folder)


DIFFERENCES: list[tuple[str, list[Change], str]] = [
    # why, changes to the target's folder, the warning; "": none
    ("nothing differs", [], ""),
    (
        "a fine-tuned chat model",
        [edit("generation_config.json", eos_token_id=0), edit("tokenizer_config.json", eos_token="!")],
        "warning: generation_config.json ends texts at <|endoftext|> (0), tokenizer_config.json at ! (1): each of",
    ),
    (
        "the list has the tokenizer's",
        [edit("generation_config.json", eos_token_id=[0, 1]), edit("tokenizer_config.json", eos_token="!")],
        "",
    ),
    (
        "config.json is all there is",
        [edit("config.json", eos_token_id=5), edit("tokenizer_config.json", eos_token="!")],
        "warning: config.json ends texts at",
    ),
    (
        "a shorter limit of the tokenizer",
        [edit("tokenizer_config.json", model_max_length=64)],
        "model_max_length 64, the model a context of 128 tokens: requests of up to 128 are served",
    ),
    ("no limit of the tokenizer", [edit("tokenizer_config.json", model_max_length=10**30)], ""),
    (
        "two templates",
        [write("chat_template.jinja", b"a"), edit("tokenizer_config.json", chat_template="b")],
        "warning: chat_template.jinja and tokenizer_config.json have different chat templates: the first",
    ),
    (
        "one template twice",
        [write("chat_template.jinja", b"a\n"), edit("tokenizer_config.json", chat_template="a")],
        "",
    ),
    ("another dtype", [bf16], "warning: config.json says dtype bfloat16, the embedding is F16"),
    ("the dtype of the weights", [edit("config.json", dtype="float16")], ""),
]


@pytest.mark.parametrize(("why", "changes", "warning"), DIFFERENCES, ids=[row[0] for row in DIFFERENCES])
def test_files_that_differ_are_warned_about(
    pair: dict[str, Any], why: str, changes: list[Change], warning: str
) -> None:
    for change in changes:
        change(Path(pair["target"]["path"]))
    found = checks(pair)["ModelsReady"]
    assert found["status"] == "True"
    assert (warning in found["message"]) if warning else ("warning" not in found["message"]), why


def as_bin(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


HEADS: list[tuple[Change, str, str, str, str]] = [
    # change to the folder of the heads, condition, status, reason, part of the message
    (remove("tokenizer.json"), "PairCompatible", "True", "HeadsMatch", "the target's 300 words"),
    (as_bin, "PairCompatible", "True", "HeadsMatch", "the target's 300 words"),
    (lambda folder: weights(folder, 32), "PairCompatible", "True", "HeadsMatch", "the target's 300 words"),
    (edit("config.json", vocab_size=320), "PairCompatible", "Unknown", "VocabularyDiffers", "300 vocabulary rows"),
    (remove("model.safetensors"), "ModelsReady", "False", "ModelInvalid", "has no weights"),
    (write("model.safetensors", b"\x10"), "ModelsReady", "False", "ModelInvalid", "model.safetensors cannot be read"),
    (remove("config.json"), "ModelsReady", "False", "ModelInvalid", "config.json is missing"),
]


@pytest.mark.parametrize(("change", "kind", "status", "reason", "message"), HEADS)
def test_heads(pair: dict[str, Any], change: Change, kind: str, status: str, reason: str, message: str) -> None:
    """Weights as they are published: of few words, without a tokenizer, some as *.bin alone."""
    pair["heads"] = pair.pop("draft")
    change(Path(pair["heads"]["path"]))
    check = checks(pair)[kind]
    assert (check["status"], check["reason"]) == (status, reason)
    assert message in check["message"]


def test_no_draft(pair: dict[str, Any]) -> None:
    del pair["draft"]
    assert checks(pair)["PairCompatible"]["reason"] == "NoDraft"


def test_missing_folder_says_which(pair: dict[str, Any]) -> None:
    pair["target"] = {"path": "/nowhere/model"}
    assert "the folder /nowhere/model is missing" in checks(pair)["ModelsReady"]["message"]


def test_verdict_fits_a_termination_message(pair: dict[str, Any]) -> None:
    pair["target"] = {"path": "/é" * 1000}
    text = json.dumps(verdict(pair, Path()), ensure_ascii=False)
    assert len(text.encode()) <= 4096
    assert len(checks(pair)["ModelsReady"]["message"].encode()) <= MAX_MESSAGE_BYTES


COMMIT, OLD = "0e9e39f249a16976918f6564b8830bc894c89659", "00000000000000000000000000000000000000ff"


def hub_cache(folder: Path, root: Path) -> Path:
    """The model of `folder` in a Hub cache at `root`, as huggingface_hub writes it; its snapshot."""
    repository = root / "models--org--name"
    snapshot = repository / "snapshots" / COMMIT
    for each in (repository / "blobs", snapshot, repository / "snapshots" / OLD, repository / "refs"):
        each.mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    for i, path in enumerate(sorted(folder.iterdir())):
        path.rename(repository / "blobs" / f"{i:040}")
        (snapshot / path.name).symlink_to(f"../../blobs/{i:040}")
    return snapshot


def test_a_model_in_a_hub_cache(pair: dict[str, Any], tmp_path: Path) -> None:
    """As it is: found by its snapshot; elsewhere the message names that."""
    snapshot = hub_cache(Path(pair["target"]["path"]), tmp_path / "hub")
    repository = snapshot.parents[1]
    pair["target"]["path"] = str(snapshot)
    assert checks(pair)["ModelsReady"]["status"] == "True"
    pair["target"]["path"] = str(repository)
    assert checks(pair)["ModelsReady"]["message"] == (
        f"target: {repository} is a Hub cache: add one of its snapshots to the uri: /snapshots/{COMMIT},"
        f" snapshots/{OLD}"
    )
    pair["target"]["path"] = str(repository.parent)
    assert f"to the uri: /models--org--name/snapshots/{COMMIT}" in checks(pair)["ModelsReady"]["message"]
    alone = snapshot.rename(tmp_path / "alone")  # as a snapshot that is mounted by itself
    pair["target"]["path"] = str(alone)
    message = checks(pair)["ModelsReady"]["message"]
    assert f"target: {alone}/config.json is a link to ../../blobs/" in message
    assert "or the snapshot in a Hub cache (.../models--ORG--NAME/snapshots/COMMIT)" in message
