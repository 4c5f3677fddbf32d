"""The reference engine: checkpoints behind TensorRT-LLM's tensors, in numpy on the CPU or in torch on a GPU.

Where things are: `sampling` and `acceptance` (which token, after a draft token too), `slots` (KV reuse across
requests), `sequence` and `scheduler` (continuous batching, a step at a time), `engine` (the scheduler on a
thread), `tensors` and `responses` (TensorRT-LLM's tensors). `backend` and `choice` are what the scheduler asks of a
model. Nothing here knows Triton's server.

The numpy backend, Llama's architecture: `blas` (environment of the matrix library), `config` and `weights` (a
checkpoint from disk), `layout` (weights as the forward pass wants them), `linear`, `attention`, `kv_cache` and
`model` (the forward pass). The other is `torch_backend`.

Invariance, of numpy alone: every product of matrices has a shape that depends on the model alone: 8 rows by 64
columns in linear layers, a fixed tile of queries by a fixed block of keys in attention. More rows, longer
prompts and other sequences only mean more products of the same shapes; sums over key blocks run in order, and
masked keys add exact zeros. So the bits of a position's logits are the same whether it was computed in a
prompt, as one decoded token, or as a draft token under verification, alone or among others.
"""

from reference_engine import blas

blas.configure()  # here, since it must come before any module of the package loads numpy
