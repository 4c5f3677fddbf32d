"""What people run against a cluster: `kubectl`, completions (`generate`), benchmarks (`bench`).

Only the command line imports it.
"""
