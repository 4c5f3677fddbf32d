"""Parameters of requests that TensorRT engines follow, by decoding type."""

from collections.abc import Mapping

from tandem.api.decoding import DecodingType
from tandem.engines.request_parameters import BEAMS, PENALTIES, SAMPLING, Entry, Facts, Outcome, all_of

_CODE = "https://github.com/NVIDIA/TensorRT-LLM/blob/v1.2.1"
_MODES = f"{_CODE}/cpp/include/tensorrt_llm/executor/types.h"
_LAYERS = f"{_CODE}/cpp/tensorrt_llm/layers"


def _in_engine(layer: str) -> dict[str, Entry]:
    """Of an engine that drafts by itself, in a layer of its own."""
    unchanged = (*PENALTIES, "bad_words", "embedding_bias")
    return {
        **all_of(unchanged, Outcome.IGNORED, "has no step that changes logits", _MODES),
        "logprobs": Entry(Outcome.IGNORED, "computes no log probabilities", layer),
        **BEAMS,
    }


_MEDUSA, _LOOKAHEAD = f"{_LAYERS}/medusaDecodingLayer.cpp", f"{_LAYERS}/lookaheadDecodingLayer.cpp"
_LIKELIEST = "compares drafts with the likeliest tokens, and draws none"

TENSORRT = Facts(
    "engine.kind TensorRT-LLM in mode BLS; decodingType DraftTarget or None",
    {
        "temperature": Entry(
            Outcome.PARTLY, "draws only where top_k or top_p is sent, too", f"{_LAYERS}/defaultDecodingParams.h"
        ),
        "logprobs": Entry(Outcome.PARTLY, "computes none where it verifies drafts; those requests are refused"),
        **BEAMS,
    },
)
MEDUSA = Facts(
    "decodingType Medusa",
    {
        **all_of(("temperature", "top_p"), Outcome.IGNORED, "draws by top_k only", _MEDUSA),
        **_in_engine(_MEDUSA),
    },
    to_draw="send temperature 0, or temperature 1, top_p 1 and a top_k",
)
LOOKAHEAD = Facts(
    "decodingType Lookahead",
    {**all_of(SAMPLING, Outcome.IGNORED, _LIKELIEST, _LOOKAHEAD), **_in_engine(_LOOKAHEAD)},
    to_draw="send temperature 0",
)
TABLE: Mapping[str, Facts] = {
    "TensorRT engines": TENSORRT,
    "TensorRT engines, Medusa": MEDUSA,
    "TensorRT engines, Lookahead": LOOKAHEAD,
}
_IN_ENGINES = {DecodingType.MEDUSA: MEDUSA, DecodingType.LOOKAHEAD: LOOKAHEAD}


def facts_of(kind: DecodingType) -> Facts:
    """What is known of an engine that decodes so."""
    return _IN_ENGINES.get(kind, TENSORRT)
