"""What runs beside Triton in a Tandem pod: the speculative BLS, the LLM-API model and the pod's entry point.

Layers of the BLS, each importing only those after it: `adapter` (the only module with Triton's
`pb_utils`), `service` (requests, sequences, watchdog), `chunks`, `control`, `loop` (draft and verify),
`text`, `policy`, `request`, `metrics`, `tokenizer`, `checkpoint`, `errors`. The LLM-API model is `llmapi`, over
`jobs`, `delivery`, `text`, `metrics` and `errors`, which both models share. The pod's commands:
`entrypoint` over `launch`, `preflight` and `probe`. Python 3.10 or newer: the profiles' images have that.
"""
