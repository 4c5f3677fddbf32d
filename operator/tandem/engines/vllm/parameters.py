"""Parameters of requests that vLLM follows. `SamplingParams` and its checks (vllm/sampling_params.py) were read in
the releases 0.24.0, 0.27.1 and 0.32.0."""

from collections.abc import Mapping

from tandem.engines.request_parameters import Entry, Facts, Outcome

_ISSUES = "https://github.com/vllm-project/vllm/issues"
_BEST_OF = {"best_of": Entry(Outcome.PARTLY, "has none: it makes as many texts, and Tandem sends the likeliest")}
ALONE = Facts("decodingType None", _BEST_OF)
SPECULATING = Facts(
    "any other decodingType",
    {**_BEST_OF, "min_p": Entry(Outcome.REFUSED, "refuses it with speculation", f"{_ISSUES}/42744")},
    instead="leave it out, or send temperature 0",
)
TABLE: Mapping[str, Facts] = {"vLLM": ALONE, "vLLM, speculation": SPECULATING}
