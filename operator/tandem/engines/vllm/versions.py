"""Versions of vLLM that Tandem knows, by their minors: releases of one are alike here. Pure."""

from tandem.engines.versions import parts

MINORS = ("0.24", "0.25", "0.26", "0.27", "0.28", "0.29", "0.30", "0.31", "0.32", "0.33")


def minor_of(version: str) -> str | None:
    """That of a version such as 0.27.1: the newest that is not newer; None for versions before all of them."""
    known = [minor for minor in MINORS if parts(minor) <= parts(version)]
    return known[-1] if known else None


def is_known(version: str) -> bool:
    """Whether it is none that came later."""
    return parts(version) <= parts(MINORS[-1])


def before(minor: str) -> tuple[str, ...]:
    """Those older than `minor`."""
    return MINORS[: MINORS.index(minor)]


def since(minor: str) -> tuple[str, ...]:
    """`minor` and those newer."""
    return MINORS[MINORS.index(minor) :]
