"""A Kubernetes cluster on one machine, for development and tests."""

from cluster.core import Cluster
from cluster.errors import ClusterError
from cluster.state import NodeSpec

__all__ = ["Cluster", "ClusterError", "NodeSpec"]
