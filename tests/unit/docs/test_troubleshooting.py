"""The page's reasons are those that status has."""

import re

from .pages import ROOT

PAGE = ROOT / "docs/troubleshooting.md"
CONDITIONS = ROOT / "docs/reference/conditions.md"
OTHERS = {"FailedGetObjectMetric", "OOMKilled", "Surge", "Replace", "Prometheus", "KEDA", "READY", "UNAVAILABLE"}
"""Names that look like reasons: Kubernetes' own, and values of fields."""


def test_reasons_and_conditions_exist() -> None:
    named = set(re.findall(r"`([A-Z][A-Za-z]+)`", PAGE.read_text())) - OTHERS
    known = set(re.findall(r"`([A-Z][A-Za-z]+)`|^## (\w+)$", CONDITIONS.read_text(), re.MULTILINE))
    assert named - {name for pair in known for name in pair} == set()
