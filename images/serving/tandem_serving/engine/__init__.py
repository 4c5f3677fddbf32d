"""Whether an engine still works: judged by its calls, reported to the pod. `bls`, `llmapi` and `adapter` report their
calls to it; `boot` ends the server of one that has failed.
"""
