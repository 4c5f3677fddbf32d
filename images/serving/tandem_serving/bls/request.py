"""From a request's tensors to what is to be generated; everything that can be wrong is found here.

Tensors are those of upstream's `tensorrt_llm_bls`: a batch dimension of n prompts first, scalars as [n, 1].
All prompts are checked before any work starts: one bad prompt refuses the whole request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tandem_serving.bls.calls import IntArray
from tandem_serving.errors import RequestError
from tandem_serving.requests.refused import RefusedParameters
from tandem_serving.requests.sampling_parameters import BLS, of_mode, passed_on
from tandem_serving.requests.tensors import NUMPY, TO_THE_LIMIT, Array, RequestTensors, tokens_of_text
from tandem_serving.requests.text import whole_characters
from tandem_serving.requests.tokenizer import Tokenizer

_TEXT, _IDS = "text_input", "input_ids"
_MULTIMODAL = "this service takes text only; leave it out"
_TUNING = "virtual tokens mean nothing to the draft engine; ask the tensorrt_llm model"
UNSUPPORTED = {
    "decoder_text_input": "encoder-decoder models are not supported; leave it out",
    "image_input": _MULTIMODAL,
    "image_bytes_input": _MULTIMODAL,
    "image_url_input": _MULTIMODAL,
    "video_bytes_input": _MULTIMODAL,
    "prompt_embedding_table": _TUNING,
    "prompt_vocab_size": _TUNING,
    "prompt_table_extra_id": _TUNING,
}
# Request parameters that a client sends, and the inputs that say the same.
REPEATED = {"prompt": (_TEXT,)}  # AIPerf counts input tokens there
# Flags that may be sent as false, and numbers that may be sent as 1.
UNSUPPORTED_TRUE = {
    "return_context_logits": "every round has a prompt of its own; ask the tensorrt_llm model for them",
}
UNSUPPORTED_ABOVE_ONE = {
    "beam_width": "a draft is verified against one sequence; send 1, or ask the tensorrt_llm model",
    "num_return_sequences": "send the prompt several times in one request instead, each with a seed of its own",
}


@dataclass(frozen=True)
class RequestLimits:
    """What the service allows: sequence lengths in tokens (prompt and output), draft length, vocabulary.

    `padded`: draft and target have different rows for the one vocabulary, so that no tensor of rows fits both.
    """

    max_sequence_len: int
    max_draft_len: int
    vocab_size: int
    padded: bool = False


# Inputs that go to the target as they come: without them the draft is only right less often.
LORA = ("lora_task_id", "lora_weights", "lora_config")
_INPUTS = {parameter.name: parameter.input(BLS) for parameter in of_mode(BLS)}
_TO_ENGINES = [parameter for parameter in passed_on(BLS) if parameter.engine]
GUIDE = ("guided_decoding_guide_type", "guided_decoding_guide")


@dataclass(frozen=True)
class BlsPrompt:
    """One sequence to generate. `tensors` go to both engines on every call, shapes with batch 1.

    `target_tensors` go to the target alone. `guided`: by a guide, which the engine follows from a call's first
    token on, so that all must come from one call of the target alone. `asked`: the request itself says how many
    draft tokens it wants. `echo`: repeat `text`, what its tokens decode to then, in an answer that is not streamed.
    """

    index: int
    text: str
    ids: IntArray
    max_tokens: int
    num_draft_tokens: int
    min_tokens: int
    seed: int | None
    end_ids: frozenset[int]
    stop_words: tuple[str, ...]
    echo: bool
    tensors: Mapping[str, Array]
    target_tensors: Mapping[str, Array] = field(default_factory=dict)
    asked: bool = False

    @property
    def sampled(self) -> bool:
        """Whether tokens are drawn: by top-k or top-p, unless that leaves one token."""
        top_k = self.tensors.get("runtime_top_k")
        return top_k.item() != 1 if top_k is not None else "runtime_top_p" in self.tensors

    @property
    def guided(self) -> bool:
        """Whether a guide restricts the output."""
        return GUIDE[0] in self.target_tensors


@dataclass(frozen=True)
class BlsRequest:
    """A request's prompts and what it wants back."""

    prompts: tuple[BlsPrompt, ...]
    stream: bool
    log_probs: bool = False
    generation_logits: bool = False
    use_draft_logits: bool = False
    perf_metrics: bool = False
    refused_text: bool = False


@dataclass(frozen=True)
class AcceptanceMethod:
    """How draft tokens are accepted where a request does not say: by logits, and then where the target's probability
    is more than `threshold` of the draft's (None: by the rejection rule)."""

    by_logits: bool = False
    threshold: float | None = None


class BlsParser:
    """Parses requests for one service. `refused`: flags that its engines cannot serve, and why; `parameters`: those
    that they would drop."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        limits: RequestLimits,
        acceptance: AcceptanceMethod | None = None,
        refused: Mapping[str, str] | None = None,
        parameters: RefusedParameters | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._limits = limits
        self._acceptance = acceptance or AcceptanceMethod()
        self._refused = {**UNSUPPORTED_TRUE, **(refused or {})}
        self._parameters = parameters or RefusedParameters()

    def parse(self, tensors: Mapping[str, Array]) -> BlsRequest:
        """Check everything and tokenize. Raises RequestError.

        Prompts are `text_input` object[n, 1], or `input_ids` int32[n, m] filled up behind `input_lengths`
        int32[n, 1] tokens.
        """
        inputs = RequestTensors(tensors, "input_ids" if _IDS in tensors and _TEXT not in tensors else _TEXT)
        if _IDS in tensors and _TEXT in tensors:
            raise RequestError("both text_input and input_ids hold prompts: send one of them")
        _refuse_unsupported(inputs, self._refused)
        stream = inputs.flag("stream")
        return BlsRequest(
            prompts=tuple(self._prompt(inputs, i, stream) for i in range(inputs.count)),
            stream=stream,
            log_probs=inputs.flag("return_log_probs"),
            generation_logits=inputs.flag("return_generation_logits"),
            use_draft_logits=inputs.flag("use_draft_logits", self._acceptance.by_logits),
            perf_metrics=inputs.flag("return_perf_metrics"),
            refused_text=_refused_text(inputs, stream),
        )

    def _prompt(self, inputs: RequestTensors, i: int, stream: bool) -> BlsPrompt:
        text, ids = self._token_ids(inputs, i) if _IDS in inputs.tensors else self._tokenize(inputs, i)
        max_tokens = self._max_tokens(len(ids), inputs.scalar("max_tokens", i))
        seed = inputs.scalar("seed", i)
        ends = self._ends(inputs.scalar("end_id", i))
        echo = not (stream or inputs.scalar("exclude_input_in_output", i, False))
        if echo:  # as its tokens are decoded, as upstream
            text = whole_characters(self._tokenizer.decode, ids)
        self._parameters.check(_asked(inputs, i), not _draws(inputs, i), _INPUTS)
        tensors = self._engine_tensors(inputs, i, ends)
        draft_tokens = self._draft_tokens(inputs.scalar("num_draft_tokens", i))
        return BlsPrompt(
            index=i,
            text=text,
            ids=np.array(ids, np.int32),
            max_tokens=max_tokens,
            num_draft_tokens=0 if self._limits.padded and "embedding_bias" in tensors else draft_tokens,
            # GenAI-Perf sends it by its name of old.
            min_tokens=max(0, inputs.scalar("min_tokens", i, inputs.scalar("min_length", i, 0))),
            seed=None if seed is None else int(seed),
            end_ids=frozenset(ends),
            stop_words=tuple(inputs.strings("stop_words", i)),
            echo=echo,
            tensors=tensors,
            target_tensors={**_target_tensors(inputs, i), **self._threshold(inputs)},
            asked=inputs.scalar("num_draft_tokens", i) is not None,
        )

    def _ends(self, end_id: int | None) -> list[int]:
        if end_id is None:
            return self._tokenizer.end_ids
        if not -1 <= end_id < self._limits.vocab_size:
            raise RequestError(f"end_id is {end_id}: send -1 (none) or a token, 0 to {self._limits.vocab_size - 1}")
        return [end_id]

    def _threshold(self, inputs: RequestTensors) -> dict[str, Array]:
        threshold = self._acceptance.threshold
        if threshold is None or not inputs.flag("use_draft_logits", self._acceptance.by_logits):
            return {}
        # TensorRT-LLM refuses 0 (ExternalDraftTokensConfig).
        least = float(np.finfo(np.float32).tiny)
        return {"draft_acceptance_threshold": np.array([[max(threshold, least)]], np.float32)}

    def _tokenize(self, inputs: RequestTensors, i: int) -> tuple[str, list[int]]:
        text = inputs.text(_TEXT, i)
        if not text:
            raise RequestError("the prompt is empty: send at least one character in text_input")
        limit = self._limits.max_sequence_len
        if len(text) > self._tokenizer.most_characters(limit):
            raise RequestError(
                f"the prompt's {len(text)} characters are more than the model's limit of {limit} tokens can hold: "
                "shorten the prompt"
            )
        return text, tokens_of_text(self._tokenizer.encode(text), self._limits.vocab_size)

    def _token_ids(self, inputs: RequestTensors, i: int) -> tuple[str, list[int]]:
        ids = inputs.token_ids(_IDS, "input_lengths", i, self._limits.max_sequence_len, self._limits.vocab_size)
        return whole_characters(self._tokenizer.decode, ids), ids

    def _max_tokens(self, length: int, max_tokens: int | None) -> int:
        limit = self._limits.max_sequence_len
        if max_tokens == TO_THE_LIMIT:
            max_tokens = max(1, limit - length)
        if max_tokens is None or max_tokens <= 0:
            value = "missing" if max_tokens is None else max_tokens
            raise RequestError(f"max_tokens is {value}: send the number of tokens wanted, 1 or more")
        if length + max_tokens > limit:
            raise RequestError(
                f"the prompt's {length} tokens and max_tokens {max_tokens} make {length + max_tokens}, "
                f"more than the model's limit of {limit}: shorten the prompt or ask for fewer tokens"
            )
        return max_tokens

    def _draft_tokens(self, wanted: int | None) -> int:
        if wanted is None:
            return self._limits.max_draft_len
        if wanted < 0:
            raise RequestError(f"num_draft_tokens is {wanted}: send 0 (no speculation) or more")
        return min(wanted, self._limits.max_draft_len)

    def _engine_tensors(self, inputs: RequestTensors, i: int, end_ids: list[int]) -> dict[str, Array]:
        tensors: dict[str, Array] = {}
        for each in _TO_ENGINES:
            value = inputs.scalar(each.name, i)
            if value is None:
                continue
            if must := each.fault(value):
                raise RequestError(f"{each.name} is {value}: it must {must}")
            if value == each.default:
                continue  # so that requests with it and without it can share engine calls
            tensors[each.engine] = np.array([[value]], NUMPY[each.datatype])
        if (pad := inputs.scalar("pad_id", i)) is not None:
            tensors["pad_id"] = np.array([[pad]], np.int32)
        if inputs.scalar("temperature", i) == 0:
            # TensorRT-LLM makes it top_p 1 at temperature 1, from all tokens, unless top_k is there to become 1
            # (runtime/samplingConfig.h, validate).
            tensors["runtime_top_k"] = np.array([[1]], np.int32)
        if end_ids:
            tensors["end_id"] = np.array([[end_ids[0]]], np.int32)
            tensors.setdefault("pad_id", tensors["end_id"])
        bad_words = inputs.strings("bad_words", i)
        if bad_words:
            tensors["bad_words_list"] = self._tokenizer.word_list(bad_words)[None]
        bias = self._bias(inputs, i)
        if bias is not None:
            tensors["embedding_bias"] = bias
        return tensors

    def _bias(self, inputs: RequestTensors, i: int) -> Array | None:
        words, weights = inputs.weighted_words("embedding_bias_words", "embedding_bias_weights", i)
        if not words:
            return None
        return self._tokenizer.embedding_bias(words, weights, self._limits.vocab_size)[None]


def _draws(inputs: RequestTensors, i: int) -> bool:
    """Whether tokens are drawn: by top-k or top-p, unless that leaves one token."""
    top_k, top_p = inputs.scalar("top_k", i, 0), inputs.scalar("top_p", i, 0)
    return bool(inputs.scalar("temperature", i, 1) != 0 and top_k != 1 and (top_k or top_p))


def _asked(inputs: RequestTensors, i: int) -> dict[str, Any]:
    """Parameters of row `i`, by the names of RefusedParameters."""
    return {
        **{parameter.name: inputs.scalar(parameter.name, i) for parameter in passed_on(BLS)},
        "bad_words": inputs.strings("bad_words", i),
        "embedding_bias": inputs.strings("embedding_bias_words", i),
        "logprobs": bool(inputs.scalar("return_log_probs", i, False)),
    }


def _target_tensors(inputs: RequestTensors, i: int) -> dict[str, Array]:
    """Row `i` of the inputs that go to the target as they come."""
    tensors: dict[str, Array] = {}
    for name in (*LORA, *GUIDE):
        if name in LORA[1:] and inputs.row(name, i) is not None:
            tensors[name] = inputs.tensors[name][i : i + 1]
        elif (value := inputs.scalar(name, i)) is not None:
            tensors[name] = np.array([[value]], inputs.tensors[name].dtype)
    if any(name in tensors for name in LORA[1:]) and not all(name in tensors for name in LORA):
        raise RequestError(f"{', '.join(LORA)}: weights and their configuration belong to a task: send all three")
    if GUIDE[1] in tensors and GUIDE[0] not in tensors:
        raise RequestError(f"{GUIDE[1]} is sent without {GUIDE[0]}: send json, json_schema, regex or ebnf_grammar")
    return tensors


def _refused_text(inputs: RequestTensors, stream: bool) -> bool:
    wanted = inputs.flag("return_refused_draft_text")
    if wanted and not stream:
        raise RequestError("return_refused_draft_text needs stream: one answer does not hold what each round refused")
    return wanted


def _refuse_unsupported(inputs: RequestTensors, flags: Mapping[str, str]) -> None:
    for name, why in UNSUPPORTED.items():
        if name in inputs.tensors:
            raise RequestError(f"{name} is not supported: {why}")
    for name, why in flags.items():
        if inputs.flag(name):
            raise RequestError(f"{name} is not supported: {why}")
    for name, why in UNSUPPORTED_ABOVE_ONE.items():
        for i in range(inputs.count):
            value = inputs.scalar(name, i, 1)
            if value != 1:
                raise RequestError(f"{name} {value} is not supported: {why}")
