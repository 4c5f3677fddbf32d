"""The reference engine: Llama-architecture checkpoints in numpy, with results that do not depend on the batch.

Where things are: `blas` (environment of the matrix library), `config` and `weights` (a checkpoint from
disk), `layout` (weights as the forward pass wants them), `linear`, `attention`, `kv_cache` and `model` (the
forward pass), `sampling` and `acceptance` (which token, after a draft token too), `slots` (KV reuse across
requests), `sequence` and `scheduler` (continuous batching, a step at a time), `engine` (the scheduler on a
thread), `tensors` and `responses` (TensorRT-LLM's tensors). Nothing here knows Triton.

Invariance: every product of matrices has a shape that depends on the model alone: 8 rows by 64 columns in
linear layers, a fixed tile of queries by a fixed block of keys in attention. More rows, longer prompts and
other sequences only mean more products of the same shapes; sums over key blocks run in order, and masked
keys add exact zeros. So the bits of a position's logits are the same whether it was computed in a prompt, as
one decoded token, or as a draft token under verification, alone or among others.
"""

from reference_engine import blas

blas.configure()  # here, since it must come before any module of the package loads numpy
