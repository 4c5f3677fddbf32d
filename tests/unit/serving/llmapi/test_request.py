from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tandem_serving.checkpoint import ModelLimits
from tandem_serving.errors import RequestError
from tandem_serving.llmapi.request import Codec, Features, Guide, LlmApiParser, Lora
from tandem_serving.requests.refused import RefusedParameters
from tandem_serving.requests.tensors import Array

LIMITS = ModelLimits(max_sequence_len=128, vocab_size=300)
CODEC = Codec(
    encode=lambda text: [300 if text.endswith("<image>") else byte for byte in text.strip("\0").encode()],
    decode=lambda ids: bytes(ids).decode(errors="replace"),
    longest_token=1,
    special=lambda words: {},
)


def strings(*texts: str) -> Array:
    return np.array([text.encode() for text in texts], np.object_)


def one(value: float, kind: Any = np.int32) -> Array:
    return np.array([value], kind)


def request(**changes: Array | None) -> dict[str, Array]:
    tensors = {"text_input": strings("def add("), **changes}
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def parser(**features: Any) -> LlmApiParser:
    return LlmApiParser(CODEC, LIMITS, Features(**features))


REFUSED: list[tuple[str, dict[str, Array | None], str]] = [
    ("no prompt", {"text_input": None}, "text_input is missing"),
    ("no prompts", {"text_input": strings()}, "text_input is empty: send at least one prompt"),
    ("an empty prompt", {"text_input": strings("a", "")}, "the prompt is empty"),
    ("a token that only the tokenizer has", {"text_input": strings("a" * 9 + "<image>")}, "holds the token 300, and"),
    ("no token", {"text_input": strings("\0")}, "the prompt has no tokens: send some text"),
    ("bytes", {"text_input": np.array([b"\xff"], np.object_)}, "text_input is not valid UTF-8"),
    ("texts and ids", {"input_ids": np.array([[5]], np.int32)}, "both text_input and input_ids hold prompts"),
    ("an id too high", {"text_input": None, "input_ids": np.array([[300]], np.int32)}, "input_ids holds 300"),
    ("an id below 0", {"text_input": None, "input_ids": np.array([[-1]], np.int32)}, "input_ids holds -1"),
    (
        "a length too long",
        {"text_input": None, "input_ids": np.array([[5]], np.int32), "input_lengths": one(2)},
        "input_lengths is 2",
    ),
    ("an image", {"image_url": strings("http://x")}, "image_url is not supported: this service takes text only"),
    ("no tokens", {"sampling_param_max_tokens": one(0)}, "sampling_param_max_tokens is 0: it must be 1 or more"),
    ("too long", {"sampling_param_max_tokens": one(121)}, "make 129, more than the model's limit of 128"),
    (
        "three for one",
        {"sampling_param_top_k": np.array([1, 2, 3], np.int32)},
        "top_k holds 3 values, but there are 1",
    ),
    ("not a number", {"sampling_param_temperature": one(np.nan, np.float32)}, "sampling_param_temperature is nan"),
    ("top_p above 1", {"sampling_param_top_p": one(1.5, np.float32)}, "sampling_param_top_p is 1.5: it must lie"),
    ("min_p below 0", {"sampling_param_min_p": one(-0.5, np.float32)}, "sampling_param_min_p is -0.5: it must lie"),
    ("top_k below 0", {"sampling_param_top_k": one(-1)}, "sampling_param_top_k is -1: it must be 0 (all) or more"),
    ("min_tokens below 0", {"sampling_param_min_tokens": one(-1)}, "sampling_param_min_tokens is -1"),
    ("repetition of 0", {"sampling_param_repetition_penalty": one(0, np.float32)}, "it must be above 0"),
    ("infinite presence", {"sampling_param_presence_penalty": one(np.inf, np.float32)}, "it must be finite"),
    ("best of none", {"sampling_param_best_of": one(0)}, "sampling_param_best_of is 0: it must be 1 or more"),
    (
        "the best, streamed",
        {"sampling_param_best_of": one(2), "streaming": one(True, np.bool_)},
        "sampling_param_best_of cannot be streamed",
    ),
    (
        "more of them than the engine runs",
        {"sampling_param_best_of": one(2_000_000_000)},
        "sampling_param_best_of is 2000000000: the engine runs 64 sequences at once",
    ),
    (
        "more prompts than there is room for",
        {"text_input": np.full(30_000, b"x", np.object_), "sampling_param_stop": np.full(1000, b"x", np.object_)},
        "the request has 30000 prompts and the service holds 1088 at most",
    ),
    (
        "too many words",
        {"sampling_param_bad": np.full(1001, b"x", np.object_)},
        "sampling_param_bad holds 1001 words",
    ),
    ("a text too long", {"text_input": strings("x" * 129)}, "the prompt's 129 characters are more than the model's"),
    (
        "too many ids",
        {"text_input": None, "input_ids": np.zeros((1, 129), np.int32)},
        "input_ids holds 129 tokens, the model's limit is 128",
    ),
    ("a guide", {"guided_decoding_guide_type": strings("json")}, "this service has no guided_decoding_backend"),
    ("an adapter", {"lora_id": one(1, np.uint64)}, "this service names no folders of adapters"),
]


@pytest.mark.parametrize(("reason", "changes", "message"), REFUSED, ids=[reason for reason, _, _ in REFUSED])
def test_refused(reason: str, changes: dict[str, Array | None], message: str) -> None:
    with pytest.raises(RequestError) as error:
        parser().parse(request(**changes))
    assert message in str(error.value)


def test_defaults_are_upstream_s() -> None:
    parsed = parser().parse(request())
    (prompt,) = parsed.prompts
    assert not (parsed.stream or parsed.stop_reason or parsed.cumulative_logprob or parsed.perf_metrics)
    assert prompt.sampling == {"max_tokens": 32}
    assert prompt.echo, "upstream's exclude_input_from_output is false unless sent"
    assert (prompt.ids, prompt.stop_words, prompt.guide, prompt.lora) == (list(b"def add("), (), None, None)


def test_a_prompt_is_repeated_as_it_is_decoded() -> None:
    """As its answer is, in which a special token has no text; here, "!" has none."""
    codec = replace(CODEC, decode=lambda ids: CODEC.decode(ids).replace("!", ""))
    exclude = {"sampling_param_exclude_input_from_output": one(True, np.bool_)}
    for more, text in (({}, "ab"), (exclude, "a!b")):
        (prompt,) = LlmApiParser(codec, LIMITS, Features()).parse(request(text_input=strings("a!b"), **more)).prompts
        assert (prompt.text, prompt.ids) == (text, list(b"a!b"))


SAMPLING: list[tuple[str, Array, dict[str, Any]]] = [
    ("top_k", one(5), {"top_k": 5}),
    ("top_p", one(0.5, np.float32), {"top_p": 0.5}),
    ("temperature", one(0.25, np.float32), {"temperature": 0.25}),
    ("temperature", one(0, np.float32), {"temperature": 0}),
    ("min_p", one(0.5, np.float32), {"min_p": 0.5}),
    ("max_tokens", one(7), {"max_tokens": 7}),
    ("min_tokens", one(2), {"min_tokens": 2}),
    ("seed", one(2**64 - 1, np.uint64), {"seed": 2**64 - 1}),
    ("best_of", one(2), {"best_of": 2}),
    ("frequency_penalty", one(0.5, np.float32), {"frequency_penalty": 0.5}),
    ("presence_penalty", one(-0.5, np.float32), {"presence_penalty": -0.5}),
    ("repetition_penalty", one(1.5, np.float32), {"repetition_penalty": 1.5}),
    ("ignore_eos", one(True, np.bool_), {"ignore_eos": True}),
    ("bad", strings("x", "", "yy"), {"bad": ["x", "yy"]}),
]


@pytest.mark.parametrize(("name", "value", "fields"), SAMPLING, ids=[f"{n} {v}" for n, v, _ in SAMPLING])
def test_goes_to_the_engine(name: str, value: Array, fields: dict[str, Any]) -> None:
    (prompt,) = parser().parse(request(**{f"sampling_param_{name}": value})).prompts
    assert prompt.sampling == {"max_tokens": 32} | fields
    assert all(type(value) in (int, float, bool, list) for value in prompt.sampling.values()), (
        "no numpy: it is pickled"
    )


def test_one_value_is_for_all_and_n_are_one_each() -> None:
    parsed = parser().parse(
        {
            "text_input": strings("a", "for i", "class"),
            "sampling_param_max_tokens": np.array([3, 2, 1], np.int32),
            "sampling_param_seed": one(9, np.uint64),
            "sampling_param_stop": strings("x", "yy"),
            "streaming": one(True, np.bool_),
        }
    )
    assert parsed.stream
    assert [p.sampling for p in parsed.prompts] == [{"max_tokens": n, "seed": 9} for n in (3, 2, 1)]
    assert [p.stop_words for p in parsed.prompts] == [("x", "yy")] * 3, "the list is the request's"
    assert not any(p.echo for p in parsed.prompts), "a stream has no prompt in it"


def test_token_ids_instead_of_text() -> None:
    ids = np.array([[100, 101, 102], [103, 0, 0]], np.int32)
    tensors = {"input_ids": ids, "input_lengths": np.array([3, 1], np.int32)}
    first, second = parser().parse(tensors).prompts
    assert (first.ids, first.text) == ([100, 101, 102], "def")
    assert (second.ids, second.text) == ([103], "g")


def test_an_incomplete_character_of_token_ids_is_left_to_the_new_text() -> None:
    ids = np.array([[100, 101, *"🗼".encode()[:3]]], np.int32)
    (prompt,) = parser().parse({"input_ids": ids}).prompts
    assert (prompt.ids, prompt.text) == (ids[0].tolist(), "de")


GUIDES: list[tuple[str, str, Guide | str]] = [
    ("json", "", Guide("json")),
    ("json", "{}", Guide("json")),
    ("json_schema", '{"type": "object"}', Guide("json_schema", '{"type": "object"}')),
    ("regex", "[a-z]+", Guide("regex", "[a-z]+")),
    ("ebnf_grammar", 'root ::= "a"', Guide("ebnf_grammar", 'root ::= "a"')),
    ("structural_tag", "{}", Guide("structural_tag", "{}")),
    ("regex", "", "guided_decoding_guide is empty: send the regex in it"),
    ("xml", "<a/>", "guided_decoding_guide_type is 'xml': send one of json, json_schema, regex"),
    ("", "[a-z]+", "guided_decoding_guide_type is ''"),
]


@pytest.mark.parametrize(("kind", "guide", "expected"), GUIDES, ids=[f"{kind} {guide}" for kind, guide, _ in GUIDES])
def test_guides(kind: str, guide: str, expected: Guide | str) -> None:
    tensors = request(guided_decoding_guide_type=strings(kind), guided_decoding_guide=strings(guide))
    if isinstance(expected, Guide):
        assert parser(guided_decoding=True).parse(tensors).prompts[0].guide == expected
        return
    with pytest.raises(RequestError) as error:
        parser(guided_decoding=True).parse(tensors)
    assert expected in str(error.value)


def adapter(path: Path | str, **changes: Array | None) -> dict[str, Array]:
    return request(
        **{"lora_id": one(7, np.uint64), "lora_name": strings("sql"), "lora_path": strings(str(path)), **changes}
    )


def test_an_adapter_of_the_service_s(tmp_path: Path) -> None:
    (tmp_path / "sql").mkdir()
    (prompt,) = parser(lora_dirs=(tmp_path,)).parse(adapter(tmp_path / "sql")).prompts
    assert prompt.lora == Lora(7, "sql", str(tmp_path / "sql"), "hf")


def test_paths_that_are_not_the_service_s_are_refused(tmp_path: Path) -> None:
    allowed = tmp_path / "adapters"
    (allowed / "sql").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (allowed / "link").symlink_to(tmp_path / "other")
    for path in ["/etc", f"{tmp_path}/other", f"{allowed}/../other", f"{allowed}/link", f"{allowed}/missing"]:
        with pytest.raises(
            RequestError, match=r"is not this service's: send a folder below its lora_config\.lora_dir"
        ):
            parser(lora_dirs=(allowed,)).parse(adapter(path))


def test_an_adapter_needs_its_three_names(tmp_path: Path) -> None:
    for missing in ("lora_id", "lora_name", "lora_path"):
        with pytest.raises(RequestError, match="belong together: send all three"):
            parser(lora_dirs=(tmp_path,)).parse(adapter(tmp_path, **{missing: None}))
    with pytest.raises(RequestError, match="lora_ckpt_source is 'gguf': send one of hf, nemo"):
        parser(lora_dirs=(tmp_path,)).parse(adapter(tmp_path, lora_ckpt_source=strings("gguf")))


def test_minus_one_is_as_many_tokens_as_the_limit_leaves() -> None:
    (prompt,) = parser().parse(request(sampling_param_max_tokens=one(-1))).prompts
    assert prompt.sampling["max_tokens"] == LIMITS.max_sequence_len - len(prompt.ids)
    with pytest.raises(RequestError, match="sampling_param_max_tokens is -2"):
        parser().parse(request(sampling_param_max_tokens=one(-2)))
    full = np.ones((1, LIMITS.max_sequence_len), np.int32)
    with pytest.raises(RequestError, match="more than the model's limit"):
        parser().parse(request(text_input=None, input_ids=full, sampling_param_max_tokens=one(-1)))


@pytest.mark.parametrize(
    ("sent", "named"),
    [
        ({"sampling_param_bad": strings("x")}, "sampling_param_bad"),
        ({"return_cumulative_logprob": one(1, np.bool_)}, "return_cumulative_logprob"),
        ({"return_log_probs": one(1, np.bool_)}, "return_log_probs"),
        ({"return_prompt_log_probs": one(1, np.bool_)}, "return_prompt_log_probs"),
        (
            {"sampling_param_seed": one(7, np.uint64), "sampling_param_top_p": one(0.9, np.float32)},
            "sampling_param_s",
        ),
        ({"sampling_param_seed": one(7, np.uint64), "sampling_param_temperature": one(0, np.float32)}, ""),
        ({"sampling_param_seed": one(7, np.uint64)}, ""),
    ],
)
def test_what_the_engine_would_drop_is_refused(sent: dict[str, Array], named: str) -> None:
    refused = RefusedParameters(dict.fromkeys(("seed", "bad_words", "logprobs"), "the engine drops it; leave it out"))
    if not named:
        assert parser(refused=refused).parse(request(**sent))
        return
    with pytest.raises(RequestError, match=f"^{named}.* is not supported: (the engine drops it|this service's)"):
        parser(refused=refused).parse(request(**sent))


def test_min_tokens_goes_no_further_where_nothing_ends_the_text() -> None:
    """TensorRT-LLM 1.2 would ban the vocabulary's last token instead (pull request 12358)."""
    sent = {"sampling_param_min_tokens": one(5), "sampling_param_ignore_eos": one(1, np.bool_)}
    (prompt,) = parser().parse(request(**sent)).prompts
    assert "min_tokens" not in prompt.sampling
    assert prompt.sampling["ignore_eos"]


def test_the_models_end_tokens_unless_they_are_ignored() -> None:
    ends = frozenset({7, 8})
    (prompt,) = parser(end_ids=ends).parse(request()).prompts
    (ignoring,) = parser(end_ids=ends).parse(request(sampling_param_ignore_eos=one(1, np.bool_))).prompts
    assert (prompt.end_ids, ignoring.end_ids) == (ends, frozenset())
