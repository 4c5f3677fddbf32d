"""What the API server would make of a manifest."""

import json
from typing import Any

from .conftest import Namespace


def dry_run(namespace: Namespace, manifest: dict[str, Any]) -> Any:
    """What the API server would make of a manifest; unknown and double fields are errors."""
    options = ("create", "--dry-run=server", "--validate=strict", "-o", "json", "-f", "-")
    return json.loads(namespace.run(*options, stdin=json.dumps(manifest)))
