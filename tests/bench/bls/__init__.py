"""Benchmark of the speculative BLS: a stub engine with a cost model on the real Triton, beside an ideal.

    PYTHONPATH=tests:operator:images:images/serving python -m bench.bls table --streams 1 --streams 32

`in_flight` and `tokens` are the cost model and the made-up model, pure; the stub engine runs them in real
time, `simulate` in virtual time without any overhead. `client` is the load, in a process of its own.
"""
