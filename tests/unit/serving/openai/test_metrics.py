"""The endpoint's own metrics, and those that an endpoint picker reads."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from support.serving.openai import FakeTriton, lifespan, tokenizer_folder
from tandem_serving.openai.access import ApiKeys
from tandem_serving.openai.errors import ApiError
from tandem_serving.openai.metrics import Metrics, picked
from tandem_serving.openai.model import ChatModel
from tandem_serving.openai.server import Endpoint, application
from tandem_serving.openai.triton import Chunk

PAGE = """# TYPE tandem_requests_waiting gauge
tandem_requests_waiting{model="speculative_bls",version="1"} 3
tandem_requests_running{model="speculative_bls",version="1"} 2
tandem_requests_running_total 9
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="tensorrt_llm_draft",version="1"} 7
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="tensorrt_llm",version="1"} 40
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="tensorrt_llm",version="1"} 10
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="free",model="tensorrt_llm",version="1"} 30
"""
ASK = {"model": "m", "prompt": "x"}


@pytest.fixture
def triton_page() -> Iterator[int]:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(PAGE.encode())

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def served(folder: Path, port: int, *answers: Any) -> TestClient:
    triton = FakeTriton(*answers)
    endpoint = Endpoint("m", triton, ChatModel(tokenizer_folder(folder)), ApiKeys(None), 1000, Metrics(port))
    return TestClient(application(endpoint, lifespan), raise_server_exceptions=False)


def samples(http: TestClient) -> dict[tuple[str, ...], float]:
    """Value by name and labels' values."""
    reply = http.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = text_string_to_metric_families(reply.text)
    return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}


def test_what_the_endpoint_picker_reads_is_tritons(tmp_path: Path, triton_page: int) -> None:
    found = samples(served(tmp_path, triton_page))
    names = ("vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:kv_cache_usage_perc")
    assert [found[(name,)] for name in names] == [3, 2, 0.25]


def test_the_cache_of_engines_that_are_not_tensorrt_s() -> None:
    page = PAGE.replace("nv_trt_llm", "tandem_engine")
    assert page != PAGE
    assert picked(page) == picked(PAGE)


def test_what_the_engine_does_not_report_is_absent(tmp_path: Path) -> None:
    assert picked("tandem_requests_waiting 1\n") == {"vllm:num_requests_waiting": 1}
    assert picked(PAGE.replace('"max",model="tensorrt_llm"', '"max",model="other"')).keys() == {
        "vllm:num_requests_waiting",
        "vllm:num_requests_running",
    }
    assert not any(name.startswith("vllm:") for name, *_ in samples(served(tmp_path, 1))), "there is no Triton"


def test_requests_are_counted_by_route_and_status(tmp_path: Path) -> None:
    chunk = (0, Chunk("Hello", [], [], "length", {}))
    with served(tmp_path, 1, chunk) as http:
        for asked in (ASK, {**ASK, "stream": True}, {**ASK, "n": 0}):
            http.post("/v1/completions", json=asked)
        http.get("/v1/models/m")
        http.get("/v1/made/up")
        http.get("/live")
        found = samples(http)
    requests = {key[1:]: value for key, value in found.items() if key[0] == "tandem_openai_requests_total"}
    completions = "/v1/completions"
    assert requests == {
        (completions, "200"): 2,
        (completions, "400"): 1,
        ("/v1/models", "200"): 1,
        ("other", "404"): 1,
    }
    assert found["tandem_openai_request_latency_seconds_count", completions] == 2
    assert found["tandem_openai_time_to_first_token_seconds_count", completions] == 1, "of the stream"
    assert found[("tandem_openai_requests_running",)] == 0


def test_a_failed_request_is_counted_and_its_time_is_not(tmp_path: Path) -> None:
    with served(tmp_path, 1, RuntimeError("fault"), ApiError(503, "full")) as http:
        http.post("/v1/completions", json=ASK)
        found = samples(http)
    assert found["tandem_openai_requests_total", "/v1/completions", "500"] == 1
    assert ("tandem_openai_request_latency_seconds_count", "/v1/completions") not in found
