"""A service as the cluster has it."""

from typing import Any

from pydantic import ValidationError

from tandem.api.types import SpeculativeInferenceService
from tandem.client.kubectl import ClusterError


def parse(found: dict[str, Any]) -> SpeculativeInferenceService:
    """Raises ClusterError where it has what this version does not know."""
    try:
        return SpeculativeInferenceService.model_validate(found)
    except ValidationError as error:
        meta, first = found["metadata"], error.errors()[0]
        raise ClusterError(
            f"{meta['namespace']}/{meta['name']} is of another version of Tandem: use that one's command"
            f" ({'.'.join(map(str, first['loc']))}: {first['msg']})"
        ) from error
