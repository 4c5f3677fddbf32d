"""Names by content."""

import hashlib
import json


def digest(value: object, length: int = 10) -> str:
    """First hexadecimal digits of the SHA-256 of `value` as canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]
