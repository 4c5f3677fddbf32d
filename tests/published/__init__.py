"""A release in a registry, with its own images on a real kubelet; and the demo on a given cluster."""
