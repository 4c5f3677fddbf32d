"""The BLS where the server makes its rounds: more sequences than an engine call has rows."""

import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from triton import bls_client as bls
from triton.bls_client import ids, inputs, stream
from triton.harness import TritonServer

ROWS, STREAMS, REQUESTS = 4, 12, 60
ROUNDS = re.compile(r'nv_inference_request_success\{model="tensorrt_llm_engine_rounds",.*\} (\d+)')


def repository(folder: str, rows: int = 64, separate: bool = False, **parameters: Any) -> Path:
    made = bls.repository(
        Path(folder),
        "stand-in",
        max_engine_rows=rows,
        max_batch_size=rows,
        max_draft_len=4,
        separate_devices=separate,
        **parameters,
    )
    for config in made.glob("*/config.pbtxt"):
        config.write_text(config.read_text().replace("max_batch_size: 64", f"max_batch_size: {rows}"))
    return made


def rounds_made(server: TritonServer) -> int:
    return sum(int(count) for count in ROUNDS.findall(server.metrics()))


@pytest.mark.parametrize("separate", [False, True], ids=["one device", "two"])
def test_more_sequences_than_an_engine_call_has_rows(separate: bool) -> None:
    """What joins a verification does not make it longer than the engine takes: it would fail, and all its rows go by
    themselves from then on."""
    with tempfile.TemporaryDirectory() as folder, TritonServer(repository(folder, ROWS, separate)) as server:

        def ask(i: int, **more: Any) -> list[int]:
            return ids(stream(server.grpc_url, inputs(f"def f{i % STREAMS}(", max_tokens=64, end_id=-1, **more)))

        alone = [ask(i, num_draft_tokens=0) for i in range(STREAMS)]
        with ThreadPoolExecutor(STREAMS) as threads:
            answers = list(threads.map(ask, range(REQUESTS)))
        assert [answer != alone[i % STREAMS] for i, answer in enumerate(answers)] == [False] * REQUESTS
        assert rounds_made(server) > REQUESTS, "they did go in rounds"
        assert "goes by itself" not in server.log
