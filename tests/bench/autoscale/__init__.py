"""Benchmark of the autoscaling policy: a service in virtual time, its real planner, and others beside it.

    export PYTHONPATH=tests:operator:images:images/serving
    python -m bench.autoscale compare --write docs/reference/benchmarks/autoscaling.md # minutes
    python -m bench.autoscale compare --trace collapse                # one trace

`traces` is the traffic, `costs` the cost model of the speculative BLS's benchmark, `replica` a pod by it, `hpa` the
HorizontalPodAutoscaler's own algorithm, `simulate` a service of them; `scalers` are the policies. All pure.
"""
