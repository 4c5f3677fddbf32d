"""KEDA asks a real Prometheus, which scrapes the metrics server, where the chart's values name one: one that wants to
know who asks."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from integration.conftest import Namespace
from integration.metrics_server import Server, wait_replicas
from integration.pages import Load
from integration.prometheus import PASSWORD, PROMETHEUS, locked, prometheus
from integration.release import Release

from .gateway import Gateway
from .keda import NAMESPACE
from .scaling import SCALED_OBJECT, hold_without_metrics, serve, wait_ready

pytestmark = pytest.mark.skipif(PROMETHEUS is None, reason="no prometheus here: `make deps` installs Debian's")


@pytest.fixture(scope="module", autouse=True)
def operator(release: Release, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tandem's operator, with the settings of a chart that names a Prometheus."""
    # As the chart's PodMonitor has it: the labels of the series are those of services.
    job = {"job_name": "tandem", "honor_labels": True, "static_configs": [{"targets": [f"127.0.0.1:{server.http}"]}]}
    folder = tmp_path_factory.mktemp("prometheus")
    web, asked = locked(folder)
    with prometheus(folder, [], web, scrape_configs=[job]) as url:
        data = {"name": asked["username"], "password": PASSWORD, "ca.crt": Path(asked["caFile"]).read_text("utf-8")}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "prometheus-reader"}, "stringData": data}
        release.cluster.kubectl.run("-n", NAMESPACE, "apply", "-f", "-", stdin=json.dumps(secret))
        reader = {
            "secretName": "prometheus-reader",
            "parameters": {"username": "name", "password": "password", "ca": "ca.crt"},
        }
        keda = {"enabled": True, "prometheusUrl": url, "prometheus": reader}
        naming = replace(release, values={**release.values, "keda": keda})
        naming.install()
        with naming.running(tmp_path_factory.mktemp("operator")):
            yield
    release.install()


def test_load_drives_replicas_and_without_series_they_are_held(team: Namespace, load: Load, server: Server) -> None:
    load.sequences = 20
    serve(team, load)
    wait_replicas(team, server, lambda count: count >= 3)
    (trigger,) = team.get("scaledobject", SCALED_OBJECT)["spec"]["triggers"]
    assert (trigger["type"], urlsplit(trigger["metadata"]["serverAddress"]).scheme) == ("prometheus", "https")
    assert trigger["metadata"]["authModes"] == "basic"
    hold_without_metrics(team, load, server)
    load.cut = False
    wait_replicas(team, server, lambda count: count == 1)


def test_to_zero_without_a_fault(team: Namespace, load: Load, server: Server, gateway: Gateway) -> None:
    serve(team, load, {"triggers": [gateway.trigger()]}, minReplicas=0)
    wait_replicas(team, server, lambda count: count == 0)
    wait_ready(team, server)
    gateway.waiting = 5
    wait_replicas(team, server, lambda count: count == 1)
