"""What pods publish and what it is worth: pages (`telemetry`), capacity (`capacity`), the report (`report`).

Knows no Kubernetes API; conditions and the processes import it.
"""
