"""What Jobs do before a server starts: check models and arguments, build engines, size their KV caches. Only `boot`
imports it.
"""
