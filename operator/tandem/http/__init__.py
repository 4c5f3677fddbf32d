"""What both processes need of HTTP: a bounded listener, probes, credentials for a Prometheus.

Imports `api` and `errors`; settings, metrics and the processes import it.
"""
