"""Versions of engines. Pure."""

import re


def parts(version: str) -> tuple[int, ...]:
    """Major and minor, for comparison; those of `1.3.0rc27` are 1 and 3."""
    found = re.match(r"(\d+)(?:\.(\d+))?", version)
    return (int(found[1]), int(found[2] or 0)) if found else ()
