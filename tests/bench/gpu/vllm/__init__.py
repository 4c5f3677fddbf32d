"""vLLM behind Tandem on the real Triton server, next to its AsyncLLM called directly: is the layer free?

    export PYTHONPATH=tests:operator:images:images/serving:images/reference
    python -m bench.gpu.vllm --checkpoints /dev/shm/pair --prompts HumanEval.jsonl.gz --out vllm.json

Both run at the same time, with the same arguments, which are the operator's for a resource, on one GPU (each needs
about 30 GiB with the pair in the shapes of 8B and 1B; `bench.gpu.checkpoints` writes it), and take turns: a window
of load goes to one, then the same to the other. Through Triton texts go in and out, by gRPC; called directly it
gets token ids and returns token ids. The last lines are the tables. It needs vLLM, and what `bench.gpu.served` needs.
"""
