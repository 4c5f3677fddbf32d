"""Pages of metrics for tests, written as Triton writes them from what the serving image's own counters say."""

from tandem_serving import metrics as m

TRITON = "".join(
    f"# HELP {name} {name}\n# TYPE {name} counter\n"
    + "".join(f'{name}{{model="{model}",version="1"}} {1234 * i}\n' for i, model in enumerate(models))
    for models in [("preprocessing", "postprocessing", "tensorrt_llm", "tensorrt_llm_draft", "speculative_bls")]
    for name in ("nv_inference_request_success", "nv_inference_count", "nv_inference_queue_duration_us")
)
"""Triton's own series."""


class PageSink:
    """Takes the metrics as Triton's metrics port does, and writes the page."""

    def __init__(self) -> None:
        self._values: dict[m.Family, dict[m.Labels, float]] = {}

    def add(self, family: m.Family, labels: m.Labels, value: float) -> None:
        """Add to a counter or gauge."""
        series = self._values.setdefault(family, {})
        series[labels] = series.get(labels, 0) + value

    def set(self, family: m.Family, value: float) -> None:
        """Set a gauge."""
        self._values[family] = {(): value}

    def page(self) -> bytes:
        """The page, Triton's own series around."""
        lines = [TRITON.rstrip("\n")]
        for family, values in self._values.items():
            lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
            lines += [f"{family.name}{_braced(labels)} {value:f}" for labels, value in values.items()]
        return ("\n".join(lines) + "\n").encode()


def _braced(labels: m.Labels) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels) + "}" if labels else ""
