"""A client that runs the speculative loop itself, by unary calls, as upstream's speculative client does.

Written from the contract of the models `preprocessing`, `tensorrt_llm_draft`, `tensorrt_llm` and
`postprocessing`: every call is unary and carries the same request id; word lists are always sent; outputs of
the engines hold their inputs.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import tritonclient.grpc as triton

from triton.bls_client import SECONDS, infer_inputs

Array = npt.NDArray[Any]
Tensors = dict[str, Array]


@dataclass
class Loop:
    """One completion: what is asked for, and what came.

    `words`: of `preprocessing` (STOP_WORDS_DICT, ...); `sampling`: engine tensors of every call. With
    `draft_logits` the draft's logits are asked for and verified against.
    """

    client: triton.InferenceServerClient
    prompt: str
    max_tokens: int
    k: int
    request_id: str = "1"
    words: Tensors = field(default_factory=dict)
    sampling: Tensors = field(default_factory=dict)
    draft_logits: bool = False
    prompt_ids: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    calls: int = 0

    def run(self) -> str:
        """The text of prompt and completion; `ids` are its tokens, `calls` the target's. Raises
        InferenceServerException."""
        query = {
            "QUERY": np.array([[self.prompt.encode()]], np.object_),
            "REQUEST_OUTPUT_LEN": np.array([[self.max_tokens]], np.int32),
        }
        pre = self._infer("preprocessing", query | self.words)
        self.prompt_ids = pre["INPUT_ID"].squeeze(0).tolist()
        always = {
            "bad_words_list": pre["BAD_WORDS_IDS"],
            "stop_words_list": pre["STOP_WORDS_IDS"],
            "end_id": pre["OUT_END_ID"],
            "pad_id": pre["OUT_PAD_ID"],
            "beam_width": np.array([[1]], np.int32),
            **self.sampling,
        }
        self.ids = self._rounds(always)
        tokens = np.array([[self.ids]], np.int32)
        lengths = np.array([[len(self.ids)]], np.int32)
        post = self._infer("postprocessing", {"TOKENS_BATCH": tokens, "SEQUENCE_LENGTH": lengths})
        text: str = post["OUTPUT"][0].decode()
        return text

    def _rounds(self, always: Tensors) -> list[int]:
        ids = self.prompt_ids
        longest = len(ids) + self.max_tokens
        stop_word = always["stop_words_list"][0, 0].tolist()
        while True:
            k = min(self.k, longest - len(ids) - 1)
            drafted = self._draft(always, ids, k) if k > 0 else {}
            count = drafted["draft_input_ids"].size if drafted else 0
            after = self._call("tensorrt_llm", always | drafted, ids, count + 1)[0]
            self.calls += 1
            only_drafted = count > 0 and after == ids + drafted["draft_input_ids"][0].tolist()
            stopped = bool(stop_word) and after[-len(stop_word) :] == stop_word
            if len(after) >= longest or only_drafted or after == ids or stopped:
                return after
            ids = after

    def _draft(self, always: Tensors, ids: list[int], k: int) -> Tensors:
        flags = {"return_generation_logits": np.array([[True]])} if self.draft_logits else {}
        after, logits = self._call("tensorrt_llm_draft", always | flags, ids, k)
        drafted = {"draft_input_ids": np.array([after[len(ids) :]], np.int32)}
        if self.draft_logits and len(after) > len(ids):
            assert logits is not None
            assert logits.shape[:3] == (1, 1, len(after) - len(ids)), "a row of logits for each drafted token"
            drafted["draft_logits"] = logits[:, 0]
        return drafted

    def _call(self, model: str, tensors: Tensors, ids: list[int], length: int) -> tuple[list[int], Array | None]:
        """An engine call: the tokens of the whole sequence, and logits of the new ones where asked for."""
        call = {
            "input_ids": np.array([ids], np.int32),
            "input_lengths": np.array([[len(ids)]], np.int32),
            "request_output_len": np.array([[length]], np.int32),
        }
        outputs = self._infer(model, call | tensors)
        assert outputs["sequence_length"].shape == (1, 1)
        after = outputs["output_ids"].squeeze((0, 1))[: outputs["sequence_length"].item()].tolist()
        assert after[: len(ids)] == ids, "the input comes first"
        return after, outputs.get("generation_logits")

    def _infer(self, model: str, tensors: Tensors) -> Tensors:
        inputs = infer_inputs(tensors)
        result = self.client.infer(model, inputs, request_id=self.request_id, client_timeout=SECONDS)
        return {output.name: result.as_numpy(output.name) for output in result.get_response().outputs}
