import numpy as np
import pytest

from support.serving.model_folders import ModelFolder
from tandem_serving.errors import RequestError
from tandem_serving.requests.preprocessing import Preprocessor, decode_batch
from tandem_serving.requests.tensors import Array
from tandem_serving.requests.tokenizer import Tokenizer


def strings(*rows: list[str]) -> Array:
    return np.array([[text.encode() for text in row] for row in rows], np.object_)


def query(**more: Array) -> dict[str, Array]:
    return {"QUERY": strings(["def add("], ["a"]), "REQUEST_OUTPUT_LEN": np.array([[4], [5]], np.int32), **more}


def test_rows_are_padded_at_their_ends(tokenizer: Tokenizer) -> None:
    outputs = Preprocessor(tokenizer, 300, special=True).run(query(PAD_ID=np.array([[7], [9]], np.int32)))
    long, short = tokenizer.encode("def add("), tokenizer.encode("a")
    assert outputs["INPUT_ID"].tolist() == [long, short + [9] * (len(long) - len(short))]
    assert outputs["REQUEST_INPUT_LEN"].tolist() == [[len(long)], [len(short)]]
    assert outputs["REQUEST_OUTPUT_LEN"].tolist() == [[4], [5]]
    assert outputs["OUT_PAD_ID"].tolist() == [[7], [9]]
    assert outputs["OUT_END_ID"].tolist() == [[0], [0]]


def test_words_and_bias(tokenizer: Tokenizer) -> None:
    words = strings(["in", "return"], ["class", ""])
    weights = np.array([[1.0, 2.0], [3.0, 0.0]], np.float32)
    outputs = Preprocessor(tokenizer, 300, special=True).run(
        query(STOP_WORDS_DICT=words, EMBEDDING_BIAS_WORDS=words, EMBEDDING_BIAS_WEIGHTS=weights)
    )
    lists = [[tokenizer.encode(word) for word in row if word] for row in (["in", "return"], ["class"])]
    for table, row in zip(outputs["STOP_WORDS_IDS"], lists, strict=True):
        flat = [token for ids in row for token in ids]
        assert table[0, : len(flat)].tolist() == flat
        ends = np.cumsum([len(ids) for ids in row]).tolist()
        assert table[1].tolist() == ends + [-1] * (table.shape[1] - len(ends))
    assert outputs["BAD_WORDS_IDS"].shape == (2, 2, 0)
    assert outputs["EMBEDDING_BIAS"].shape == (2, 300)
    assert outputs["EMBEDDING_BIAS"][1].sum() == 3.0 * len(lists[1][0])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"QUERY": strings([""], ["a"])}, "QUERY is empty"),
        ({"IMAGE_URL": strings(["x"], ["y"])}, "IMAGE_URL is not supported"),
        ({"IMAGES": strings(["x"], ["y"])}, "IMAGES is not supported"),
        ({"EMBEDDING_BIAS_WEIGHTS": np.ones((2, 1), np.float32)}, "send one weight a word"),
        ({"REQUEST_OUTPUT_LEN": np.array([[4]], np.int32)}, "there are 2 prompts: send one row a prompt"),
    ],
)
def test_refused(tokenizer: Tokenizer, more: dict[str, Array], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        Preprocessor(tokenizer, 300, special=True).run(query() | more)


def test_texts_are_cut_to_their_lengths(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("def add(")
    tokens = np.array([[ids], [ids]], np.int32)
    texts = decode_batch(tokenizer, tokens, np.array([[len(ids)], [1]], np.int32))
    assert texts.tolist() == [b"def add(", tokenizer.decode(ids[:1]).encode()]
    beams = decode_batch(tokenizer, np.array([[ids, ids]], np.int32), np.array([[len(ids), 0]], np.int32))
    assert beams.tolist() == [b"def add(", b""], "one dimension, though there are two beams"
    filled = np.array([[[*ids, -1]]], np.int32)
    assert decode_batch(tokenizer, filled, np.array([[len(ids)]], np.int32)).tolist() == [b"def add("]
    with pytest.raises(RequestError, match="TOKENS_BATCH holds -1"):
        decode_batch(tokenizer, filled, np.array([[len(ids) + 1]], np.int32))
    with pytest.raises(RequestError, match=r"send \[n, beams, m\]"):
        decode_batch(tokenizer, tokens[0], np.array([[1]], np.int32))


def test_further_end_tokens_are_stop_words(model_folder: ModelFolder) -> None:
    folder = model_folder("ends")
    (folder / "generation_config.json").write_text('{"eos_token_id": [0, 7, 9]}')
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')
    preprocessor = Preprocessor(Tokenizer(folder), 300, special=True)
    found = preprocessor.run(query(STOP_WORDS_DICT=strings(["in"], [""])))
    assert found["OUT_END_ID"].tolist() == [[0], [0]]
    word = Tokenizer(folder).encode("in")
    assert found["STOP_WORDS_IDS"][0, 0, : len(word) + 2].tolist() == [*word, 7, 9]
    assert found["STOP_WORDS_IDS"][1, :, :2].tolist() == [[7, 9], [1, 2]]
    own = preprocessor.run(query(END_ID=np.array([[3], [3]], np.int32)))
    assert own["STOP_WORDS_IDS"].shape == (2, 2, 0)
