"""What the metrics server is wired of, by its settings."""

import json

from tandem.metrics_api.process import source
from tandem.settings import MetricsServerSettings
from tandem.telemetry.source import Target
from tandem.telemetry.windows import Store
from unit.telemetry.hostile_pods import fixed, serve

TOKENS = "tandem_generation_tokens_total"
SAMPLES = [{"metric": {"__name__": TOKENS, "namespace": "ns", "pod": "pod"}, "values": [[100, "7"]]}]
ANSWER = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": SAMPLES}}).encode()


async def test_pods_are_read_themselves_or_by_the_prometheus_that_is_named() -> None:
    async with serve(fixed(f"{TOKENS} 7\n".encode())) as pod, serve(fixed(ANSWER)) as prometheus:
        target, seen = Target("uid", "ns", "pod", "127.0.0.1", pod.port), []
        for url in ("", f"http://127.0.0.1:{prometheus.port}"):
            store = Store(300)
            settings = MetricsServerSettings(interval_seconds=0.1, prometheus_url=url)
            async with source(settings) as read:
                assert await read.collect([target], store) == {}
            assert store.latest("uid") is not None
            seen.append((pod.asked, prometheus.asked))
    assert seen == [(1, 0), (1, 1)]
