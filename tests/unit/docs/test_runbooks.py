"""Each alert of the chart has a section that says what to do."""

import re

import yaml

from .pages import ROOT

METRICS = ROOT / "docs/reference/metrics.md"
RULES = ROOT / "charts/tandem/files/rules.yaml"


def test_each_alert_has_a_runbook() -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
    page = METRICS.read_text()
    sections = set(re.findall(r"^### (\w+)\n\*\*When\*\*: .+\n\n\*\*Do\*\*: .+", page, re.MULTILINE))
    assert sections == alerts
