"""What runs beside Triton in a Tandem pod: the speculative BLS, the LLM-API model and the pod's entry point.

Layers of the BLS, each importing only those after it:

- `adapter`: Triton. The only modules with its `pb_utils`
- `service`: requests, their watchdog (`jobs`) and their sequences (`generation`, with its responses in `chunks`)
- `runner`: threads for engine calls, and `delivery` for texts
- `rounds`: which calls go out (`schedule`, `places`, `flights`, `breaker`), and what their answers lead to
- `policy`: how many tokens are drafted (`draft_length`, `acceptance`, `call_costs`, `round_times`, `foresight`)
- `loop`: draft and verify, one sequence
- `request` and `text`: from tensors to prompts, from tokens to text (`inputs`, `tokenizer`)
- `settings`, `checkpoint`, `metrics`, `errors`

The LLM-API model is `llmapi`, over `jobs`, `delivery`, `text`, `metrics` and `errors`, which both models share. The
pod's commands: `entrypoint` over `launch`, `preflight` and `probe`. Python 3.10 or newer: the profiles' images have
that.
"""
