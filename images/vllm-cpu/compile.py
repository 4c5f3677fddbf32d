"""Imports what a server's processes import, so that Python keeps it compiled: they cannot write it themselves."""

import importlib

for name in (
    "vllm.model_executor.models.llama",
    "vllm.v1.engine.async_llm",
    "vllm.v1.engine.core",
    "vllm.v1.executor.multiproc_executor",
    "vllm.v1.spec_decode.draft_model",
    "vllm.v1.spec_decode.ngram_proposer",
    "vllm.v1.worker.cpu_worker",
):
    importlib.import_module(name)
