"""From a request's tensors to prompts for the LLM API; everything that can be wrong is found here.

Tensors are those of upstream's LLM-API model: no batch dimension, `text_input` [n] holds n prompts, everything
else one value for all of them or n. All prompts are checked before any work starts.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tandem_serving.checkpoint import ModelLimits
from tandem_serving.errors import RequestError
from tandem_serving.requests.refused import RefusedParameters
from tandem_serving.requests.sampling_parameters import LLMAPI, PREFIX, of_mode, passed_on
from tandem_serving.requests.tensors import TO_THE_LIMIT, Array, RequestTensors, tokens_of_text
from tandem_serving.requests.text import whole_characters

TEXT, IDS = "text_input", "input_ids"
# Lists of words for the whole request, as upstream has them.
LISTS = ("sampling_param_stop", "sampling_param_bad")
# Request parameters that load generators always send, and the inputs that say the same; a stream repeats no prompt.
REPEATED = {
    "prompt": (TEXT,),
    "stream": ("streaming",),
    "max_tokens": ("sampling_param_max_tokens",),
    "min_tokens": ("sampling_param_min_tokens",),
    "exclude_input_in_output": ("sampling_param_exclude_input_from_output", "streaming"),
}
MOST_WORDS = 1000
"""In one of these lists: each word costs each prompt, and each of its tokens, and with them all other requests."""
DEFAULT_MAX_TOKENS = 32  # upstream's own
MAX_TOKENS = f"{PREFIX}max_tokens"
# Guide types of TensorRT-LLM's Triton models.
GUIDES = ("json", "json_schema", "regex", "ebnf_grammar", "structural_tag")
LORA_SOURCES = ("hf", "nemo")
LOG_PROBS, PROMPT_LOG_PROBS = ("return_cumulative_logprob", "return_log_probs"), "return_prompt_log_probs"
INPUTS = {parameter.name: parameter.input(LLMAPI) for parameter in of_mode(LLMAPI)}
"""What this model calls parameters."""


@dataclass(frozen=True)
class Features:
    """What the engine was started with: guided decoding; log probabilities of prompts; folders whose LoRA adapters
    requests may name; sequences that it runs at once, and how many more may wait; parameters that it would drop;
    tokens that end a text."""

    guided_decoding: bool = False
    prompt_log_probs: bool = False
    lora_dirs: tuple[Path, ...] = ()
    running: int = 64
    waiting: int = 1024
    refused: RefusedParameters = field(default_factory=RefusedParameters)
    end_ids: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Guide:
    """What the text must follow: one of GUIDES, and the schema, expression, grammar or tag; empty for `json`."""

    kind: str
    text: str = ""


@dataclass(frozen=True)
class Lora:
    """A LoRA adapter: engines cache it by `number`."""

    number: int
    name: str
    path: str
    source: str


@dataclass(frozen=True)
class LlmApiPrompt:
    """One sequence to generate. `sampling`: the request's parameters by name, `max_tokens`, and the words of `bad`;
    what was not sent is absent. Temperature 0 is greedy, and so is a request without temperature, top_p and top_k.

    `stop_words` are looked for in the text here, not by the engine; `stop_ids` are those that have none, special
    tokens. `end_ids` end the text, too, whichever of them the engine knows. `echo`: repeat `text` in an answer that
    is not streamed; it is what the tokens decode to then.
    """

    index: int
    text: str
    ids: list[int]
    sampling: Mapping[str, Any]
    stop_words: tuple[str, ...] = ()
    stop_ids: Mapping[int, str] = field(default_factory=dict)
    end_ids: frozenset[int] = frozenset()
    echo: bool = False
    guide: Guide | None = None
    lora: Lora | None = None

    @cached_property
    def digest_of_ids(self) -> bytes:
        """Names its tokens."""
        return hashlib.sha256(array("i", self.ids).tobytes()).digest()

    @property
    def best_of(self) -> int:
        """Of how many sequences the best is wanted."""
        return int(self.sampling.get("best_of", 1))


@dataclass(frozen=True)
class LlmApiRequest:
    """A request's prompts and what it wants back besides text."""

    prompts: tuple[LlmApiPrompt, ...]
    stream: bool = False
    stop_reason: bool = False
    cumulative_logprob: bool = False
    log_probs: bool = False
    prompt_log_probs: bool = False
    perf_metrics: bool = False


@dataclass(frozen=True)
class Codec:
    """The engine's own tokenizer: `encode` adds the special tokens that the model wants, `decode` drops them. One
    thread may encode while another decodes. `longest_token`: characters that a token stands for at most. `special`:
    those words that are special tokens, by their ids."""

    encode: Callable[[str], list[int]]
    decode: Callable[[list[int]], str]
    longest_token: int
    special: Callable[[Iterable[str]], dict[int, str]]


class LlmApiParser:
    """Parses requests for one engine."""

    def __init__(self, codec: Codec, limits: ModelLimits, features: Features) -> None:
        self._codec = codec
        self._limits = limits
        self._features = features

    def parse(self, tensors: Mapping[str, Array]) -> LlmApiRequest:
        """Check everything and tokenize. Raises RequestError.

        Prompts are `text_input` object[n], or `input_ids` int32[n, m] filled up behind `input_lengths`
        int32[n] tokens.
        """
        if "image_url" in tensors:
            raise RequestError("image_url is not supported: this service takes text only; leave it out")
        if IDS in tensors and TEXT in tensors:
            raise RequestError("both text_input and input_ids hold prompts: send one of them")
        prompts = IDS if IDS in tensors else TEXT
        inputs = RequestTensors(rows(tensors, prompts), prompts)
        self._check_count(inputs.count)
        stream = inputs.flag("streaming")
        if stream and any(inputs.scalar(f"{PREFIX}best_of", i, 1) > 1 for i in range(inputs.count)):
            raise RequestError("sampling_param_best_of cannot be streamed: which one is best shows at the end")
        return LlmApiRequest(
            prompts=tuple(self._prompt(inputs, i, stream) for i in range(inputs.count)),
            stream=stream,
            stop_reason=inputs.flag("return_stop_reason"),
            cumulative_logprob=inputs.flag(LOG_PROBS[0]),
            log_probs=inputs.flag(LOG_PROBS[1]),
            prompt_log_probs=self._prompt_log_probs(inputs),
            perf_metrics=inputs.flag(f"{PREFIX}return_perf_metrics"),
        )

    def _prompt_log_probs(self, inputs: RequestTensors) -> bool:
        wanted = inputs.flag(PROMPT_LOG_PROBS)
        if wanted and not self._features.prompt_log_probs:
            raise RequestError(
                f"{PROMPT_LOG_PROBS} is not supported: this service's engine gives no log probabilities of a "
                "prompt's tokens; leave it out"
            )
        return wanted

    def _check_count(self, count: int) -> None:
        most = self._features.running + self._features.waiting
        if count > most:
            raise RequestError(f"the request has {count} prompts and the service holds {most} at most: send fewer")

    def _prompt(self, inputs: RequestTensors, i: int, stream: bool) -> LlmApiPrompt:
        text, ids = self._token_ids(inputs, i) if IDS in inputs.tensors else self._tokenize(inputs, i)
        sampling = self._limited(len(ids), _sampling(inputs, i))
        self._check_best_of(sampling.get("best_of", 1))
        log_probs = next((name for name in LOG_PROBS if inputs.scalar(name, i, False)), "")
        asked = {**sampling, "bad_words": sampling.get("bad"), "logprobs": bool(log_probs)}
        self._features.refused.check(asked, greedy(sampling), {**INPUTS, "logprobs": log_probs})
        stop_words = tuple(inputs.strings(f"{PREFIX}stop", i))
        echo = not (stream or inputs.scalar(f"{PREFIX}exclude_input_from_output", i, False))
        if echo:  # as its tokens are decoded, as upstream
            text = whole_characters(self._codec.decode, ids)
        return LlmApiPrompt(
            index=i,
            text=text,
            ids=ids,
            sampling=sampling,
            stop_words=stop_words,
            stop_ids=self._codec.special(stop_words),
            end_ids=frozenset() if sampling.get("ignore_eos") else self._features.end_ids,
            echo=echo,
            guide=self._guide(inputs, i),
            lora=self._lora(inputs, i),
        )

    def _tokenize(self, inputs: RequestTensors, i: int) -> tuple[str, list[int]]:
        text = inputs.text(TEXT, i)
        if not text:
            raise RequestError("the prompt is empty: send at least one character in text_input")
        limit = self._limits.max_sequence_len
        if len(text) > limit * self._codec.longest_token:  # to tokenize it could take minutes
            raise RequestError(
                f"the prompt's {len(text)} characters are more than the model's limit of {limit} tokens can hold: "
                "shorten the prompt"
            )
        return text, tokens_of_text(self._codec.encode(text), self._limits.vocab_size)

    def _token_ids(self, inputs: RequestTensors, i: int) -> tuple[str, list[int]]:
        ids = inputs.token_ids(IDS, "input_lengths", i, self._limits.max_sequence_len, self._limits.vocab_size)
        return whole_characters(self._codec.decode, ids), ids

    def _limited(self, length: int, sampling: dict[str, Any]) -> dict[str, Any]:
        limit, max_tokens = self._limits.max_sequence_len, sampling["max_tokens"]
        if max_tokens == TO_THE_LIMIT:
            max_tokens = max(1, limit - length)
        if length + max_tokens > limit:
            raise RequestError(
                f"the prompt's {length} tokens and sampling_param_max_tokens {max_tokens} make "
                f"{length + max_tokens}, more than the model's limit of {limit}: "
                "shorten the prompt or ask for fewer tokens"
            )
        return {**sampling, "max_tokens": max_tokens}

    def _check_best_of(self, best_of: int) -> None:
        """The engine makes room for all of them before it looks at their number."""
        most = self._features.running
        if best_of > most:
            raise RequestError(f"{PREFIX}best_of is {best_of}: the engine runs {most} sequences at once, send fewer")

    def _guide(self, inputs: RequestTensors, i: int) -> Guide | None:
        kind = inputs.text("guided_decoding_guide_type", i)
        guide = inputs.text("guided_decoding_guide", i)
        if not kind and not guide:
            return None
        if not self._features.guided_decoding:
            raise RequestError(
                "guided_decoding_guide_type is not supported: this service has no guided_decoding_backend; "
                "leave it out, or set the backend in the engine's arguments"
            )
        if kind not in GUIDES:
            raise RequestError(f"guided_decoding_guide_type is {kind!r}: send one of {', '.join(GUIDES)}")
        if not guide and kind != "json":
            raise RequestError(f"guided_decoding_guide is empty: send the {kind} in it")
        return Guide(kind, "" if kind == "json" else guide)

    def _lora(self, inputs: RequestTensors, i: int) -> Lora | None:
        number, name, path = inputs.scalar("lora_id", i), inputs.text("lora_name", i), inputs.text("lora_path", i)
        if number is None and not name and not path:
            return None
        if not self._features.lora_dirs:
            raise RequestError(
                "lora_id is not supported: this service names no folders of adapters; leave it out, or write "
                "runtime.extraLlmArgs.lora_config.lora_dir (vLLM: lora_dirs)"
            )
        if number is None or not name or not path:
            raise RequestError("lora_id, lora_name and lora_path belong together: send all three")
        folder = Path(path).resolve()
        if not any(folder.is_relative_to(allowed) for allowed in self._features.lora_dirs) or not folder.is_dir():
            raise RequestError(
                f"lora_path {path} is not this service's: send a folder below its lora_config.lora_dir "
                "(vLLM: lora_dirs)"
            )
        source = inputs.text("lora_ckpt_source", i) or "hf"
        if source not in LORA_SOURCES:
            raise RequestError(f"lora_ckpt_source is {source!r}: send one of {', '.join(LORA_SOURCES)}")
        return Lora(number, name, str(folder), source)


def rows(tensors: Mapping[str, Array], prompts: str) -> dict[str, Array]:
    """Upstream's tensors with a row for each prompt: [n, 1], word lists [n, k]. Raises RequestError."""
    count = len(tensors[prompts]) if prompts in tensors else 0
    return {name: _rows(name, value, count) for name, value in tensors.items()} if count else dict(tensors)


def _rows(name: str, value: Array, count: int) -> Array:
    if name == IDS:
        return value
    if name in LISTS and value.size > MOST_WORDS:
        raise RequestError(f"{name} holds {value.size} words: send {MOST_WORDS} at most")
    if name in LISTS or value.size == 1:
        return np.broadcast_to(value.reshape(1, -1), (count, value.size))
    if len(value) != count:
        raise RequestError(f"{name} holds {len(value)} values, but there are {count} prompts: send 1 or {count}")
    return value.reshape(count, -1)


def _sampling(inputs: RequestTensors, i: int) -> dict[str, Any]:
    max_tokens = inputs.scalar(MAX_TOKENS, i, DEFAULT_MAX_TOKENS)
    if max_tokens < 1 and max_tokens != TO_THE_LIMIT:
        raise RequestError(f"{MAX_TOKENS} is {max_tokens}: it must be 1 or more")
    sampling: dict[str, Any] = {"max_tokens": max_tokens}
    for parameter in passed_on(LLMAPI):
        value = inputs.scalar(parameter.input(LLMAPI), i)
        if value is None:
            continue
        if must := parameter.fault(value):
            raise RequestError(f"{parameter.input(LLMAPI)} is {value}: it must {must}")
        sampling[parameter.name] = value
    if sampling.get("ignore_eos"):  # it is all that min_tokens is about, and some engines would ban another token
        sampling.pop("min_tokens", None)
    if bad := inputs.strings(f"{PREFIX}bad", i):
        sampling["bad"] = bad
    return sampling


def greedy(sampling: Mapping[str, Any]) -> bool:
    """Whether each token is the most likely one: `SamplingParams.params_imply_greedy_decoding` of TensorRT-LLM, whose
    tensors these are."""
    temperature, top_p, top_k = asked = [sampling.get(name) for name in ("temperature", "top_p", "top_k")]
    return all(value is None for value in asked) or temperature == 0 or top_k == 1 or top_p == 0
