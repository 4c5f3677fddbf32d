"""From Triton's chunks to OpenAI's responses."""

import json
from typing import Any

import pytest

from tandem_serving.openai.api import ChatRequest, CompletionRequest
from tandem_serving.openai.completion import Completion, Delta, Reading
from tandem_serving.openai.thinking import Markers, ThoughtReader
from tandem_serving.openai.triton import Chunk

FIGURES = {"input_tokens": 5, "output_tokens": 3, "draft_tokens": 4, "accepted_draft_tokens": 1}


def chunk(text: str, reason: str = "", figures: dict[str, int] | None = None, **more: Any) -> Chunk:
    given = {"ids": [], "log_probs": [], **more}
    return Chunk(text, given["ids"], given["log_probs"], reason, figures or {})


def chat(**more: Any) -> Completion:
    messages = [{"role": "user", "content": "x"}]
    return Completion(ChatRequest.model_validate({"model": "m", "messages": messages, **more}), ("id", 7))


def completions(echo: tuple[str, ...] = (), **more: Any) -> Completion:
    return Completion(CompletionRequest.model_validate({"model": "m", "prompt": "x", **more}), ("id", 7), echo)


def deltas(completion: Completion, *chunks: tuple[int, Chunk]) -> list[Delta]:
    found = [completion.delta(index, each, str) for index, each in chunks]
    return [delta for delta in found if delta]


def test_a_chat_s_stream() -> None:
    completion = chat(stream=True, stream_options={"include_usage": True})
    made = deltas(completion, (0, chunk("He")), (0, chunk("")), (0, chunk("llo", "length", FIGURES)))
    head = {"id": "id", "object": "chat.completion.chunk", "created": 7, "model": "m"}

    def event(delta: dict[str, str], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {**head, "choices": [choice], "usage": None}

    assert [completion.event(delta) for delta in made] == [
        event({"role": "assistant", "content": "He"}),
        event({}),
        event({"content": "llo"}, "length"),
    ]
    assert completion.last_event() == {**head, "choices": [], "usage": completion.usage()}


ACCEPTANCE = {
    "mean_acceptance_length": 1.5,
    "draft_acceptance_rate": 0.25,
    "acceptance_histogram": [1, 1, 0],
    "num_spec_steps": 2,
    "num_accepted_draft_tokens": 1,
    "num_draft_tokens": 4,
    "num_spec_tokens": 2,
}


def test_one_sequence_s_acceptance_is_in_the_metrics_as_vllm_s_own_server_has_it() -> None:
    drafted, plain = (chunk("a", "length", FIGURES)._replace(rounds=rounds) for rounds in ([1, 1, 0], []))
    for asked, chunks, told in [
        (chat(), [drafted], True),
        (completions(), [drafted], True),
        (completions(), [plain], False),
        (completions(n=2), [drafted, drafted], False),  # of several, vLLM's has none
    ]:
        whole = asked.whole(deltas(asked, *enumerate(chunks)))
        assert whole.get("metrics") == ({"speculative_decoding": ACCEPTANCE} if told else None)
        assert asked.last_event().get("metrics") == whole.get("metrics")


def test_a_whole_chat() -> None:
    completion = chat()
    assert completion.whole(deltas(completion, (0, chunk("Hello", "end_id", FIGURES)))) == {
        "id": "id",
        "object": "chat.completion",
        "created": 7,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 5,
            "completion_tokens": 3,
            "total_tokens": 8,
            "completion_tokens_details": {"accepted_prediction_tokens": 1, "rejected_prediction_tokens": 3},
        },
    }


def test_choices_are_in_order_and_a_prompt_counts_once() -> None:
    completion = completions(n=2, prompt=["a", "b"])
    made = deltas(completion, *((index, chunk(str(index), "length", FIGURES)) for index in (3, 0, 2, 1)))
    whole = completion.whole(made)
    assert [(choice["index"], choice["text"]) for choice in whole["choices"]] == [(i, str(i)) for i in range(4)]
    assert (whole["usage"]["prompt_tokens"], whole["usage"]["completion_tokens"]) == (10, 12)


def test_what_the_engine_does_not_report_is_absent() -> None:
    completion = completions()
    deltas(completion, (0, chunk("a", "length", {"input_tokens": 1, "output_tokens": 1})))
    assert "completion_tokens_details" not in completion.usage()


STOPS: list[tuple[list[str], str, str]] = [
    # chunks, the last one's finish_reason, the text with stop word "END"
    (["abEND"], "stop", "ab"),  # mode BLS keeps the word
    (["ab"], "stop", "ab"),  # mode LLMAPI cuts it
    (["abE", "N", "D"], "stop", "ab"),
    (["abE", "Nx"], "length", "abENx"),
    (["abE"], "length", "abE"),
]


@pytest.mark.parametrize(("texts", "reason", "wanted"), STOPS, ids=[str(row) for row in STOPS])
def test_a_text_ends_before_its_stop_word(texts: list[str], reason: str, wanted: str) -> None:
    completion = completions(stop="END")
    chunks = [
        chunk(text, reason if end else "") for end, text in zip([0] * (len(texts) - 1) + [1], texts, strict=True)
    ]
    assert "".join(delta.text for delta in deltas(completion, *((0, each) for each in chunks))) == wanted


def test_a_choice_that_a_stop_word_ended_here_is_over_while_the_engine_goes_on() -> None:
    reading = Reading(thoughts=lambda: ThoughtReader(Markers("<t>", "</t>"), True), prompt_tokens=5)
    request = ChatRequest.model_validate(
        {"model": "m", "messages": [{"role": "user", "content": "x"}], "n": 2, "stop": "END"}
    )
    completion = Completion(request, ("id", 7), reading=reading)
    assert completion.stops_here
    made = deltas(
        completion,
        (0, chunk("aEND</t>", ids=[1, 2])),
        (0, chunk("bEND", ids=[3])),
        (0, chunk("more", ids=[4])),
    )
    assert [delta.text for delta in made] == ["aEND</t>", "b"], "in the thought the word is text"
    assert [delta.finish_reason for delta in made] == [None, "stop"]
    assert not completion.left_behind(2), "the other choice has not begun"
    [last] = deltas(completion, (1, chunk("c</t>END", "length", {"input_tokens": 5, "output_tokens": 3})))
    assert (last.text, last.finish_reason) == ("c</t>", "stop")
    assert completion.left_behind(2)
    assert completion.usage() == {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}
    assert not deltas(completion, (0, chunk("", "length", FIGURES)))
    assert not completion.left_behind(2), "what is over in the engine needs no end"


def test_echo_comes_once_a_choice() -> None:
    made = deltas(completions(("P", "Q"), n=2), (1, chunk("b")), (0, chunk("a")), (1, chunk("c")))
    assert [delta.text for delta in made] == ["Qb", "Pa", "c"]


def test_log_probs_of_both_apis() -> None:
    tokens: dict[str, Any] = {"ids": [1, 2], "log_probs": [-0.5, -1.0]}
    completion = chat(logprobs=True)
    [choice] = completion.whole(deltas(completion, (0, chunk("12", "length", **tokens))))["choices"]
    assert choice["logprobs"]["content"] == [
        {"token": "1", "logprob": -0.5, "bytes": [49], "top_logprobs": []},
        {"token": "2", "logprob": -1.0, "bytes": [50], "top_logprobs": []},
    ]
    completion = completions(logprobs=0)
    [choice] = completion.whole(deltas(completion, (0, chunk("12", "length", **tokens))))["choices"]
    assert choice["logprobs"]["tokens"] == ["1", "2"]
    assert choice["logprobs"]["token_logprobs"] == [-0.5, -1.0]
    assert choice["logprobs"]["text_offset"] == [0, 1]
    completion = completions(logprobs=0, stream=True)
    made = deltas(completion, (0, chunk("12", **tokens)), (0, chunk("12", "length", **tokens)))
    offsets = [completion.event(delta)["choices"][0]["logprobs"]["text_offset"] for delta in made]
    assert offsets == [[0, 1], [2, 3]], "a stream goes on where it was"


def test_an_echo_has_log_probs_of_all_tokens_but_the_first() -> None:
    completion = completions(("34",), logprobs=0)
    first = chunk("1", ids=[1], log_probs=[-0.5])._replace(prompt_ids=[3, 4], prompt_log_probs=[-2.0])
    made = deltas(completion, (0, first), (0, chunk("2", "length", ids=[2], log_probs=[-1.0])))
    [choice] = completion.whole(made)["choices"]
    assert choice["text"] == "3412"
    assert choice["logprobs"] == {
        "tokens": ["3", "4", "1", "2"],
        "token_logprobs": [None, -2.0, -0.5, -1.0],
        "top_logprobs": None,
        "text_offset": [0, 1, 2, 3],
    }


def test_answers_are_json() -> None:
    completion = chat()
    assert json.dumps(completion.whole(deltas(completion, (0, chunk("ü", "timeout")))))
