"""The one error that the cluster tooling raises on purpose."""


class ClusterError(Exception):
    """Something the user can act on; the message says what to do next."""
