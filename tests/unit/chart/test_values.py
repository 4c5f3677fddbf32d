"""Values: what is refused and how, what reaches the operator's settings, and that they are documented."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import tandem
from support import images
from tandem.api.profile import Profile
from tandem.cli.chart import generated
from tandem.http.credentials import Credentials
from tandem.settings import (
    NOWHERE,
    JobSettings,
    KedaPrometheus,
    KedaSettings,
    LeaseSettings,
    MetricsServerSettings,
    PullSecret,
    Settings,
    load_settings,
    parse_settings,
    shipped_profiles,
)

from .conftest import CHART, Helm, Values, only

SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
HELPERS = (CHART / "templates" / "_helpers.tpl").read_text(encoding="utf-8")
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))


def asks(**prometheus: Any) -> Values:
    """Values of the metrics server that asks a Prometheus."""
    return {"prometheusUrl": "https://p", "prometheus": {"secretName": "s", **prometheus}}


REFUSED: list[tuple[str, Values, str, str]] = [
    # reason, values, where, what Helm says of it
    ("a typing error", {"wokers": 3}, "at ''", "additional properties 'wokers' not allowed"),
    ("in a block", {"lease": {"seconds": 3}}, "/lease", "additional properties 'seconds' not allowed"),
    ("in a profile", {"profiles": [{"name": "a", "img": "b"}]}, "/profiles/0", "'img' not allowed"),
    ("upgrades run two at once", {"lease": {"enabled": False}}, "/lease", "'enabled' not allowed"),
    (
        "no image",
        {"image": {"repository": ""}, "servingImage": "", "fetcherImage": ""},
        "",
        "image.repository, servingImage, fetcherImage: not set, and no public registry has Tandem's images",
    ),
    ("one of the images", {"fetcherImage": ""}, "", "fetcherImage: not set, and no public registry has Tandem's"),
    ("no worker", {"workers": 0}, "/workers", "minimum: got 0, want 1"),
    ("too many workers", {"workers": 1000}, "/workers", "maximum: got 1,000, want 256"),
    ("a word for a number", {"workers": "many"}, "/workers", "got string"),
    ("a fraction", {"replicas": 1.5}, "/replicas", "want integer"),
    ("one name for a list", {"namespaces": "team-a"}, "/namespaces", "got string, want array"),
    ("no namespace's name", {"namespaces": ["Team_A"]}, "/namespaces/0", "'Team_A' does not match pattern"),
    ("the same twice", {"namespaces": ["a", "a"]}, "/namespaces", "items at 0 and 1 are equal"),
    ("a profile without name", {"profiles": [{"image": "a"}]}, "/profiles/0", "missing property 'name'"),
    (
        "no way of calls",
        {"profiles": [{"name": "a", "engine": {"kind": "Tandem", "calls": "X"}}]},
        "/engine/calls",
        "'Single', 'Together', 'Collected'",
    ),
    (
        "quantities are strings",
        {"profiles": [{"name": "a", "resources": {"limits": {"cpu": 1}}}]},
        "/profiles/0/resources/limits/cpu",
        "got number, want string",
    ),
    ("no digest", {"image": {"digest": "abc"}}, "/image/digest", "'abc' does not match pattern"),
    ("a digest in the repository", {"image": {"repository": "a@b"}}, "/image/repository", "does not match"),
    ("no pull policy", {"image": {"pullPolicy": "Often"}}, "/pullPolicy", "'Always', 'IfNotPresent', 'Never'"),
    ("no level", {"logLevel": "loud"}, "/logLevel", "'debug', 'info', 'warning', 'error'"),
    ("no renewal", {"lease": {"renewSeconds": 0}}, "/lease/renewSeconds", "exclusiveMinimum: got 0, want 0"),
    ("a lease too short", {"lease": {"durationSeconds": 1}}, "/durationSeconds", "minimum: got 1, want 2"),
    ("no such users", {"userIds": "Mine"}, "/userIds", "one of 'Auto', 'Fixed', 'Platform'"),
    ("a name for a Secret", {"jobs": {"imagePullSecrets": ["r"]}}, "/jobs/imagePullSecrets/0", "want object"),
    ("a typing error of Jobs", {"jobs": {"labls": {}}}, "/jobs", "'labls' not allowed"),
    ("yes is not true", {"crds": {"install": "yes"}}, "/crds/install", "got string, want boolean"),
    ("a number as label", {"podLabels": {"a": 1}}, "/podLabels/a", "got number, want string"),
    (
        "a parameter that KEDA does not know",
        {"keda": {"prometheus": {"parameters": {"token": "t"}}}},
        "/keda/prometheus/parameters",
        "'token' not allowed",
    ),
    (
        "a certificate without its key",
        {"keda": {"prometheus": {"parameters": {"cert": "c"}}}},
        "/keda/prometheus/parameters",
        "'key'",
    ),
    (
        "a header that KEDA takes apart",
        {"keda": {"prometheus": {"headers": {"X-A": "a,b"}}}},
        "/keda/prometheus/headers/X-A",
        "does not match pattern",
    ),
    (
        "a header that HTTP does not know",
        {"metricsServer": {"prometheus": {"headers": {"X-A": "\u00e9"}}}},
        "/metricsServer/prometheus/headers/X-A",
        "does not match pattern",
    ),
    ("a block whose lines are all comments", {"lease": None}, "at ''", "missing property 'lease'"),
    ("such a block in a block", {"metricsServer": {"prometheus": None}}, "/metricsServer", "'prometheus'"),
    ("no level at all, with which no pod starts", {"logLevel": None}, "at ''", "missing property 'logLevel'"),
    ("nor an image", {"image": {"repository": None}}, "/image", "missing property 'repository'"),
    ("uninstalling would delete all services", {"crds": {"keep": None}}, "/crds", "missing property 'keep'"),
    ("no duration", {"metrics": {"podMonitor": {"interval": "often"}}}, "/interval", "does not match pattern"),
]


@pytest.mark.parametrize(("values", "where", "message"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_refused(helm: Helm, values: Values, where: str, message: str) -> None:
    said = helm.refusal(values)
    assert where in said
    assert message in said


TOGETHER: list[tuple[str, Values, str]] = [
    # reason, values, what Helm says of them: the operator would not start
    ("a name without a password", {"metricsServer": asks(username="u")}, "username and passwordFile go together"),
    ("a password of nobody", {"metricsServer": asks(passwordFile="p")}, "username and passwordFile go together"),
    ("a certificate without its key", {"metricsServer": asks(certFile="c")}, "certFile and keyFile go together"),
    (
        "two who ask",
        {"metricsServer": asks(bearerTokenFile="t", username="u", passwordFile="p")},
        "write bearerTokenFile, or username and passwordFile, not both",
    ),
    ("a secret", {"metricsServer": asks(headers={"authorization": "x"})}, "headers must not hold Authorization"),
    ("a window of one reading", {"metricsServer": {"intervalSeconds": 40}}, "60 is below twice intervalSeconds 40"),
    (
        "a window that is too short",
        {"metricsServer": {"windowSeconds": 29.5}},
        "29.5 is below twice intervalSeconds 15",
    ),
    ("a misspelt profile", {"profiles": [{"name": "refrence", "image": "m"}]}, "refrence is none of those that ship"),
    (
        "a profile without engine",
        {"profiles": [{"name": "mine", "image": "m"}]},
        "trtllm-1.4rc), so it needs engine",
    ),
    (
        "pods of no account",
        {"serviceAccount": {"create": False}},
        "serviceAccount.create is false: write serviceAccount.name",
    ),
    ("an image of no profile", {"profileImages": {"refrence": "m"}}, "refrence is none of the profiles that ship"),
    ("a lease that no renewal may miss", {"lease": {"renewSeconds": 6}}, "6 is above a third of durationSeconds 15"),
]


@pytest.mark.parametrize(("values", "message"), [r[1:] for r in TOGETHER], ids=[r[0] for r in TOGETHER])
def test_what_does_not_go_together_is_refused_before_the_operator_would(
    helm: Helm, values: Values, message: str
) -> None:
    assert message in helm.refusal(values)


def test_a_map_without_entries_may_be_null(helm: Helm) -> None:
    maps = ({"keda": {"prometheus": {"parameters": None}}}, {"podLabels": None}, {"resources": None})
    assert [bool(helm.template(values)) for values in maps] == [True] * 3


# --- the operator's settings ----------------------------------------------------------------------
def settings_text(helm: Helm, values: Values) -> str:
    return str(only(helm.template(values), "ConfigMap")["data"]["settings.yaml"])


IMAGES = {name: images.NEEDED[name] for name in ("servingImage", "fetcherImage")}


def changed(helm: Helm, values: Values, folder: Path) -> dict[str, Any]:
    """Top-level settings that differ from the operator's defaults, as the operator reads them; `reports` follows from
    the release."""
    file = folder / "settings.yaml"
    file.write_text(settings_text(helm, values), encoding="utf-8")
    read, default = load_settings(file), parse_settings(json.dumps(IMAGES), "the images that are needed")
    names = Settings.model_fields.keys() - {"reports"}
    return {name: getattr(read, name) for name in names if getattr(read, name) != getattr(default, name)}


KEYS = {"username": "username", "password": "password", "cert": "tls.crt", "key": "tls.key", "ca": "ca.crt"}
TENANT = {"X-Scope-OrgID": "team-a"}
LIMITS = {"cpu": "2"}
DIGEST = f"sha256:{'a' * 64}"
READER: Values = {"secretName": "reader", "parameters": KEYS}
ROUND_TRIPS: list[tuple[str, Values, dict[str, Any]]] = [
    ("nothing set: the operator's own defaults, all of them", {}, {}),
    (
        "who reads metrics",
        {"metricsPeers": [{"podSelector": {}}]},
        {"metrics_peers": [{"podSelector": {}}]},
    ),
    (
        "images by digest",
        {"servingImage": f"r.example:5000/s@{DIGEST}", "fetcherImage": f"r.example/f:1@{DIGEST}"},
        {"serving_image": f"r.example:5000/s@{DIGEST}", "fetcher_image": f"r.example/f:1@{DIGEST}"},
    ),
    ("who reaches services", {"clientPeers": [{"podSelector": {}}]}, {"client_peers": [{"podSelector": {}}]}),
    ("triggers", {"keda": {"allowedTriggers": ["cron"]}}, {"keda": KedaSettings(allowed_triggers=["cron"])}),
    ("fetcher image", {"fetcherImage": "r.example/f:1"}, {"fetcher_image": "r.example/f:1"}),
    ("serving image", {"servingImage": "r.example/s:1"}, {"serving_image": "r.example/s:1"}),
    ("namespaces", {"namespaces": ["a", "b"]}, {"namespaces": ["a", "b"]}),
    ("whole seconds", {"resyncSeconds": 5}, {"resync_seconds": 5}),
    ("parts of seconds", {"resyncSeconds": 0.5}, {"resync_seconds": 0.5}),
    ("the largest", {"resyncSeconds": 86400}, {"resync_seconds": 86400}),
    ("workers", {"workers": 256}, {"workers": 256}),
    (
        "the metrics server's",
        {"metricsServer": {"intervalSeconds": 5, "windowSeconds": 20, "prometheusUrl": "http://p:9090"}},
        {
            "metrics_server": MetricsServerSettings(
                interval_seconds=5, window_seconds=20, prometheus_url="http://p:9090"
            )
        },
    ),
    (
        "who asks the metrics server's Prometheus: files of the Secret, where it is mounted",
        {
            "metricsServer": {
                "prometheus": {
                    "secretName": "reader",
                    "caFile": "ca.crt",
                    "username": "tandem",
                    "passwordFile": "password",
                    "headers": {"X-Scope-OrgID": "team-a"},
                }
            }
        },
        {
            "metrics_server": MetricsServerSettings(
                prometheus=Credentials(
                    ca_file="/etc/tandem-prometheus/ca.crt",
                    username="tandem",
                    password_file="/etc/tandem-prometheus/password",
                    headers={"X-Scope-OrgID": "team-a"},
                )
            )
        },
    ),
    (
        "a certificate of the administrator's",
        {"metricsServer": {"certificate": {"secretName": "mine"}}},
        {"metrics_server": MetricsServerSettings(secret="mine", manage_certificate=False)},
    ),
    (
        "KEDA's",
        {"keda": {"unsafeSsl": True, "prometheusUrl": "http://p:9090"}},
        {"keda": KedaSettings(unsafe_ssl=True, prometheus_url="http://p:9090")},
    ),
    (
        "who asks KEDA's Prometheus: the object with its credentials, and which of them are shown",
        {
            "keda": {
                "prometheusUrl": "https://p:9090",
                "prometheus": {**READER, "headers": TENANT},
            }
        },
        {
            "keda": KedaSettings(
                prometheus_url="https://p:9090",
                prometheus=KedaPrometheus(
                    authentication="tandem-metrics-prometheus",
                    auth_modes=["tls", "basic"],
                    headers=TENANT,
                ),
            )
        },
    ),
    (
        "a tenant alone",
        {"keda": {"prometheusUrl": "http://p:9090", "prometheus": {"headers": TENANT}}},
        {"keda": KedaSettings(prometheus_url="http://p:9090", prometheus=KedaPrometheus(headers=TENANT))},
    ),
    (
        "what Jobs have",
        {
            "jobs": {
                "env": [{"name": "HTTPS_PROXY", "value": "p"}],
                "caConfigMap": "ca",
                "resources": {"limits": LIMITS},
            }
        },
        {
            "jobs": JobSettings(
                env=[{"name": "HTTPS_PROXY", "value": "p"}], ca_config_map="ca", resources={"limits": LIMITS}
            )
        },
    ),
    (
        "pull secrets of all pods",
        {"jobs": {"imagePullSecrets": [{"name": "r"}]}},
        {"jobs": JobSettings(image_pull_secrets=[PullSecret(name="r")])},
    ),
    ("OpenShift", {"userIds": "Platform"}, {"user_ids": "Platform"}),
    ("none is not unset", {"revisionHistoryLimit": 0}, {"revision_history_limit": 0}),
    (
        "lease",
        {"lease": {"name": "l", "durationSeconds": 30, "renewSeconds": 2.5}},
        {"lease": LeaseSettings(name="l", duration_seconds=30, renew_seconds=2.5)},
    ),
]


@pytest.mark.parametrize(("values", "expected"), [r[1:] for r in ROUND_TRIPS], ids=[r[0] for r in ROUND_TRIPS])
def test_values_reach_the_operators_settings(
    helm: Helm, tmp_path: Path, values: Values, expected: dict[str, Any]
) -> None:
    assert changed(helm, values, tmp_path) == expected


def test_profiles_reach_the_operators_settings(helm: Helm, tmp_path: Path) -> None:
    mine = {"name": "mine", "image": "m", "engine": {"kind": "TensorRT-LLM", "version": "1.3", "env": {"A": "1"}}}
    extras = {"resources": {"limits": {"cpu": "1"}}, "maxTensorParallelSize": 8}
    values = {"profiles": [{"name": "reference", "image": f"r.example/ref@{DIGEST}"}, {**mine, **extras}]}
    profiles = {p.name: p for p in changed(helm, values, tmp_path)["profiles"]}
    shipped = load_settings().profile("reference")
    assert shipped is not None
    assert profiles["reference"] == shipped.model_copy(update={"image": f"r.example/ref@{DIGEST}"})
    assert profiles["mine"] == Profile.model_validate({**mine, **extras})


def test_images_of_shipped_profiles_yield_to_those_of_profiles(helm: Helm, tmp_path: Path) -> None:
    """A release has such images among its defaults: whoever writes `profiles` must not lose them."""
    mine = {"name": "mine", "image": "m", "engine": {"kind": "Tandem"}}
    changes = [{"name": "reference", "maxTensorParallelSize": 2}, {"name": "torch", "image": "own/torch"}, mine]
    images = {"reference": "r.example/ref@sha256:1", "torch": "r.example/torch", "trtllm-1.3": "r.example/1.3"}
    profiles = {
        p.name: p for p in changed(helm, {"profiles": changes, "profileImages": images}, tmp_path)["profiles"]
    }
    found = {name: profiles[name].image for name in (*images, "mine")}
    assert found == {**images, "torch": "own/torch", "mine": "m"}
    assert profiles["reference"].max_tensor_parallel_size == 2


OPENSHIFT = "security.openshift.io/v1"


@pytest.mark.parametrize(
    ("user_ids", "apis", "fixed", "reason"),
    [
        ("Auto", [], True, "no image of ours names a user that the kubelet takes for no root by itself"),
        ("Auto", [OPENSHIFT], False, "restricted-v2 refuses users outside the namespace's range"),
        ("Fixed", [OPENSHIFT], True, "the administrator may grant another constraint"),
        ("Platform", [], False, "without a look at the cluster"),
    ],
)
def test_who_chooses_the_users(helm: Helm, user_ids: str, apis: list[str], fixed: bool, reason: str) -> None:
    arguments = [word for api in apis for word in ("--api-versions", api)]
    done = helm.run("template", "tandem", str(CHART), *arguments, values={"userIds": user_ids})
    objects = [each for each in yaml.safe_load_all(done.stdout) if each]
    pods = [each["spec"]["template"]["spec"] for each in objects if each["kind"] == "Deployment"]
    assert len(pods) == 2
    for pod in pods:
        found = pod["securityContext"]
        assert found["runAsNonRoot"]
        assert found["seccompProfile"] == {"type": "RuntimeDefault"}
        assert {"runAsUser", "runAsGroup", "fsGroup"} & found.keys() == (
            {"runAsUser", "runAsGroup", "fsGroup"} if fixed else set()
        ), reason
    settings = only(objects, "ConfigMap", "tandem-operator-settings")["data"]["settings.yaml"]
    assert yaml.safe_load(settings).get("userIds", "Fixed") == ("Fixed" if fixed else "Platform"), reason


def test_the_chart_knows_the_names_of_the_shipped_profiles(helm: Helm) -> None:
    names = [profile["name"] for profile in shipped_profiles()]
    assert f"({', '.join(names)})" in helm.refusal({"profiles": [{"name": "other"}]})


def test_only_what_is_set_is_written(helm: Helm) -> None:
    """The names always that other objects of the chart have: of the Lease, and of the metrics server's Service."""
    names = {"service": "tandem-metrics", "secret": "tandem-metrics-certificate"}
    files = {"caFile": "/etc/tandem-metrics/ca.crt", "tokenFile": "/etc/tandem-metrics/token"}
    reports = {"url": "https://tandem-metrics.tandem-system.svc", **files}
    keda = {"authentication": "tandem-metrics"}
    always = {
        **IMAGES,
        "lease": {"name": "tandem-operator"},
        "metricsServer": names,
        "reports": reports,
        "keda": keda,
    }
    assert yaml.safe_load(settings_text(helm, {})) == always
    assert yaml.safe_load(settings_text(helm, {"workers": 1})) == {**always, "workers": 1}


def test_in_namespaces_the_operator_reads_the_pods_by_the_metrics_servers_values(helm: Helm, tmp_path: Path) -> None:
    server = {"windowSeconds": 90, **asks(bearerTokenFile="token")}
    values = {"namespaces": ["a"], "metricsServer": server}
    read = changed(helm, values, tmp_path)["metrics_server"]
    token = Credentials(bearer_token_file="/etc/tandem-prometheus/token")
    assert read == MetricsServerSettings(window_seconds=90, prometheus_url="https://p", prometheus=token)
    assert yaml.safe_load(settings_text(helm, values))["reports"] == {"fromPods": True}
    off = {"namespaces": ["a"], "metricsServer": {"enabled": False}}
    assert not {"reports", "metricsServer"} & yaml.safe_load(settings_text(helm, off)).keys()


@pytest.mark.parametrize(
    ("page", "written"),
    [
        ({"playground": True}, {"enabled": True, "playground": True}),
        ({"enabled": False}, {"enabled": False, "playground": False}),
        ({}, None),
    ],
    ids=["with the playground", "no page", "as by default"],
)
def test_the_page_of_the_metrics_server(helm: Helm, page: Values, written: Any) -> None:
    settings = yaml.safe_load(settings_text(helm, {"metricsServer": {"page": page}}))
    assert settings["metricsServer"].get("page") == written


@pytest.mark.parametrize("values", [{}, {"lease": {"name": "other"}}], ids=["default", "named"])
def test_the_lease_of_the_settings_is_the_one_of_the_role(helm: Helm, values: Values) -> None:
    name = yaml.safe_load(settings_text(helm, values))["lease"]["name"]
    role = only(helm.template(values), "Role", "tandem-operator-lease")
    assert [rule["resourceNames"] for rule in role["rules"] if "resourceNames" in rule] == [[name]]


# --- the schema -----------------------------------------------------------------------------------
def test_the_charts_generated_files_are_current() -> None:
    for path, text in generated(CHART).items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run `make generate`"


NOT_OFFERED = {
    Settings: {"reports"},  # follows from the release
    KedaSettings: {"authentication"},
    KedaPrometheus: {"authentication", "authModes"},  # follow from `parameters`
    LeaseSettings: {"enabled"},  # an upgrade runs two operators for a moment
    MetricsServerSettings: {"service", "secret", "manageCertificate"},  # follow from the release and `certificate`
}


OWN_WORDS = {"userIds": ["Auto"]}
"""Words that the chart has beside those of the setting, which it writes instead."""


@pytest.mark.parametrize(
    ("model", "schema"),
    [
        (Settings, SCHEMA["properties"]),
        (LeaseSettings, SCHEMA["properties"]["lease"]["properties"]),
        (MetricsServerSettings, SCHEMA["properties"]["metricsServer"]["properties"]),
        (Credentials, SCHEMA["properties"]["metricsServer"]["properties"]["prometheus"]["properties"]),
        (KedaSettings, SCHEMA["properties"]["keda"]["properties"]),
        (KedaPrometheus, SCHEMA["properties"]["keda"]["properties"]["prometheus"]["properties"]),
        (Profile, SCHEMA["properties"]["profiles"]["items"]["properties"]),
    ],
    ids=["settings", "lease", "metrics server", "its Prometheus", "KEDA", "KEDA's Prometheus", "profile"],
)
def test_every_setting_is_a_value_with_the_operators_bounds(model: Any, schema: dict[str, Any]) -> None:
    for name, field in model.model_json_schema(by_alias=True)["properties"].items():
        if name in NOT_OFFERED.get(model, ()):
            continue
        assert name in schema, f"{name} is a setting: run `make generate`"
        for bound in ("minimum", "exclusiveMinimum", "maximum", "minLength", "uniqueItems", "enum"):
            wanted = field.get(bound)
            if bound == "enum" and wanted:
                wanted = [*OWN_WORDS.get(name, []), *wanted]
            assert bound not in field or schema[name].get(bound) == wanted, f"{name}: {bound}"
        written = model is Profile or re.search(rf"\b{name}\b", HELPERS)
        assert written, f"{name} is a setting: write it in `tandem.settings` of templates/_helpers.tpl"


def test_the_charts_version_is_the_operators() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == tandem.__version__
    ours = [profile["image"] for profile in shipped_profiles() if profile.get("image", "").startswith(NOWHERE)]
    assert len(ours) == 3
    for image in (load_settings().serving_image, load_settings().fetcher_image, *ours):
        assert image.endswith(f":{tandem.__version__}")


# --- documentation --------------------------------------------------------------------------------
def leaves(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted path to default of each value; `resources` is one value."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        inner = isinstance(value, dict) and value and name != "resources"
        found |= leaves(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}": value}
    return found


def test_the_readme_lists_every_value_with_its_default() -> None:
    rows = re.findall(
        r"^\| `([\w.]+)` \| `(.*?)` \|", (CHART / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {name: yaml.safe_load(default) for name, default in rows} == leaves(DEFAULTS)


def test_every_value_of_the_schema_is_in_values_yaml() -> None:
    for_parents = {".global", ".enabled"}  # of charts that depend on this one

    def missing(schema: dict[str, Any], defaults: dict[str, Any], path: str) -> list[str]:
        found = [f"{path}.{name}" for name in schema.get("properties", {}).keys() - defaults.keys()]
        for name, value in defaults.items():
            if isinstance(value, dict) and value and name != "resources":
                found += missing(schema["properties"][name], value, f"{path}.{name}")
        return found

    absent = missing(SCHEMA, DEFAULTS, "")
    assert set(absent) == for_parents, "write them in values.yaml, with defaults, and in README.md"


def test_every_line_of_values_yaml_is_explained() -> None:
    """A comment stands above each value, or above the block that it is in where its name says enough."""
    lines = (CHART / "values.yaml").read_text(encoding="utf-8").splitlines()
    blocks = (
        *("image:", "lease:", "crds:", "metrics:", "networkPolicy:", "podMonitor:", "rules:", "dashboard:"),
        *("requests:", "limits:"),
    )
    bare = [
        line
        for before, line in itertools.pairwise(lines)
        if line and not line.lstrip().startswith(("#", *blocks)) and not before.lstrip().startswith("#")
    ]
    assert bare == []


def test_every_value_of_the_schema_is_described() -> None:
    def undescribed(schema: dict[str, Any], path: str) -> list[str]:
        found = [] if "description" in schema else [path]
        for name, child in schema.get("properties", {}).items():
            found += undescribed(child, f"{path}.{name}")
        return found

    assert [path for path in undescribed(SCHEMA, "") if path] == []
