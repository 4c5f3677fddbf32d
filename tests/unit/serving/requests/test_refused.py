"""Parameters that an engine would drop: what asks for them, and what asks for nothing."""

from typing import Any

import pytest

from tandem_serving.errors import RequestError
from tandem_serving.requests.refused import RefusedParameters

OLD = RefusedParameters(
    dict.fromkeys(
        [
            *("seed", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "bad_words"),
            *("min_tokens", "best_of", "logprobs", "length_penalty"),
        ],
        "the engine drops it",
    )
)
GREEDY = RefusedParameters(dict.fromkeys(("temperature", "top_k", "top_p"), "it draws nothing; send temperature 0"))
MEDUSA = RefusedParameters(dict.fromkeys(("temperature", "top_p"), "it draws by top_k only"))
ROWS: list[tuple[str, RefusedParameters, dict[str, Any], bool, str]] = [
    # why, refused parameters, what is asked, whether it is greedy, the parameter that is refused
    ("nothing is asked", OLD, {}, True, ""),
    ("a seed with samples", OLD, {"temperature": 1.0, "seed": 7}, False, "seed"),
    ("seed 0 is a seed", OLD, {"temperature": 1.0, "seed": 0}, False, "seed"),
    ("a seed changes no greedy text", OLD, {"temperature": 0.0, "seed": 7}, True, ""),
    ("nor does min_p", OLD, {"min_p": 0.1}, True, ""),
    ("min_p with samples", OLD, {"temperature": 1.0, "min_p": 0.1}, False, "min_p"),
    ("min_p 0 asks for nothing", OLD, {"temperature": 1.0, "min_p": 0.0}, False, ""),
    ("a penalty", OLD, {"presence_penalty": 0.5}, True, "presence_penalty"),
    ("a negative one", OLD, {"frequency_penalty": -0.5}, True, "frequency_penalty"),
    ("penalties of nothing", OLD, {"repetition_penalty": 1.0, "presence_penalty": 0, "min_tokens": 0}, False, ""),
    ("a repetition", OLD, {"repetition_penalty": 1.1}, False, "repetition_penalty"),
    ("one of one", OLD, {"best_of": 1, "logprobs": False, "bad_words": []}, False, ""),
    ("of several", OLD, {"best_of": 2}, False, "best_of"),
    ("words", OLD, {"bad_words": ["x"]}, False, "bad_words"),
    ("log probabilities", OLD, {"logprobs": True}, True, "logprobs"),
    ("a least number of tokens", OLD, {"min_tokens": 3}, True, "min_tokens"),
    ("nothing ends the text before it", OLD, {"min_tokens": 3, "ignore_eos": True}, True, ""),
    ("beams' own default", OLD, {"length_penalty": 1.0}, True, ""),
    ("a penalty of beams", OLD, {"length_penalty": 2.0}, True, "length_penalty"),
    ("what is not in the list", OLD, {"top_k": 5, "temperature": 0.5}, False, ""),
    ("greedy is what it does", GREEDY, {"temperature": 0.0, "top_p": 1.0}, True, ""),
    ("OpenAI's default", GREEDY, {"temperature": 1.0, "top_p": 1.0}, False, "temperature"),
    ("top_p alone", GREEDY, {"top_p": 0.9}, False, "top_p"),
    ("top_k alone", GREEDY, {"top_k": 5}, False, "top_k"),
    ("of all tokens", MEDUSA, {"temperature": 1.0, "top_p": 1.0}, False, "temperature"),
    ("of five", MEDUSA, {"temperature": 1.0, "top_p": 1.0, "top_k": 5}, False, ""),
    ("of five, at a temperature", MEDUSA, {"temperature": 0.5, "top_k": 5}, False, "temperature"),
    ("none is refused", RefusedParameters.parse(""), {"seed": 7}, False, ""),
]


@pytest.mark.parametrize(("why", "refused", "asked", "greedy", "name"), ROWS, ids=[row[0] for row in ROWS])
def test_the_first_that_is_refused(
    why: str, refused: RefusedParameters, asked: dict[str, Any], greedy: bool, name: str
) -> None:
    assert refused.first(asked, greedy) == name, why


def test_the_message_has_the_models_own_name() -> None:
    refused = RefusedParameters.parse('{"seed": "the engine drops it; leave it out"}')
    with pytest.raises(
        RequestError, match=r"^sampling_param_seed is not supported: the engine drops it; leave it out"
    ):
        refused.check({"seed": 1}, False, {"seed": "sampling_param_seed"})
