"""Completions as a client measures them."""

from tandem.client.generate.figures import Completion, Totals


def completion(tokens: int, seconds: float, first: float, drafted: int = 0, accepted: int = 0) -> Completion:
    """One of so many tokens; seconds from its start, of which `first` until the first token."""
    totals = Totals(draft_tokens=drafted, accepted_draft_tokens=accepted)
    return Completion("", tuple(range(tokens)), seconds, first, tokens - accepted, accepted, "length", totals)
