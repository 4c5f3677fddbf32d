"""The dashboard on a real Prometheus with the chart's rules: no panel is empty, whatever a service tells."""

import asyncio
import json
import math
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from support.serving.openai import FakeTriton, lifespan, listening, tokenizer_folder
from tandem.metrics.report import ServiceReport
from tandem.metrics_server.board import Board
from tandem.metrics_server.judgements import JudgementSeries
from tandem.metrics_server.series import ReportSeries
from tandem_serving.openai.access import ApiKeys
from tandem_serving.openai.metrics import Metrics
from tandem_serving.openai.model import ChatModel
from tandem_serving.openai.server import Endpoint, application
from tandem_serving.openai.triton import Chunk
from unit.chart.conftest import CHART
from unit.metrics.telemetry.hostile_pods import fixed, serve

from .prometheus import PROMETHEUS, Served, prometheus, served

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(PROMETHEUS is None, reason="no prometheus here: `make deps` installs Debian's"),
]
FILES = CHART / "files"
BOARD: dict[str, Any] = json.loads((FILES / "dashboard.json").read_text(encoding="utf-8"))
VARIABLES = {"$namespace": "ns", "$service": "llama"}
REPORT = ServiceReport.model_validate(
    {
        **{"namespace": "ns", "name": "llama", "observedAt": "2026-01-01T00:00:00Z", "windowSeconds": 60},
        **{"pods": 2, "unknown": 1, "worth": {"speedup": 1.4}},
        "objectives": {"timeToFirstToken": 0.5, "queueLength": 4},
        **{"decision": {"load": 1.4, "signal": "Demand", "message": "two"}},
        "speculation": {"askedLength": 4},
    }
)
UNSET = {'objective="interTokenLatency"'}
"""Of what the service does not ask for: an objective without which the panel is drawn by its other line."""


def metrics_server_page() -> bytes:
    """`/metrics` of `tandem metrics run`, of that report."""
    registry, board = CollectorRegistry(), Board(math.inf)
    board.post([REPORT])
    registry.register(ReportSeries(board))
    registry.register(JudgementSeries(board.list))
    return generate_latest(registry)


def ask(url: str, path: str, **query: str) -> Any:
    """`data` of an answer of Prometheus' API."""
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=240) as reply:
        return json.loads(reply.read())["data"]


def values(url: str, expression: str) -> list[float]:
    """What a panel would draw now."""
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    return [float(found["value"][1]) for found in ask(url, "query", query=expression)["result"]]


def empty(url: str) -> set[str]:
    """Panels and their expressions without a value, or with one that is none."""
    drawn = {
        f"{panel['title']}: {target['expr']}": values(url, target["expr"])
        for panel in BOARD["panels"]
        for target in panel["targets"]
        if not any(part in target["expr"] for part in UNSET)
    }
    return {name for name, found in drawn.items() if not found or not all(map(math.isfinite, found))}


def choices(url: str, variable: dict[str, Any]) -> list[str]:
    """What Grafana offers for a variable `label_values(SERIES, LABEL)`."""
    series, _, label = variable["query"]["query"].removeprefix("label_values(").removesuffix(")").rpartition(", ")
    found: list[str] = ask(url, f"label/{label}/values", **{"match[]": series.replace("$namespace", "ns")})
    return found


def openai_endpoint(folder: Path) -> Any:
    """The endpoint of a pod, whose Triton answers at once."""
    triton = FakeTriton((0, Chunk("x", [], [], "length", {})))
    endpoint = Endpoint("m", triton, ChatModel(tokenizer_folder(folder)), ApiKeys(None), 1000, Metrics(0))
    return application(endpoint, lifespan)


def of_pod(url: str) -> dict[str, Any]:
    """How Prometheus scrapes an endpoint: as the chart's PodMonitor has it."""
    labels = {"namespace": "ns", "pod": "llama-0", "container": "openai", "speculativeinferenceservice": "llama"}
    targets = [urllib.parse.urlsplit(url).netloc]
    return {"job_name": "endpoints", "static_configs": [{"targets": targets, "labels": labels}]}


def complete(url: str) -> None:
    """A request to it."""
    body = json.dumps({"model": "m", "prompt": "x", "stream": True}).encode()
    asked = urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=240) as reply:
        reply.read()


async def test_no_panel_is_empty(tmp_path: Path) -> None:
    page = fixed(metrics_server_page(), "Content-Type: text/plain; version=0.0.4\r\n")
    async with served(Served()) as pods, serve(page) as server:
        own = {
            "job_name": "metrics-server",
            "honor_labels": True,  # as the chart's PodMonitor
            "static_configs": [{"targets": [f"127.0.0.1:{server.port}"], "labels": {"namespace": "tandem-system"}}],
        }
        rules = [str(FILES / "rules.yaml")]
        with (
            listening(openai_endpoint(tmp_path)) as endpoint,
            prometheus(tmp_path, pods, rule_files=rules, scrape_configs=[own, of_pod(endpoint)]) as url,
        ):
            deadline = time.monotonic() + 180
            while missing := await asyncio.to_thread(empty, url):
                assert time.monotonic() < deadline, missing
                await asyncio.to_thread(complete, endpoint)
                await asyncio.sleep(1)
            for variable in BOARD["templating"]["list"]:
                if variable["type"] == "query":
                    assert await asyncio.to_thread(choices, url, variable) == [VARIABLES[f"${variable['name']}"]]
            rates = [r for group in ask(url, "rules")["groups"] for r in group["rules"] if r["type"] == "recording"]
            assert {rule["health"] for rule in rates} == {"ok"}
            (shown,) = values(url, BOARD["panels"][0]["targets"][0]["expr"])
            assert shown == pytest.approx(0.75, abs=0.01), "the acceptance that the pod has"
