import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.serving.llmapi import CODEC, FakeEngine, Sink, Site, Start
from tandem_serving.checkpoint import ModelLimits
from tandem_serving.engine import failure
from tandem_serving.engine.health import IDLE
from tandem_serving.llmapi.request import Features, LlmApiParser
from tandem_serving.llmapi.service import LlmApiService
from tandem_serving.llmapi.tasks import LlmApiOptions


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """The services of a test are one after the other in the same pod."""
    sites: list[Site] = []
    report = tmp_path / "engine-failure.json"
    monkeypatch.setenv(failure.VARIABLE, str(report))

    def make(
        timeout: float = 60, running: int = 2, waiting: int = 2, speculates: bool = True, canary: float = IDLE
    ) -> Site:
        report.unlink(missing_ok=True)  # as the entry point does
        engine, sink, ended = FakeEngine(), Sink(), threading.Event()
        parser = LlmApiParser(CODEC, ModelLimits(10_000, 256), Features())
        service = LlmApiService(engine, parser, LlmApiOptions(timeout, running, waiting, speculates, canary))
        service.guard(end=ended.set)
        threading.Thread(target=service.watch, args=(sink,), daemon=True).start()
        sites.append(Site(service, engine, sink, ended))
        return sites[-1]

    yield make
    for site in sites:
        site.service.close()
        assert site.engine.closed
