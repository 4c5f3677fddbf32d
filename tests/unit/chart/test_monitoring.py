"""What the chart has for people: monitors, rules with promtool's own unit tests, dashboard, adapter rules."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from support.services import QUICKSTART, parse
from tandem import children, names
from tandem.api import GROUP, KIND
from tandem.autoscaling import REPLICAS_NEEDED
from tandem.counters import ENGINE_FAILURES, ROUND_SECONDS
from tandem.metrics.telemetry.page import MAX_SERIES
from tandem.metrics_server.judgements import FAMILIES
from tandem_serving import metrics
from tandem_serving.openai.metrics import PICKED, Metrics

from .conftest import CHART, Helm, Object, only

FILES = CHART / "files"
RULES = FILES / "rules.yaml"
ALL: dict[str, Any] = {
    "monitoring": {
        "podMonitor": {"enabled": True, "labels": {"release": "p"}},
        "rules": {"enabled": True},
        "dashboard": {"enabled": True},
    }
}
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed: `make deps` installs it (Debian's package prometheus)"
)


def promtool(*arguments: str) -> str:
    assert PROMTOOL
    done = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_promtool
def test_rules_are_rules() -> None:
    assert "SUCCESS" in promtool("check", "rules", "--lint-fatal", str(RULES))


@needs_promtool
def test_rules_do_what_they_say(tmp_path: Path) -> None:
    text = (Path(__file__).parent / "rules_test.yaml").read_text(encoding="utf-8")
    file = tmp_path / "rules_test.yaml"
    file.write_text(text.replace("[RULES]", f"[{RULES}]"), encoding="utf-8")
    assert "SUCCESS" in promtool("test", "rules", str(file))


def test_every_alert_and_record_is_tested() -> None:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    tests = yaml.safe_load((Path(__file__).parent / "rules_test.yaml").read_text(encoding="utf-8"))["tests"]
    fired = {row["alertname"] for test in tests for row in test.get("alert_rule_test", ()) if row["exp_alerts"]}
    rows = [row for test in tests for row in test.get("promql_expr_test", ()) if row["exp_samples"]]
    recorded = {row["expr"].partition("{")[0] for row in rows}
    rules = [rule for group in groups for rule in group["rules"]]
    assert {rule["alert"] for rule in rules if "alert" in rule} - fired == set()
    assert {rule["record"] for rule in rules if "record" in rule} - recorded == set()


def test_nothing_is_made_unless_asked_for(helm: Helm) -> None:
    kinds = {o["kind"] for o in helm.template()}
    assert not kinds & {"PodMonitor", "PrometheusRule"}
    added = [o for o in helm.template(ALL) if o not in helm.template()]
    assert sorted(f"{o['kind']}/{o['metadata']['name']}" for o in added) == [
        "ConfigMap/tandem-dashboard",
        "PodMonitor/tandem-serving",
        "PrometheusRule/tandem",
    ]


def test_the_monitor_finds_the_serving_pods_and_names_their_service(helm: Helm) -> None:
    monitor = only(helm.template(ALL), "PodMonitor", "tandem-serving")
    assert monitor["metadata"]["labels"]["release"] == "p"
    labels = names.labels("quickstart", names.SERVER)
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert monitor["spec"]["namespaceSelector"] == {"any": True}
    assert monitor["spec"]["sampleLimit"] >= 10 * MAX_SERIES, (
        "a hostile pod fills no answer (docs/design/collector.md)"
    )
    for endpoint in monitor["spec"]["podMetricsEndpoints"]:
        assert endpoint["port"] in {port["name"] for port in children.endpoint(parse(QUICKSTART))["spec"]["ports"]}
        (relabeling,) = endpoint["relabelings"]
        assert relabeling == {
            "sourceLabels": ["__meta_kubernetes_pod_label_" + re.sub(r"[^a-z]", "_", names.LABEL_SERVICE)],
            "targetLabel": KIND.lower(),
        }


def test_openai_endpoints_are_scraped_as_they_are_served(helm: Helm) -> None:
    def scraped(openai: str) -> list[Object]:
        values = {"monitoring": {"podMonitor": {"enabled": True, "openAI": openai}}}
        found = only(helm.template(values), "PodMonitor", "tandem-serving")["spec"]["podMetricsEndpoints"]
        assert found[0]["port"] == "metrics"
        return list(found[1:])

    assert scraped("none") == []
    ((plain,), (secure,)) = scraped("http"), scraped("https")
    assert (plain["scheme"], secure["scheme"], secure["tlsConfig"]) == ("http", "https", {"insecureSkipVerify": True})
    (drop,) = plain["metricRelabelings"]
    assert all(re.fullmatch(drop["regex"], name) for name in PICKED)


def test_of_named_namespaces_only(helm: Helm) -> None:
    monitor = only(helm.template({**ALL, "namespaces": ["team-a"]}), "PodMonitor", "tandem-serving")
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["team-a"]}


@pytest.mark.parametrize("of", ["tandem-metrics", "tandem-operator"])
def test_labels_of_services_are_kept(helm: Helm, of: str) -> None:
    monitor = only(helm.template({"metrics": {"podMonitor": {"enabled": True}}}), "PodMonitor", of)
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["honorLabels"], "`namespace` is that of the service"


def test_rules_and_dashboard_are_the_files(helm: Helm) -> None:
    objects = helm.template(ALL)
    assert only(objects, "PrometheusRule")["spec"] == yaml.safe_load(RULES.read_text(encoding="utf-8"))
    board = only(objects, "ConfigMap", "tandem-dashboard")
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert board["data"]["tandem.json"] == (FILES / "dashboard.json").read_text(encoding="utf-8")


def test_where_no_metrics_server_runs_nobody_is_told_that_it_is_down(helm: Helm) -> None:
    everything = {group["name"] for group in only(helm.template(ALL), "PrometheusRule")["spec"]["groups"]}
    without = only(helm.template({**ALL, "namespaces": ["team-a"]}), "PrometheusRule")["spec"]["groups"]
    assert everything - {group["name"] for group in without} == {"tandem-metrics-server"}
    assert "TandemMetricsServerDown" not in {rule.get("alert") for group in without for rule in group["rules"]}


PARTS = {"histogram": ("_bucket", "_sum", "_count")}


def known_series() -> set[str]:
    """Series that the pods, the metrics server, the operator and the rules make."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    found = {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}
    families = [value for value in vars(metrics).values() if isinstance(value, metrics.Family)]
    for family in families:
        found |= {family.name + part for part in PARTS.get(family.kind, ("",))}
    openai = re.findall(r"^# TYPE (tandem_\S+) (\w+)$", Metrics(0).text().decode(), re.MULTILINE)
    found |= {name + part for name, kind in openai for part in PARTS.get(kind, ("",))}
    rounds = {sample.name for metric in ROUND_SECONDS.collect() for sample in metric.samples}
    failures = {f"{metric.name}_total" for metric in ENGINE_FAILURES.collect()}
    return found | FAMILIES.keys() | {REPLICAS_NEEDED} | rounds | failures


def expressions(found: Object) -> list[str]:
    """Every PromQL expression in a nest of objects."""
    if isinstance(found, list):
        return [e for item in found for e in expressions(item)]
    if not isinstance(found, dict):
        return []
    own = [str(found["expr"])] if "expr" in found else []
    return [*own, *(e for value in found.values() for e in expressions(value))]


@pytest.mark.parametrize("name", ["dashboard.json", "rules.yaml"])
def test_only_series_that_exist_are_asked_for(name: str) -> None:
    text = (FILES / name).read_text(encoding="utf-8")
    found = expressions(json.loads(text) if name.endswith("json") else yaml.safe_load(text))
    assert len(found) > 10
    asked = {series for e in found for series in re.findall(r"\btandem[_:][a-z0-9_:]+", e)}
    assert asked - known_series() == set()


@needs_promtool
def test_the_dashboards_expressions_are_promql(tmp_path: Path) -> None:
    board = json.loads((FILES / "dashboard.json").read_text(encoding="utf-8"))
    rules = [{"record": f"panel:{n}", "expr": expr} for n, expr in enumerate(expressions(board))]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}), encoding="utf-8")
    promtool("check", "rules", str(file))


def lost(found: Any, kept: Any, path: str = "") -> list[str]:
    """What of `found` is missing from `kept`, or another value there."""
    if isinstance(found, dict) and isinstance(kept, dict):
        return [p for key in found for p in (lost(found[key], kept.get(key), f"{path}.{key}"))]
    if isinstance(found, list) and isinstance(kept, list) and len(found) == len(kept):
        return [p for n, (a, b) in enumerate(zip(found, kept, strict=True)) for p in lost(a, b, f"{path}[{n}]")]
    return [] if found == kept else [path]


def in_grafanas_types(board: Object) -> Object:
    """The dashboard as Grafana's own types keep it: a field that they do not know is lost."""
    register_default_plugins()
    kept: Object = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(board)))
    return kept


def test_the_dashboard_is_one_by_grafanas_types() -> None:
    board = json.loads((FILES / "dashboard.json").read_text(encoding="utf-8"))
    assert lost(board, in_grafanas_types(board)) == []
    board["panels"][0]["fieldConfig"]["defaults"]["units"] = "s"
    board["refesh"] = "30s"
    assert lost(board, in_grafanas_types(board)) == [".panels[0].fieldConfig.defaults.units", ".refesh"]


def test_panels_have_queries_and_stand_beside_each_other() -> None:
    panels = json.loads((FILES / "dashboard.json").read_text(encoding="utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["targets"], panel["title"]
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, "Grafana's grid has 24 columns"
        own = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not own & cells, f"{panel['title']} covers another"
        cells |= own


def test_the_adapter_maps_the_series_to_our_kind() -> None:
    (rule,) = yaml.safe_load((FILES / "prometheus-adapter.yaml").read_text(encoding="utf-8"))["rules"]["custom"]
    assert rule["name"]["as"] == REPLICAS_NEEDED
    assert rule["seriesQuery"].startswith(f"{REPLICAS_NEEDED}{{")
    assert rule["resources"]["overrides"][KIND.lower()] == {"group": GROUP, "resource": KIND.lower()}
