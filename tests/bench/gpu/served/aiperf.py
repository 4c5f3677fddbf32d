"""The adaptive BLS and the target alone through AIPerf: its chat endpoint, on the image's OpenAI endpoint."""

import json
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from triton.harness import TritonServer
from triton.openai_endpoint import NAME, OpenAiEndpoint

CASES = {"alone": {"num_draft_tokens": 0}, "adaptive": {}}
"""Fields that each request has in addition to its text."""
REQUESTS = 6  # of each stream; as many before them are not counted
FIGURES = {
    "ttft_ms": "time_to_first_token",
    "itl_ms": "inter_token_latency",
    "latency_ms": "request_latency",
    "tokens": "output_sequence_length",
    "accepted": "usage_accepted_prediction_tokens",
    "rejected": "usage_rejected_prediction_tokens",
    "requests": "request_count",
    "errors": "error_request_count",
}
"""Ours, and its names for them."""
STATISTICS = ("avg", "p50", "p99")


def rows(
    program: str, server: TritonServer, tokenizer: Path, texts: Sequence[str], streams: Sequence[int], tokens: int
) -> Iterator[dict[str, Any]]:
    """Run each case at each number of streams, `tokens` an answer. `program`: how AIPerf is called."""
    folder = server.repository.parent
    file = folder / "texts.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    with OpenAiEndpoint(server, "BLS", tokenizer) as endpoint:
        for count in streams:
            for case, more in CASES.items():
                out = folder / f"aiperf-{case}-{count}"
                arguments = _arguments(endpoint, tokenizer, file, count, {**more, "max_tokens": tokens})
                arguments += ["--artifact-dir", str(out)]
                subprocess.run([*shlex.split(program), *arguments], check=True)
                export = out / "profile_export_aiperf.json"
                row = {"case": f"{case}, AIPerf", "streams": count, **figures(json.loads(export.read_text()))}
                print(json.dumps(row), flush=True)
                yield row


def _arguments(
    endpoint: OpenAiEndpoint, tokenizer: Path, file: Path, streams: int, more: dict[str, int]
) -> list[str]:
    extra = {"ignore_eos": "true", "temperature": 0, **more}
    given = {
        "model": NAME,
        "endpoint-type": "chat",
        "url": endpoint.url,
        "tokenizer": tokenizer,
        "input-file": file,
        "custom-dataset-type": "single_turn",
        "concurrency": streams,
        "request-count": REQUESTS * streams,
        "warmup-request-count": REQUESTS * streams,
        "ui": "none",
    }
    listed = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    listed += [word for name, value in extra.items() for word in ("--extra-inputs", f"{name}:{value}")]
    return ["profile", "--streaming", "--use-server-token-count", *listed]


def figures(export: dict[str, Any]) -> dict[str, Any]:
    """Of AIPerf's export: tokens/s, and means, with percentiles where there are; without what was not measured."""
    metrics = {ours: metric for ours, theirs in FIGURES.items() if (metric := export.get(theirs))}
    found = {name: {key: metric[key] for key in STATISTICS if key in metric} for name, metric in metrics.items()}
    return {"tokens_per_second": export["output_token_throughput"]["avg"], **found}
