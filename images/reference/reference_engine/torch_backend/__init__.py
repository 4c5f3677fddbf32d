"""The reference engine's backend on a GPU: any dense decoder of transformers, over a KV cache by slots.

`loading` (a checkpoint, or a refusal), `model` (the `Backend`: passes of few shapes, a CUDA graph each), `layout`
(where a pass's rows go), `attention` and `kernels` (keys and values by slot), `linear` (few rows), `sampling` and
`draws` (which token).
Imported by `engine` only where the backend is asked for: it needs torch and transformers.
"""
