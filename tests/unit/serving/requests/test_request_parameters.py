"""Request parameters: unknown ones are refused by name; those of Triton and of known clients pass."""

import pytest

from tandem_serving.bls import request as bls
from tandem_serving.errors import RequestError
from tandem_serving.llmapi import request as llmapi
from tandem_serving.requests.request_parameters import KnownParameters

BLS = KnownParameters(
    ("text_input", "max_tokens", "min_tokens", "stop_words", "bad_words", "temperature", "top_p", "top_k", "stream"),
    bls.REPEATED,
)
LLMAPI = KnownParameters(
    (
        "text_input",
        "streaming",
        "return_stop_reason",
        *(f"sampling_param_{name}" for name in ("stop", "max_tokens", "min_tokens", "temperature", "top_p")),
    ),
    llmapi.REPEATED,
)
UNKNOWN: list[tuple[KnownParameters, str, str]] = [
    (BLS, "stop", "did you mean stop_words?"),
    (BLS, "max_new_tokens", "did you mean max_tokens"),
    (BLS, "temprature", "did you mean temperature?"),
    (BLS, "Temperature", "did you mean temperature?"),
    (BLS, "top_p", "it is an input, send it as a tensor and not as a parameter"),
    (BLS, "logit_bias_of_openai", "leave it out"),
    (BLS, "prompt", "leave it out"),  # without text_input
    (LLMAPI, "stop", "did you mean sampling_param_stop?"),
    (LLMAPI, "max_new_tokens", "did you mean sampling_param_max_tokens"),
    (LLMAPI, "max_tokens", "did you mean sampling_param_max_tokens?"),
    (LLMAPI, "temprature", "did you mean sampling_param_temperature?"),
    (LLMAPI, "stream", "did you mean streaming?"),
]


@pytest.mark.parametrize(("known", "name", "advice"), UNKNOWN, ids=[f"{name}: {says}" for _, name, says in UNKNOWN])
def test_what_nobody_knows_is_refused_by_its_name(known: KnownParameters, name: str, advice: str) -> None:
    with pytest.raises(RequestError, match=f"^{name} is not known to this model: {advice}"):
        known.check([name], ["max_tokens"])


# what is sent, with which tensors, and by whom
PASS: list[tuple[KnownParameters, list[str], list[str]]] = [
    (BLS, ["sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "binary_data_output"], []),
    (BLS, ["triton_enable_empty_final_response"], []),
    (BLS, ["x-request-id", "X-Tenant"], []),  # headers, where Triton forwards them
    (BLS, ["one_response"], []),  # our unary models
    (LLMAPI, ["error_as_response"], []),  # the OpenAI endpoint
    (BLS, ["prompt"], ["text_input"]),  # AIPerf
    (LLMAPI, ["stream", "max_tokens"], ["streaming", "sampling_param_max_tokens"]),  # GenAI-Perf
    (LLMAPI, ["prompt", "min_tokens"], ["text_input", "sampling_param_min_tokens"]),  # AIPerf
    (LLMAPI, ["exclude_input_in_output"], ["streaming"]),
]


@pytest.mark.parametrize(("known", "parameters", "sent"), PASS, ids=[" ".join(each) for _, each, _ in PASS])
def test_what_triton_and_known_clients_send_passes(
    known: KnownParameters, parameters: list[str], sent: list[str]
) -> None:
    known.check(parameters, sent)
