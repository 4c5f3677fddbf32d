"""NetworkPolicy: who reaches the serving ports, and that ranks of a group reach each other alone."""

from collections.abc import Sequence
from typing import Any

from tandem import names
from tandem.api import ports
from tandem.api.types import SpeculativeInferenceService
from tandem.children.metadata import metadata


def network_policy(
    service: SpeculativeInferenceService,
    nodes: int,
    metrics_peers: Sequence[dict[str, Any]],
    client_peers: Sequence[dict[str, Any]] = (),
) -> dict[str, Any] | None:
    """Ingress of the server pods; None where nothing is to be kept out.

    The peers of `serving.access.from` reach HTTP, gRPC, metrics and the OpenAI endpoint; without any, `client_peers`
    do (the administrator's choice), and without those everybody. Where clients are named, `metrics_peers` (likewise)
    reach the metrics, too: figures, no prompts.
    Between the pods of groups (`nodes` > 1) all ports are open, for MPI, NCCL and vLLM choose theirs as they run; no
    other pod reaches them. A selector cannot separate the groups of a service.
    """
    peers = list(service.spec.serving.access.sources or client_peers)
    if not peers and nodes == 1:
        return None
    served = [*ports.SERVER.values(), *([ports.OPENAI] if service.spec.serving.open_ai.enabled else [])]
    rules: list[dict[str, Any]] = [{**({"from": peers} if peers else {}), "ports": _ports(*served)}]
    if peers and metrics_peers:
        rules.append({"from": [dict(peer) for peer in metrics_peers], "ports": _ports(ports.METRICS)})
    if nodes > 1:
        rules.append({"from": [{"podSelector": names.replica_selector(service.name)}]})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(service, names.server(service.name), names.SERVER),
        "spec": {
            "podSelector": names.replica_selector(service.name),
            "policyTypes": ["Ingress"],
            "ingress": rules,
        },
    }


def _ports(*numbers: int) -> list[dict[str, Any]]:
    return [{"port": number, "protocol": "TCP"} for number in numbers]
