"""The Kubernetes API: requests, observing, applying, events, the Lease. API errors become `tandem.errors` here.

No other package speaks with the API server; the processes and commands import it.
"""
