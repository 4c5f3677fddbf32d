"""Strategic merge patches: each row is checked against kubectl's own in tests/integration/test_workload.py."""

from typing import Any

import pytest

from tandem.render.v1.strategic_merge import merge

from .strategic_merge_rows import ROWS


@pytest.mark.parametrize(("base", "patch", "wanted", "reason"), ROWS, ids=[row[3] for row in ROWS])
def test_merged(base: dict[str, Any], patch: dict[str, Any], wanted: dict[str, Any], reason: str) -> None:
    assert merge(base, patch) == wanted, reason


def test_arguments_are_not_changed() -> None:
    base: dict[str, Any] = {"spec": {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}]}}
    patch: dict[str, Any] = {"spec": {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]}}
    merge(base, patch)
    assert base == {"spec": {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}]}}
    assert patch == {"spec": {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]}}
