"""Ports, all in one place. Clients, probes and pods that run rely on those of pods: they never change.

The programs of the images cannot import this; a test compares what stands in both.
"""

from collections.abc import Mapping

HTTP, GRPC, METRICS = 8000, 8001, 8002
"""Triton's own."""
SERVER: Mapping[str, int] = {"http": HTTP, "grpc": GRPC, "metrics": METRICS}
"""Of the server pods and the Service before them, by name."""
OPENAI = 9000
"""Of the server pods: the OpenAI endpoint; the Service's port is `serving.openAI.port`."""
SSH = 2222
"""Of the workers of a group, for its leader."""
RANKS = 29501
"""Of the leader of a group, for ranks of other pods that join by themselves."""
FETCH = 8080
"""Of the pods that download or build: their progress."""
PROBES = 8080
"""Of the operator and the metrics server: probes and metrics of their own (HTTP)."""
METRICS_APIS = 8443
"""Of the metrics server: the metrics APIs (HTTPS)."""
