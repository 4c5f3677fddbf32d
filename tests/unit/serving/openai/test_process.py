"""The endpoint's process, without a Triton behind it."""

import contextlib
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.ports import free_port
from support.resident import resident_mib
from support.serving.openai import write_certificate
from support.serving.pod import SERVING

SECONDS = 240


@pytest.fixture
def process(tmp_path: Path) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    write_certificate(tmp_path, "endpoint")
    port = free_port()
    command = [sys.executable, str(SERVING / "entrypoint.py"), "openai", "--mode=BLS", "--name=m", f"--port={port}"]
    command += [f"--triton-port={free_port()}", f"--tokenizer={tmp_path}", f"--tls={tmp_path}"]
    with subprocess.Popen(command) as started:
        yield started, f"https://127.0.0.1:{port}"
        started.kill()


def status(url: str) -> int:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(url, timeout=240, context=context) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_it_speaks_tls_reports_triton_s_health_and_ends_at_sigterm(
    process: tuple["subprocess.Popen[bytes]", str],
) -> None:
    started, url = process
    deadline = time.monotonic() + SECONDS
    while status(f"{url}/live") != 200:
        assert started.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert status(f"{url}/health") == 503, "there is no Triton"
    assert status(url.replace("https", "http") + "/live") == 0
    before = resident_mib(started.pid)
    with contextlib.ExitStack() as opened:
        for _ in range(200):
            begun = opened.enter_context(socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))))
            begun.sendall(b"\x16")  # TLS begins
        assert status(f"{url}/live") == 200, "it has read them"
        assert resident_mib(started.pid) - before < 20
    started.send_signal(signal.SIGTERM)
    assert started.wait(SECONDS) == 0
