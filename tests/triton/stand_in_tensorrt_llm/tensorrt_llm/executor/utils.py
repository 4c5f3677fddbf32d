"""Errors."""

from reference_llm.executor.utils import RequestError

__all__ = ["RequestError"]
