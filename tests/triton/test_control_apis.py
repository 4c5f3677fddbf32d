"""Triton's control APIs behind the entry point: refused without the key of this start, open with it."""

import http.client
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from tandem_serving.boot.control import HEADER, KEY_FILE
from tandem_serving.boot.launch import PLAN
from triton.harness import REPOSITORY_ROOT, TritonServer

ENTRYPOINT = REPOSITORY_ROOT / "images/serving/entrypoint.py"
CONFIG = """
backend: "python"
max_batch_size: 0
input { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }
"""
MODEL = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        given = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", values)]) for values in given]
"""


class Pod(TritonServer):
    """The server below the entry point, as in a pod: its repository is the one that the entry point assembles."""

    def _command(self, backends: Path) -> list[str]:
        command = [word for word in super()._command(backends) if not word.startswith("--model-repository")]
        folder = self.repository / "revision"
        source = self.repository / "image/models/echo"
        (source / "1").mkdir(parents=True, exist_ok=True)
        folder.mkdir(exist_ok=True)
        (source / "1/model.py").write_text(MODEL)
        (folder / "echo.config.pbtxt").write_text(f'name: "echo"{CONFIG}')
        models = {"echo": {"config": "echo.config.pbtxt", "source": str(source)}}
        (folder / PLAN).write_text(json.dumps({"models": models, "server": {"command": command}}))
        serve = ["serve", "--revision", str(folder), "--models", str(self.repository / "models")]
        return [sys.executable, str(ENTRYPOINT), *serve]

    @property
    def key(self) -> str:
        """What `kubectl exec` reads."""
        return (self.repository / "models" / KEY_FILE).read_text()

    def code(self) -> int | None:
        """Exit code of the entry point; None while it runs."""
        assert isinstance(self._process, subprocess.Popen)
        return self._process.poll()

    def ask(self, method: str, path: str, body: object = None, key: str = "") -> tuple[int, str]:
        """Status and text of the HTTP port."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports.http, timeout=240)
        headers = {HEADER: key} if key else {}
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    made = Pod(tmp_path_factory.mktemp("pod"))
    with made:
        yield made


REGION = {"key": "/triton_python_backend_shm_region_1", "offset": 0, "byte_size": 8}
CUDA = {"raw_handle": {"b64": "AAAA"}, "device_id": 0, "byte_size": 8}
OVER_HTTP = [
    ("POST", "/v2/systemsharedmemory/region/own/register", REGION),
    ("GET", "/v2/systemsharedmemory/status", None),
    ("POST", "/v2/systemsharedmemory/unregister", {}),
    ("POST", "/v2/cudasharedmemory/region/own/register", CUDA),
    ("GET", "/v2/cudasharedmemory/status", None),
    ("POST", "/v2/cudasharedmemory/unregister", {}),
    ("POST", "/v2/repository/index", {}),
    ("POST", "/v2/repository/models/echo/load", {}),
    ("POST", "/v2/repository/models/echo/unload", {}),
    ("GET", "/v2/trace/setting", None),
    ("POST", "/v2/trace/setting", {"trace_rate": "1"}),
    ("GET", "/v2/models/echo/trace/setting", None),
    ("POST", "/v2/models/echo/trace/setting", {"trace_rate": "1"}),
    ("GET", "/v2/logging", None),
    ("POST", "/v2/logging", {"log_info": False}),
]


@pytest.mark.parametrize(("method", "path", "body"), OVER_HTTP, ids=[f"{row[0]} {row[1]}" for row in OVER_HTTP])
def test_http_refuses_without_the_key(pod: Pod, method: str, path: str, body: object) -> None:
    for key in ("", "0" * len(pod.key)):
        status, text = pod.ask(method, path, body, key)
        assert status == 403, text
        assert HEADER in text


Call = Callable[[triton.InferenceServerClient, dict[str, str]], Any]
OVER_GRPC: dict[str, Call] = {
    "register": lambda c, h: c.register_system_shared_memory("own", REGION["key"], 8, headers=h),
    "status": lambda c, h: c.get_system_shared_memory_status(headers=h),
    "unregister": lambda c, h: c.unregister_system_shared_memory(headers=h),
    "register cuda": lambda c, h: c.register_cuda_shared_memory("own", b"AAAA", 0, 8, headers=h),
    "cuda status": lambda c, h: c.get_cuda_shared_memory_status(headers=h),
    "unregister cuda": lambda c, h: c.unregister_cuda_shared_memory(headers=h),
    "index": lambda c, h: c.get_model_repository_index(headers=h),
    "load": lambda c, h: c.load_model("echo", headers=h),
    "unload": lambda c, h: c.unload_model("echo", headers=h),
    "trace": lambda c, h: c.get_trace_settings(headers=h),
    "set trace": lambda c, h: c.update_trace_settings(settings={"trace_rate": "1"}, headers=h),
    "log": lambda c, h: c.get_log_settings(headers=h),
    "set log": lambda c, h: c.update_log_settings({"log_info": False}, headers=h),
}


@pytest.mark.parametrize("call", OVER_GRPC.values(), ids=OVER_GRPC)
def test_grpc_refuses_without_the_key(pod: Pod, call: Call) -> None:
    with triton.InferenceServerClient(pod.grpc_url) as client:
        for headers in ({}, {f"triton-grpc-protocol-{HEADER}": "0" * len(pod.key)}):
            with pytest.raises(InferenceServerException, match=f"restricted.*{HEADER}"):
                call(client, headers)


def test_the_key_opens_them(pod: Pod) -> None:
    headers = {f"triton-grpc-protocol-{HEADER}": pod.key}
    assert pod.ask("GET", "/v2/logging", key=pod.key)[0] == 200
    assert '"echo"' in pod.ask("POST", "/v2/repository/index", {}, pod.key)[1]
    with triton.InferenceServerClient(pod.grpc_url) as client:
        assert client.get_model_repository_index(headers=headers).models[0].name == "echo"
        assert client.get_log_settings(headers=headers)
        assert not client.get_system_shared_memory_status(headers=headers).regions


def test_what_clients_need_stays_open(pod: Pod) -> None:
    given = {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [7]}]}
    status, text = pod.ask("POST", "/v2/models/echo/infer", given)
    assert (status, json.loads(text)["outputs"][0]["data"]) == (200, [7])
    for path in ("/v2", "/v2/health/live", "/v2/health/ready", *(f"/v2/models/echo{x}" for x in ("", "/ready"))):
        assert pod.ask("GET", path)[0] == 200, path
    assert json.loads(pod.ask("GET", "/v2")[1])["version"] == "2.51.0", "24.10, as profile `reference` says"
    with triton.InferenceServerClient(pod.grpc_url) as client:
        assert client.is_server_ready()
        assert client.get_model_metadata("echo").name == "echo"
        assert client.get_model_config("echo").config.name == "echo"
        assert client.get_inference_statistics("echo").model_stats[0].inference_count >= 1
    assert "nv_inference_count" in pod.metrics()


def test_the_log_does_not_hold_the_key(pod: Pod) -> None:
    assert f"answered with the key in {pod.repository / 'models' / KEY_FILE}" in pod.log
    assert pod.key not in pod.log


def test_each_start_makes_another_key(pod: Pod) -> None:
    """The last test of the module: it starts the server again."""
    before = pod.key
    pod.stop()
    pod.start()
    assert pod.key != before
    assert pod.ask("GET", "/v2/logging", key=before)[0] == 403
    assert pod.ask("GET", "/v2/logging", key=pod.key)[0] == 200
