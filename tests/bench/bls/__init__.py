"""Benchmark of the speculative BLS: a stub engine with a cost model on the real Triton, beside an ideal.

    export PYTHONPATH=tests:operator:images:images/serving
    python -m bench.bls point --streams 32                            # 10 seconds, everything measured
    python -m bench.bls point --streams 32 --profile bls.svg          # where the BLS's CPU goes
    python -m bench.bls table --write results.md                      # 5 minutes
    python -m bench.bls floor --write results.md                      # 5 minutes, beside the least of all models
    python -m bench.bls adaptive --write results.md                   # 20 minutes
    python -m bench.bls phases                                        # acceptance that changes

`in_flight` and `tokens` are the cost model and the made-up model, pure: `simulate` runs them in virtual time
without any overhead, the stub engine in real time (`stub_engine/`: a backend of Triton's in C++, as TensorRT-LLM's
is). `client` is the load (`load/`, in Go), in a process of its own. On a machine with other work, put
`nice -n -15` in front.
"""
