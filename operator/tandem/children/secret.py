"""Secret with the key pair by which the pods of a group trust each other."""

from typing import Any

from tandem import names
from tandem.api.types import SpeculativeInferenceService
from tandem.children.metadata import metadata

PRIVATE_KEY, PUBLIC_KEY = "ssh-privatekey", "ssh-publickey"


def ssh_secret(service: SpeculativeInferenceService) -> dict[str, Any]:
    """The Secret without its data: who creates it puts a new pair into it, once for each service."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(service, names.ssh(service.name, service.uid), names.WORKER),
        "type": "kubernetes.io/ssh-auth",
        "immutable": True,
    }
