"""Mode BLS on the real Triton server, with the reference engine as draft and target, on a GPU or on the CPU.

    export PYTHONPATH=tests:operator:images:images/serving:images/reference
    python -m bench.gpu.served --checkpoints /dev/shm/pair --out docs/reference/benchmarks/gpu-bls.json  # 7 minutes
    python -m bench.gpu.served --numpy --streams 1 4 --out build/cpu-bls.json         # the pair itself, on the CPU
    python -m bench.gpu.served.tables docs/reference/benchmarks/gpu-bls.json  # as markdown
    python -m bench.gpu.served.plots docs/reference/benchmarks/gpu-bls.json docs/reference/benchmarks/gpu-bls.svg

The first makes the pair in large shapes where its folder is not there (`bench.gpu.checkpoints`; 18.5 GB), with times
of their steps. One server holds both engines, and a BLS for each way of scheduling (`ways`); others hold the LLM API.
The load is `bench.bls`'s. It needs the wheel `nvidia-pytriton`, numpy 1 and Go, or a load program that was built
elsewhere (`--load`).
"""
