from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tandem_serving.bls.request import AcceptanceMethod, BlsParser, RequestLimits
from tandem_serving.bls.sequence import EngineInputs
from tandem_serving.errors import RequestError
from tandem_serving.requests.refused import RefusedParameters
from tandem_serving.requests.tensors import Array
from tandem_serving.requests.tokenizer import Tokenizer

LIMITS = RequestLimits(max_sequence_len=128, max_draft_len=4, vocab_size=300)


def strings(*rows: list[str]) -> Array:
    return np.array([[text.encode() for text in row] for row in rows], np.object_)


def request(**changes: Array | None) -> dict[str, Array]:
    tensors = {"text_input": strings(["def add("]), "max_tokens": np.array([[8]], np.int32), **changes}
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def integer(value: int) -> Array:
    return np.array([[value]], np.int32)


def real(value: float) -> Array:
    return np.array([[value]], np.float32)


YES = np.array([[True]])
REFUSED: list[tuple[dict[str, Array | None], str]] = [
    ({"text_input": None}, "text_input is missing"),
    ({"text_input": strings([""])}, "the prompt is empty"),
    ({"text_input": np.empty((0, 1), np.object_)}, "send at least one prompt"),
    ({"text_input": strings(["a", "b"])}, "text_input holds 2 values a prompt: send one"),
    ({"text_input": np.array([[b"\xff\xfe"]], np.object_)}, "text_input is not valid UTF-8"),
    ({"input_ids": np.array([[5, 6]], np.int32)}, "both text_input and input_ids hold prompts"),
    ({"text_input": None, "input_ids": np.array([[5, 300]], np.int32)}, "input_ids holds 300"),
    ({"text_input": None, "input_ids": np.array([[5, -1]], np.int32)}, "input_ids holds -1"),
    ({"text_input": None, "input_ids": np.array([[5]], np.int32), "input_lengths": integer(2)}, "input_lengths is 2"),
    ({"text_input": None, "input_ids": np.array([[5]], np.int32), "input_lengths": integer(0)}, "input_lengths is 0"),
    ({"max_tokens": None}, "max_tokens is missing"),
    ({"max_tokens": integer(0)}, "max_tokens is 0: send the number of tokens wanted, 1 or more"),
    ({"max_tokens": integer(-3)}, "max_tokens is -3"),
    ({"max_tokens": np.array([[8], [8]], np.int32)}, "max_tokens has shape [2, 1], but there are 1 prompts"),
    ({"max_tokens": integer(1000)}, "and max_tokens 1000 make 10"),
    ({"text_input": strings(["x " * 200])}, "more than the model's limit of 128"),
    ({"num_draft_tokens": integer(-1)}, "num_draft_tokens is -1"),
    ({"temperature": real(-1)}, "temperature is -1.0: it must be 0 or more"),
    ({"temperature": real(float("nan"))}, "temperature is nan"),
    ({"top_p": real(1.5)}, "top_p is 1.5: it must lie between 0 and 1"),
    ({"top_k": integer(-2)}, "top_k is -2"),
    ({"length_penalty": real(-1)}, "length_penalty is -1.0: it must be 0 or more"),
    ({"end_id": integer(300)}, "end_id is 300: send -1 (none) or a token, 0 to 299"),
    ({"end_id": integer(-2)}, "end_id is -2"),
    ({"repetition_penalty": real(0)}, "repetition_penalty is 0.0: it must be above 0"),
    ({"presence_penalty": real(float("inf"))}, "presence_penalty is inf: it must be finite"),
    ({"beam_width": integer(2)}, "beam_width 2 is not supported"),
    (
        {"num_return_sequences": integer(3)},
        "send the prompt several times in one request instead, each with a seed",
    ),
    ({"decoder_text_input": strings(["x"])}, "decoder_text_input is not supported"),
    ({"image_url_input": strings(["x"])}, "image_url_input is not supported: this service takes text only"),
    ({"lora_weights": np.zeros((1, 1, 4), np.float16)}, "belong to a task: send all three"),
    ({"prompt_embedding_table": np.zeros((1, 1, 4), np.float16)}, "virtual tokens mean nothing to the draft engine"),
    ({"guided_decoding_guide": strings(["{}"])}, "is sent without guided_decoding_guide_type"),
    ({"return_context_logits": YES}, "return_context_logits is not supported"),
    ({"return_refused_draft_text": YES}, "return_refused_draft_text needs stream"),
    ({"embedding_bias_words": strings(["a", "b"])}, "holds 2 words and embedding_bias_weights 0 weights"),
    (
        {"embedding_bias_words": strings(["a"]), "embedding_bias_weights": real(float("nan"))},
        "embedding_bias_weights holds nan",
    ),
    (
        {"embedding_bias_words": strings(["a"]), "embedding_bias_weights": real(float("inf"))},
        "embedding_bias_weights holds inf",
    ),
    (
        {"guided_decoding_guide_type": strings(["json", "regex"])},
        "guided_decoding_guide_type holds 2 values a prompt",
    ),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused(tokenizer: Tokenizer, changes: dict[str, Array | None], message: str) -> None:
    with pytest.raises(RequestError) as error:
        BlsParser(tokenizer, LIMITS).parse(request(**changes))
    assert message in str(error.value)


def test_a_token_that_only_the_tokenizer_has_is_refused(tokenizer: Tokenizer) -> None:
    vocabulary = max(tokenizer.encode("def add("))
    limits = RequestLimits(max_sequence_len=128, max_draft_len=4, vocab_size=vocabulary)
    with pytest.raises(RequestError, match=f"the prompt holds the token {vocabulary}, and the model's vocabulary"):
        BlsParser(tokenizer, limits).parse(request(text_input=strings(["def add("])))


def test_what_the_engines_cannot_serve_is_refused_where_it_is_asked_for(tokenizer: Tokenizer) -> None:
    parser = BlsParser(tokenizer, LIMITS, refused={"return_log_probs": "the engine computes none"})
    assert parser.parse(request(return_log_probs=np.array([[False]])))
    with pytest.raises(RequestError, match="return_log_probs is not supported: the engine computes none"):
        parser.parse(request(return_log_probs=YES))


@pytest.mark.parametrize(("padded", "drafted"), [(False, 4), (True, 0)])
def test_a_bias_fits_one_table_of_rows(tokenizer: Tokenizer, padded: bool, drafted: int) -> None:
    """Of draft and target with different tables the bias is the target's: such a request runs without speculation."""
    parser = BlsParser(tokenizer, replace(LIMITS, padded=padded))
    biased = request(embedding_bias_words=strings(["a"]), embedding_bias_weights=real(1.0))
    assert [prompt.num_draft_tokens for prompt in parser.parse(biased).prompts] == [drafted]
    assert [prompt.num_draft_tokens for prompt in parser.parse(request()).prompts] == [4]


LORA: dict[str, Any] = {
    "lora_task_id": np.array([7], np.uint64),
    "lora_weights": np.ones((1, 2, 4), np.float16),
    "lora_config": np.array([[[0, 1, 8]]], np.int32),
}


def test_lora_goes_to_the_target_alone_as_it_comes(tokenizer: Tokenizer) -> None:
    (prompt,) = BlsParser(tokenizer, LIMITS).parse(request(**LORA)).prompts
    assert not prompt.tensors.keys() & LORA.keys()
    assert prompt.target_tensors["lora_task_id"].tolist() == [[7]]
    for name in ("lora_weights", "lora_config"):
        np.testing.assert_array_equal(prompt.target_tensors[name], LORA[name], strict=True)
    assert not prompt.guided


@pytest.mark.parametrize(
    ("asked", "sampled"),
    [
        pytest.param({}, False, id="greedy"),
        pytest.param({"top_k": np.array([[1]], np.int32)}, False, id="of one token"),
        pytest.param({"top_k": np.array([[5]], np.int32)}, True, id="of five"),
        pytest.param({"top_p": np.array([[0.9]], np.float32)}, True, id="of the likeliest"),
        pytest.param({"temperature": np.array([[2]], np.float32)}, False, id="temperature alone means nothing"),
        pytest.param(
            {"top_p": np.array([[0.9]], np.float32), "temperature": np.array([[0]], np.float32)},
            False,
            id="temperature 0",
        ),
    ],
)
def test_whether_tokens_are_drawn(tokenizer: Tokenizer, asked: dict[str, Any], sampled: bool) -> None:
    (prompt,) = BlsParser(tokenizer, LIMITS).parse(request(**asked)).prompts
    assert prompt.sampled is sampled


def test_a_guide_goes_to_the_target_alone(tokenizer: Tokenizer) -> None:
    guide = {"guided_decoding_guide_type": strings(["regex"]), "guided_decoding_guide": strings(["a+"])}
    (prompt,) = BlsParser(tokenizer, LIMITS).parse(request(**guide)).prompts
    assert {name: value.tolist() for name, value in prompt.target_tensors.items()} == {
        "guided_decoding_guide_type": [[b"regex"]],
        "guided_decoding_guide": [[b"a+"]],
    }
    assert prompt.guided


@pytest.mark.parametrize(
    ("acceptance", "asked", "by_logits", "threshold"),
    [
        (AcceptanceMethod(), None, False, None),
        (AcceptanceMethod(), True, True, None),
        (AcceptanceMethod(by_logits=True), None, True, None),
        (AcceptanceMethod(by_logits=True, threshold=0.25), None, True, [[0.25]]),
        (AcceptanceMethod(by_logits=True, threshold=0.25), False, False, None),
        # Of all tokens that the target may choose: TensorRT-LLM takes no 0.
        (AcceptanceMethod(by_logits=True, threshold=0.0), None, True, [[pytest.approx(0, abs=1e-30)]]),
    ],
)
def test_acceptance_is_the_services_unless_the_request_says(
    tokenizer: Tokenizer, acceptance: AcceptanceMethod, asked: bool | None, by_logits: bool, threshold: Any
) -> None:
    flag = {} if asked is None else {"use_draft_logits": np.array([[asked]])}
    parsed = BlsParser(tokenizer, LIMITS, acceptance).parse(request(**flag))
    assert parsed.use_draft_logits is by_logits
    found = parsed.prompts[0].target_tensors.get("draft_acceptance_threshold")
    assert (None if found is None else found.tolist()) == threshold
    assert found is None or found.item() > 0
    assert "draft_acceptance_threshold" not in parsed.prompts[0].tensors, "the draft has nothing to accept"


def test_limit_is_inclusive(tokenizer: Tokenizer) -> None:
    room = LIMITS.max_sequence_len - len(tokenizer.encode("def add("))
    assert BlsParser(tokenizer, LIMITS).parse(request(max_tokens=integer(room)))
    with pytest.raises(RequestError, match="make 129, more than the model's limit of 128"):
        BlsParser(tokenizer, LIMITS).parse(request(max_tokens=integer(room + 1)))


def test_minus_one_is_as_many_tokens_as_the_limit_leaves(tokenizer: Tokenizer) -> None:
    (prompt,) = BlsParser(tokenizer, LIMITS).parse(request(max_tokens=integer(-1))).prompts
    assert prompt.max_tokens == LIMITS.max_sequence_len - len(tokenizer.encode("def add("))
    with pytest.raises(RequestError, match="max_tokens is -2"):
        BlsParser(tokenizer, LIMITS).parse(request(max_tokens=integer(-2)))
    full = np.ones((1, LIMITS.max_sequence_len), np.int32)
    with pytest.raises(RequestError, match="more than the model's limit"):
        BlsParser(tokenizer, LIMITS).parse(request(text_input=None, input_ids=full, max_tokens=integer(-1)))


def test_defaults(tokenizer: Tokenizer) -> None:
    parsed = BlsParser(tokenizer, LIMITS).parse(request())
    (prompt,) = parsed.prompts
    assert not (parsed.stream or parsed.log_probs or parsed.generation_logits)
    assert (prompt.num_draft_tokens, prompt.min_tokens, prompt.seed, prompt.stop_words) == (4, 0, None, ())
    assert prompt.echo, "upstream repeats the prompt unless it is excluded"
    assert prompt.ids.tolist() == tokenizer.encode("def add(")
    assert {name: tensor.tolist() for name, tensor in prompt.tensors.items()} == {"end_id": [[0]], "pad_id": [[0]]}


ENGINE_TENSORS: list[tuple[str, Array, str, Any]] = [
    ("top_k", integer(5), "runtime_top_k", [[5]]),
    ("top_p", real(0.5), "runtime_top_p", [[0.5]]),
    ("temperature", real(0.25), "temperature", [[0.25]]),
    ("length_penalty", real(2), "len_penalty", [[2.0]]),
    ("repetition_penalty", real(1.5), "repetition_penalty", [[1.5]]),
    ("presence_penalty", real(-0.5), "presence_penalty", [[-0.5]]),
    ("frequency_penalty", real(0.5), "frequency_penalty", [[0.5]]),
    ("end_id", integer(17), "end_id", [[17]]),
    ("end_id", integer(-1), "end_id", [[-1]]),
    ("pad_id", integer(3), "pad_id", [[3]]),
]


@pytest.mark.parametrize(("name", "value", "tensor", "expected"), ENGINE_TENSORS, ids=[r[0] for r in ENGINE_TENSORS])
def test_goes_to_the_engines(tokenizer: Tokenizer, name: str, value: Array, tensor: str, expected: Any) -> None:
    (prompt,) = BlsParser(tokenizer, LIMITS).parse(request(**{name: value})).prompts
    assert prompt.tensors[tensor].tolist() == expected
    assert prompt.tensors[tensor].dtype == value.dtype


DEFAULTS = {
    **{"top_k": integer(0), "top_p": real(0), "temperature": real(1), "length_penalty": real(0)},
    **{"repetition_penalty": real(1), "presence_penalty": real(0), "frequency_penalty": real(0)},
}


@pytest.mark.parametrize("sent", [DEFAULTS, *({name: value} for name, value in DEFAULTS.items())], ids=str)
def test_a_default_that_is_spelt_out_is_as_good_as_none(tokenizer: Tokenizer, sent: dict[str, Array]) -> None:
    """Only calls with the same tensors can be shared."""
    parser = BlsParser(tokenizer, LIMITS)
    (given,), (plain,) = parser.parse(request(**sent)).prompts, parser.parse(request()).prompts
    assert EngineInputs(given.tensors).key == EngineInputs(plain.tensors).key
    assert given.sampled is plain.sampled is False


@pytest.mark.parametrize(
    ("sent", "top_k", "reason"),
    [
        ({"temperature": real(0), "top_p": real(0.9)}, [[1]], "top_p would become 1, without top_k"),
        ({"temperature": real(0), "top_k": integer(50)}, [[1]], "not 50"),
        ({"temperature": real(0)}, [[1]], "as without it"),
        ({"temperature": real(0.5), "top_p": real(0.9)}, None, "sampling is left as it is"),
    ],
)
def test_temperature_0_is_greedy_whatever_else_is_sent(
    tokenizer: Tokenizer, sent: dict[str, Array], top_k: Any, reason: str
) -> None:
    (prompt,) = BlsParser(tokenizer, LIMITS).parse(request(**sent)).prompts
    found = prompt.tensors.get("runtime_top_k")
    assert (None if found is None else found.tolist()) == top_k, reason


@pytest.mark.parametrize(
    ("sent", "least"),
    [
        ({"min_tokens": 5}, 5),
        ({"min_length": 6}, 6),
        ({"min_tokens": 5, "min_length": 6}, 5),
        ({"min_tokens": -1}, 0),
    ],
)
def test_min_tokens_by_either_name(tokenizer: Tokenizer, sent: dict[str, int], least: int) -> None:
    """`min_length` is what GenAI-Perf says."""
    tensors = request(**{name: integer(value) for name, value in sent.items()})
    assert BlsParser(tokenizer, LIMITS).parse(tensors).prompts[0].min_tokens == least


def test_end_id_of_the_client_is_the_only_one(tokenizer: Tokenizer) -> None:
    (prompt,) = BlsParser(tokenizer, LIMITS).parse(request(end_id=integer(17))).prompts
    assert prompt.end_ids == {17}


def test_rows_are_their_prompts_own(tokenizer: Tokenizer) -> None:
    parsed = BlsParser(tokenizer, LIMITS).parse(
        {
            "text_input": strings(["a"], ["for i"], ["class"]),
            "max_tokens": np.array([[3], [2], [1]], np.int32),
            "stop_words": strings(["x", ""], ["", ""], ["y", "zz"]),
            "num_draft_tokens": np.array([[0], [2], [9]], np.int32),
            "seed": np.array([[1], [2], [2**64 - 1]], np.uint64),
            "stream": np.array([[True], [True], [True]]),
        }
    )
    assert parsed.stream
    assert [p.max_tokens for p in parsed.prompts] == [3, 2, 1]
    assert [p.stop_words for p in parsed.prompts] == [("x",), (), ("y", "zz")]
    assert [p.num_draft_tokens for p in parsed.prompts] == [0, 2, 4], "capped by the service's"
    assert [p.seed for p in parsed.prompts] == [1, 2, 2**64 - 1]


def test_word_lists_and_bias(tokenizer: Tokenizer) -> None:
    words = ["return", "in"]
    (prompt,) = (
        BlsParser(tokenizer, LIMITS)
        .parse(
            request(
                bad_words=strings(words),
                embedding_bias_words=strings(words),
                embedding_bias_weights=np.array([[2.0, -1.0]], np.float32),
            )
        )
        .prompts
    )
    first, second = (tokenizer.encode(word) for word in words)
    table = prompt.tensors["bad_words_list"]
    assert table.shape == (1, 2, len(first) + len(second))
    assert table[0, 0].tolist() == first + second
    assert table[0, 1, :2].tolist() == [len(first), len(first) + len(second)]
    assert (table[0, 1, 2:] == -1).all()
    bias = prompt.tensors["embedding_bias"]
    assert bias.shape == (1, LIMITS.vocab_size)
    assert bias.sum() == pytest.approx(2.0 * len(first) - len(second))


def test_token_ids_instead_of_text(tokenizer: Tokenizer) -> None:
    parser = BlsParser(tokenizer, LIMITS)
    text = parser.parse(request()).prompts[0]
    ids = np.pad(text.ids[None], ((0, 1), (0, 3)))
    ids[1, :2] = [5, 6]
    lengths = np.array([[len(text.ids)], [2]], np.int32)
    tensors = {"input_ids": ids, "input_lengths": lengths, "max_tokens": np.array([[8], [8]], np.int32)}
    first, second = parser.parse(tensors).prompts
    assert (first.ids.tolist(), first.text) == (text.ids.tolist(), "def add(")
    assert second.ids.tolist() == [5, 6]


@pytest.mark.parametrize(
    ("sent", "named"),
    [
        ({"length_penalty": real(2)}, "length_penalty"),
        ({"return_log_probs": np.array([[True]])}, "return_log_probs"),
        ({"embedding_bias_words": strings(["x"]), "embedding_bias_weights": real(1)}, "embedding_bias_words"),
        ({"temperature": real(0.5), "top_p": real(0.9)}, "temperature"),
        ({"temperature": real(0.5)}, ""),
        ({"temperature": real(0), "top_p": real(0.9), "length_penalty": real(1)}, ""),
    ],
)
def test_what_the_engines_would_drop_is_refused(tokenizer: Tokenizer, sent: dict[str, Any], named: str) -> None:
    names = ("temperature", "length_penalty", "logprobs", "embedding_bias")
    refused = RefusedParameters(dict.fromkeys(names, "the engine drops it; leave it out"))
    parser = BlsParser(tokenizer, LIMITS, parameters=refused)
    if not named:
        assert parser.parse(request(**sent))
        return
    with pytest.raises(RequestError, match=f"^{named} is not supported: the engine drops it"):
        parser.parse(request(**sent))
