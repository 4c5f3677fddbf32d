"""A client of `speculative_bls`: streams completions and measures them.

`figures` and `format` are pure; `client` speaks to Triton, `cluster` finds the service, `prompts` reads
files, `view` writes to the terminal, and `session` puts them together.
"""
