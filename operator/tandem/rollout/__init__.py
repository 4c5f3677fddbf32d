"""One service decided: what was observed, its tasks, how far its spec may go, and the plan of requests.

Pure; `conditions`, `cluster` and the processes import it.
"""
