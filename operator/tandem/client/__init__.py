"""What people run against a cluster: `kubectl`, completions (`generate`), benchmarks (`bench`).

The command line imports it, and the metrics server for its page's playground.
"""
