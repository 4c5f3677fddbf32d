"""The speculative BLS: draft and verify, for many sequences at once, without Triton. Only `adapter` imports it.

Its layers, in the order of a request's way: `service` (requests, their end), `runner` (threads), `rounds` (what runs,
what answers lead to), `in_flight`, `queue` and `circuit_breaker`, `sequence` and `schedule`, `draft_length`,
`chunks`, `loop` (one sequence, pure) and `request` (tensors to prompts).
"""
