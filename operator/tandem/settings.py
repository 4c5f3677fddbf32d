"""The operator's settings: one YAML file, from Helm values; every field has a default.

`make generate` makes the schema of the chart's values from these types: a setting is a value with its name and its
bounds, but for what charts/tandem/values.schema.yaml says.
"""

from collections.abc import Sequence
from importlib import resources
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

import yaml
from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from tandem import __version__
from tandem.api.profile import ImageName, Profile
from tandem.api.types import JobTemplate, Name, UserIds
from tandem.api.wire import StrictWire
from tandem.engines import wrong_engine
from tandem.errors import SettingsError
from tandem.http.credentials import Credentials, HeaderName

Url = Annotated[str, Field(pattern=r"^(https?://[^\s]+)?$")]
NOWHERE = "registry.invalid/tandem"
"""Where images are that nobody named, as in `tandem render` without settings: no public registry has Tandem's, and
names below .invalid never resolve (RFC 6761)."""
TriggerType = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
Namespace = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class LeaseSettings(StrictWire):
    """Leader election: who may write."""

    enabled: bool = True
    """Off only for a single operator that nothing restarts, as in tests."""
    name: str = "tandem-operator"
    """Name of the Lease."""
    duration_seconds: Annotated[float, Field(ge=2, le=3600)] = 15
    """A leader that has not renewed for so long may be replaced."""
    renew_seconds: Annotated[float, Field(gt=0, le=1200)] = 5
    """Time between renewals; at most a third of the duration, so that one may fail."""

    @model_validator(mode="after")
    def _renews_in_time(self) -> Self:
        if self.renew_seconds > self.duration_seconds / 3:
            raise ValueError(
                f"renewSeconds {self.renew_seconds:g} is above a third of durationSeconds {self.duration_seconds:g}"
            )
        return self


class PageSettings(StrictWire):
    """The page for people, at `/ui/` of the metrics server."""

    enabled: bool = True
    """Serve it. What it shows of a service is for those who may read that service."""
    playground: bool = False
    """Let those who may create `services/proxy` of a service's Service send it prompts from the page."""


class MetricsServerSettings(StrictWire):
    """How the metrics server (`tandem metrics run`) works."""

    service: str = "tandem-metrics"
    """Service in front of it, in its own namespace: its certificate is made for this name."""
    secret: str = "tandem-metrics-certificate"
    """Secret with its certificate, of type kubernetes.io/tls, with the authority in `ca.crt`."""
    manage_certificate: bool = True
    """Whether it makes and renews that certificate, and writes its authority into the APIService. Off: another tool
    does, such as cert-manager, and nothing is written."""
    interval_seconds: Annotated[float, Field(ge=0.1, le=300)] = 15
    """Time between readings of all pods."""
    window_seconds: Annotated[float, Field(ge=0.2, le=3600)] = 60
    """Time that figures speak of; those older than two windows are dropped."""
    prometheus_url: Url = ""
    """Prometheus that reads the pods' metrics, to be asked instead of the pods; empty: the pods are read."""
    prometheus: Credentials = Field(default_factory=Credentials)
    """Who asks that Prometheus, and whom to trust."""
    page: PageSettings = Field(default_factory=PageSettings)
    """The page for people."""

    @model_validator(mode="after")
    def _two_readings(self) -> Self:
        if self.window_seconds < 2 * self.interval_seconds:
            raise ValueError(
                f"windowSeconds {self.window_seconds:g} is below twice intervalSeconds {self.interval_seconds:g}:"
                " figures need two readings of each pod"
            )
        return self


class ReportsSettings(StrictWire):
    """Where the operator reads the figures of services: the metrics server (`tandem metrics run`), or the pods."""

    url: Annotated[str, Field(pattern=r"^(https?://[^\s/]+)?$")] = ""
    """Its address, such as https://tandem-metrics.tandem-system.svc; empty: there is none, and status shows no
    figures."""
    ca_file: str = ""
    """PEM file of the authority of its certificate, read anew each time; empty: the system's."""
    token_file: str = ""
    """File with a token for the audience metrics.serving.tandem.dev, read anew each time; empty: none is sent. The
    operator's own token, which opens the API server, is not for others."""
    poll_seconds: Annotated[float, Field(ge=0.1)] = 15
    """Time between readings; each is one request for all services."""
    from_pods: bool = False
    """Whether the operator reads the pods' metrics itself, as `metricsServer` says: where no metrics server can run,
    which needs the right to have tokens reviewed."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.url and self.from_pods:
            raise ValueError("url and fromPods exclude each other: write one of the two")
        return self

    @model_validator(mode="after")
    def _is_encrypted(self) -> Self:
        if self.url.startswith("http:") and not _is_loopback(urlsplit(self.url).hostname or ""):
            raise ValueError(
                f"url {self.url} would send the operator's token in clear text: write https://, and caFile for a"
                " certificate of your own; http:// is for 127.0.0.1, ::1 and localhost alone"
            )
        return self


class KedaPrometheus(StrictWire):
    """What KEDA shows to a Prometheus; see https://keda.sh/docs/latest/scalers/prometheus/#authentication-parameters."""

    authentication: str = ""
    """ClusterTriggerAuthentication with the parameters that `authModes` need; empty: nothing is shown."""
    auth_modes: list[Literal["basic", "bearer", "tls"]] = Field(default_factory=list)
    """What of it is shown, in KEDA's words."""
    headers: dict[HeaderName, Annotated[str, Field(pattern=r"^[^,=]*$")]] = Field(default_factory=dict)
    """Further headers, such as X-Scope-OrgID; KEDA takes them apart at commas and equals signs. No secrets."""

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if bool(self.authentication) != bool(self.auth_modes):
            raise ValueError("authentication and authModes go together: write both, or neither")
        if {"basic", "bearer"} <= set(self.auth_modes):
            raise ValueError("authModes must not have both basic and bearer: each sets the header Authorization")
        return self


class KedaSettings(StrictWire):
    """How KEDA learns of services with `autoscaling.source: KEDA`."""

    authentication: str = "tandem-metrics"
    """ClusterTriggerAuthentication with the token that KEDA sends to the metrics server."""
    unsafe_ssl: bool = False
    """Whether KEDA skips the check of the metrics server's certificate, where its authority is not among KEDA's."""
    prometheus_url: Url = ""
    """Prometheus that scrapes the metrics server: KEDA asks it instead; empty: the metrics server."""
    prometheus: KedaPrometheus = Field(default_factory=KedaPrometheus)
    """Who asks that Prometheus."""
    allowed_triggers: list[TriggerType] = Field(default_factory=list, json_schema_extra={"uniqueItems": True})
    """Types of triggers that services may have of their own (`autoscaling.keda.triggers`); empty: Tandem's list, of
    those that read by credentials of the service's namespace."""


class PullSecret(StrictWire):
    """A Secret, as in a PodSpec's imagePullSecrets."""

    name: Name


class JobSettings(JobTemplate):
    """What Jobs have in all namespaces; a service's own `podTemplate` and `jobs` are over it."""

    model_config = ConfigDict(extra="forbid")

    image_pull_secrets: list[PullSecret] = Field(default_factory=list)
    """Secrets of each service's own namespace, with which the images of all its pods are pulled, its servers' too."""

    @model_validator(mode="after")
    def _as_in_a_container(self) -> Self:
        for field, written in {"resources": self.resources, "buildResources": self.build_resources}.items():
            no_maps = [side for side in ("requests", "limits") if not isinstance((written or {}).get(side, {}), dict)]
            if no_maps:
                raise ValueError(f"{field}.{no_maps[0]} is no map: write it as in a Container, such as {{cpu: 2}}")
        return self


class Settings(StrictWire):
    """Everything that an administrator may set."""

    serving_image: ImageName = f"{NOWHERE}/serving:{__version__}"
    """Image with Tandem's Triton models and entry point, brought into each pod by an init container."""
    fetcher_image: ImageName = f"{NOWHERE}/fetcher:{__version__}"
    """Image of the Jobs that download models."""
    namespaces: list[Namespace] = Field(default_factory=list, json_schema_extra={"uniqueItems": True})
    """Namespaces to serve; all when empty."""
    lease: LeaseSettings = Field(default_factory=LeaseSettings)
    """Leader election."""
    resync_seconds: Annotated[float, Field(gt=0, le=86400)] = 60
    """Time between comparisons of what the watches reported with what the API server lists."""
    workers: Annotated[int, Field(ge=1, le=256)] = 16
    """Services that are reconciled at once."""
    revision_history_limit: Annotated[int, Field(ge=0, le=1000)] = 3
    """Old revisions (ConfigMaps) that are kept for going back, in addition to those that pods still mount."""
    client_peers: list[dict[str, Any]] = Field(default_factory=list)
    """NetworkPolicy peers that reach services which name no clients themselves (`serving.access.from`); everybody
    does, unless it is set."""
    metrics_peers: list[dict[str, Any]] = Field(default=[{"namespaceSelector": {}}])
    """NetworkPolicy peers that read the metrics of services that name their clients (`serving.access.from`), in
    addition to these: Prometheus and autoscaling. All pods of the cluster, unless it is set."""
    metrics_server: MetricsServerSettings = Field(default_factory=MetricsServerSettings)
    """How the metrics server works."""
    reports: ReportsSettings = Field(default_factory=ReportsSettings)
    """Where the operator reads the figures of services."""
    keda: KedaSettings = Field(default_factory=KedaSettings)
    """How KEDA learns of services."""
    jobs: JobSettings = Field(default_factory=JobSettings)
    """What Jobs have in all namespaces: downloads, engine builds and checks."""
    user_ids: UserIds = "Fixed"
    """Who chooses the users and groups that services' pods run as. Fixed: 1000. Platform: nobody here, for OpenShift,
    whose security context constraints give each namespace a range of its own."""
    profiles: list[Profile] = Field(default_factory=list)
    """Profiles by name: those that come with Tandem, then those of the file, which win."""

    @property
    def scopes(self) -> Sequence[str | None]:
        """Namespaces to list and watch; None stands for all."""
        return self.namespaces or [None]

    @field_validator("profiles")
    @classmethod
    def _engines_are_known(cls, profiles: list[Profile]) -> list[Profile]:
        for each in profiles:
            if wrong := wrong_engine(each):
                raise ValueError(f"profile {each.name!r}: {wrong}")
        return profiles

    def profile(self, name: str) -> Profile | None:
        """The profile of that name, or None."""
        return next((profile for profile in self.profiles if profile.name == name), None)


def shipped_profiles() -> list[dict[str, Any]]:
    """The profiles of `profiles.yaml` in this package; images of Tandem's own are of its own version."""
    text = resources.files("tandem").joinpath("profiles.yaml").read_text(encoding="utf-8")
    profiles: list[dict[str, Any]] = yaml.safe_load(text.replace("{version}", __version__))
    return profiles


def _profiles(written: object) -> object:
    """The shipped profiles with those of the file merged over them; what is no list, or has no name, as written."""
    if not isinstance(written, list):
        return written
    profiles, nameless = {profile["name"]: profile for profile in shipped_profiles()}, []
    for profile in written:
        name = profile.get("name") if isinstance(profile, dict) else None
        if isinstance(name, str):
            profiles[name] = _merged(profiles.get(name, {}), profile)
        else:
            nameless.append(profile)
    return [*profiles.values(), *nameless]


def _merged(shipped: dict[str, Any], written: dict[str, Any]) -> dict[str, Any]:
    """The written profile over the shipped one, field by field, also of its engine; an engine of another kind is
    another one."""
    engine, own = shipped.get("engine"), written.get("engine")
    merged = {**shipped, **written}
    if isinstance(engine, dict) and isinstance(own, dict) and own.get("kind", engine["kind"]) == engine["kind"]:
        merged["engine"] = {**engine, **own}
    return merged


def in_cluster(settings: Settings) -> Settings:
    """`settings` where images are pulled: profiles whose image nobody named have none, and their services are
    refused."""
    profiles = [each.model_copy(update=_without_image(each)) for each in settings.profiles]
    return settings.model_copy(update={"profiles": profiles})


def check_images(settings: Settings) -> None:
    """That the images are named which every service needs.

    Raises:
        SettingsError: some are not; the message names them.
    """
    named = {"servingImage": settings.serving_image, "fetcherImage": settings.fetcher_image}
    missing = [name for name, image in named.items() if image.startswith(NOWHERE)]
    if missing:
        raise SettingsError(
            f"settings: {', '.join(missing)}: not set, and no public registry has Tandem's images: write those of"
            " your registry (Helm values of these names), or install the chart of a release, which names its own"
        )


def _without_image(profile: Profile) -> dict[str, str]:
    return {"image": ""} if profile.image.startswith(NOWHERE) else {}


def load_settings(path: Path | None = None) -> Settings:
    """Read the settings file; without one, the defaults.

    A profile in the file is merged over the shipped one of its name, field by field.

    Raises:
        SettingsError: the file is missing, no YAML, or has a wrong field; the message names them all.
    """
    try:
        text = path.read_text(encoding="utf-8") if path else ""
    except OSError as error:
        raise SettingsError(f"cannot read settings {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"settings {path} are not UTF-8 text: {error.reason} at byte {error.start}") from error
    return parse_settings(text, str(path or "defaults"))


def parse_settings(text: str, source: str) -> Settings:
    """The settings that a text of YAML has over the defaults; `source` is where it is from, for errors. Raises
    SettingsError, as `load_settings` does."""
    try:
        raw = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise SettingsError(f"cannot read settings {source}: {error}") from error
    if not isinstance(raw, dict):
        raise SettingsError(f"settings {source}: expected a mapping at the top, got {type(raw).__name__}")
    try:
        return Settings.model_validate({**raw, "profiles": _profiles(raw.get("profiles") or [])})
    except ValidationError as error:
        lines = [f"  {'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        raise SettingsError("\n".join([f"settings {source}:", *lines])) from error
