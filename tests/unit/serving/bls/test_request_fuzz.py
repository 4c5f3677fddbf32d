"""Whatever tensors Triton lets through: a request or a RequestError, never another exception."""

from typing import Any

import hypothesis.extra.numpy as arrays
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tandem_serving.bls.request import BlsParser, RequestLimits
from tandem_serving.errors import RequestError
from tandem_serving.requests.tensors import Array
from tandem_serving.requests.tokenizer import Tokenizer

TYPES: dict[Any, tuple[str, ...]] = {
    np.int32: (
        *("max_tokens", "input_ids", "input_lengths", "end_id", "pad_id", "top_k", "min_tokens", "beam_width"),
        *("num_draft_tokens", "num_return_sequences", "lora_config"),
    ),
    np.float32: (
        *("top_p", "temperature", "length_penalty", "repetition_penalty", "presence_penalty", "frequency_penalty"),
        "embedding_bias_weights",
    ),
    np.uint64: ("seed", "lora_task_id"),
    np.float16: ("lora_weights",),
    np.bool_: ("stream", "exclude_input_in_output", "return_log_probs", "use_draft_logits"),
    np.object_: (
        *("text_input", "bad_words", "stop_words", "embedding_bias_words"),
        *("guided_decoding_guide_type", "guided_decoding_guide"),
    ),
}
NAMES = {name: kind for kind, names in TYPES.items() for name in names}


def tensor(name: str, rows: int) -> st.SearchStrategy[Array]:
    """A tensor of the input's type: of one value a prompt, or of any shape."""
    shape = st.just((rows, 1)) | st.tuples(st.integers(0, 3), st.integers(0, 3)) | st.tuples(st.integers(0, 3))
    texts = st.binary(max_size=8) | st.text(max_size=8).map(str.encode)
    elements = texts if NAMES[name] is np.object_ else None
    return shape.flatmap(lambda size: arrays.arrays(NAMES[name], size, elements=elements))


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Array]:
    """A good request of one or two prompts with up to three odd tensors, or without what it needs."""
    rows = draw(st.integers(1, 2))
    tensors = {
        "text_input": np.full((rows, 1), b"def add(", np.object_),
        "max_tokens": np.full((rows, 1), 5, np.int32),
    }
    for name in draw(st.lists(st.sampled_from(sorted(NAMES)), unique=True, max_size=3)):
        tensors[name] = draw(tensor(name, rows))
    for name in draw(st.sets(st.sampled_from(["text_input", "max_tokens"]), max_size=1)):
        del tensors[name]
    return tensors


@settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(tensors=requests())
def test_a_request_or_what_is_wrong_with_it(tokenizer: Tokenizer, tensors: dict[str, Array]) -> None:
    try:
        request = BlsParser(tokenizer, RequestLimits(max_sequence_len=128, max_draft_len=4, vocab_size=300)).parse(
            tensors
        )
    except RequestError as error:
        assert str(error)
    else:
        count = len(tensors["text_input" if "text_input" in tensors else "input_ids"])
        assert len(request.prompts) == count > 0
