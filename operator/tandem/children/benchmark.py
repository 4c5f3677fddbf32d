"""ConfigMap of what `tandem bench --record` measured."""

from tandem import names
from tandem.api import API_VERSION, KIND
from tandem.api.wire import Object

KEY = "result.json"
"""Key of its data."""


def benchmark_configmap(service: Object, record: str) -> Object:
    """`record` is JSON; see `tandem.conditions.benchmark`. It goes with the service, as its other children do."""
    meta = service["metadata"]
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": meta["name"], "uid": meta["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.benchmark(meta["name"]),
            "namespace": meta["namespace"],
            "labels": names.labels(meta["name"], names.BENCHMARK),
            # Whoever measures need not be allowed to hold up the service's deletion.
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": False}],
        },
        "data": {KEY: record},
    }
