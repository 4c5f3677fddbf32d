"""A fake API server for each test that asks for one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bench.scale.apiserver import FakeApiServer
from support.api_server import KUBECONFIG, Cluster
from tandem.cluster.client import Api
from tandem.settings import Settings


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> AsyncIterator[Cluster]:
    server, kubeconfig = FakeApiServer(), tmp_path / "kubeconfig"
    await server.start()
    kubeconfig.write_text(KUBECONFIG % f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.setattr("kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(kubeconfig))
    async with await Api.connect() as api:
        yield Cluster(server, api, settings)
    await server.stop()
