"""Certificate, request-header authority and APIService in a stand-in for the API server."""

import base64
import copy
from typing import Any

import pytest

from tandem.cluster.kinds import Kind
from tandem.errors import AlreadyExists, Refused, Transient
from tandem.metrics_server.certificates import Certificate, CertificateError, renewed, secret, utc_now
from tandem.metrics_server.trust import Trust, TrustKeeper
from tandem.settings import MetricsServerSettings

OURS = {"namespace": "tandem-system", "name": "tandem-metrics"}
THEIRS = {"namespace": "monitoring", "name": "prometheus-adapter"}
V1BETA1, V1BETA2 = "v1beta1.custom.metrics.k8s.io", "v1beta2.custom.metrics.k8s.io"
SECRET_NAME = "tandem-metrics-certificate"


class FakeApi:
    """Objects by kind and name, with the API server's checks of resourceVersion; writes are remembered."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.writes: list[str] = []
        self.forbidden: set[str] = set()

    def put(self, kind: str, name: str, **rest: Any) -> None:
        self.objects[kind, name] = {"metadata": {"name": name, "resourceVersion": "1"}, **rest}

    async def get(self, kind: Kind, _: str | None, name: str) -> dict[str, Any] | None:
        if kind.kind in self.forbidden:
            raise Refused(403, f"{kind.plural} is forbidden")
        return copy.deepcopy(self.objects.get((kind.kind, name)))

    async def create(self, kind: Kind, manifest: dict[str, Any]) -> None:
        name = manifest["metadata"]["name"]
        if (kind.kind, name) in self.objects:
            raise AlreadyExists("exists")
        self.put(kind.kind, name, data=manifest["data"])
        self.writes.append(f"create {name}")

    async def replace(self, kind: Kind, manifest: dict[str, Any]) -> None:
        live = self.objects[kind.kind, manifest["metadata"]["name"]]
        self._check(live, manifest)
        live.update(data=manifest["data"])
        self.writes.append(f"replace {manifest['metadata']['name']}")

    async def apply(self, kind: Kind, manifest: dict[str, Any]) -> None:
        live = self.objects[kind.kind, manifest["metadata"]["name"]]
        self._check(live, manifest)
        live["spec"] |= manifest["spec"]
        self.writes.append(f"apply {manifest['metadata']['name']}")

    def _check(self, live: dict[str, Any], manifest: dict[str, Any]) -> None:
        if live["metadata"]["resourceVersion"] != manifest["metadata"]["resourceVersion"]:
            raise Transient("conflict")
        live["metadata"]["resourceVersion"] += "1"


def keeper(api: FakeApi, **settings: Any) -> TrustKeeper:
    made = MetricsServerSettings.model_validate(settings)
    return TrustKeeper(api, made, "tandem-system")  # type: ignore[arg-type]  # a fake of the part that is used


@pytest.fixture
def api() -> FakeApi:
    made = FakeApi()
    made.put("APIService", V1BETA2, spec={"service": OURS})
    return made


async def test_the_first_makes_the_certificate_and_tells_the_apiservice(api: FakeApi) -> None:
    trust = await keeper(api).look()
    assert api.writes == [f"create {SECRET_NAME}", f"apply {V1BETA2}"]
    told = base64.b64decode(api.objects["APIService", V1BETA2]["spec"]["caBundle"])
    assert told == trust.certificate.authorities
    assert trust.registration == ""


async def test_then_nothing_is_written_and_another_replica_serves_the_same(api: FakeApi) -> None:
    first = await keeper(api).look()
    api.writes.clear()
    assert (await keeper(api).look()).certificate == first.certificate
    assert api.writes == []


async def test_of_two_at_once_one_wins_and_the_other_takes_what_it_made(api: FakeApi) -> None:
    winner, loser = keeper(api), keeper(api)
    get, seen = api.get, list[Trust]()

    async def late(kind: Kind, namespace: str | None, name: str) -> dict[str, Any] | None:
        found = await get(kind, namespace, name)
        api.get = get  # type: ignore[method-assign]
        seen.append(await winner.look())  # between the loser's look and its write
        return found

    api.get = late  # type: ignore[method-assign, assignment]
    with pytest.raises(AlreadyExists):
        await loser.look()
    assert (await loser.look()).certificate == seen[0].certificate


@pytest.mark.parametrize("part", ["tls.crt", "tls.key", "ca.crt", "ca.key"])
async def test_a_broken_secret_of_ours_is_made_anew(api: FakeApi, part: str) -> None:
    await keeper(api).look()
    api.writes.clear()
    api.objects["Secret", SECRET_NAME]["data"][part] = "AAAA"
    trust = await keeper(api).look()
    assert api.writes[0] == f"replace {SECRET_NAME}"
    assert Certificate.parse(api.objects["Secret", SECRET_NAME]) == trust.certificate


async def test_of_an_administrators_certificate_nothing_is_written(api: FakeApi) -> None:
    given = renewed(None, ["x"], utc_now())
    assert given is not None
    api.put("Secret", SECRET_NAME, data=secret("n", "ns", given, {}, None)["data"])
    trust = await keeper(api, manageCertificate=False).look()
    assert trust.certificate == given
    assert api.writes == []


async def test_an_administrators_certificate_is_waited_for(api: FakeApi) -> None:
    with pytest.raises(CertificateError, match="there is no Secret tandem-system/tandem-metrics-certificate yet"):
        await keeper(api, manageCertificate=False).look()


OTHERS: list[tuple[str, dict[str, Any], str]] = [
    # why, APIServices, what is said
    (
        "our version is theirs",
        {V1BETA2: {"service": THEIRS}},
        "monitoring/prometheus-adapter, which is left alone: autoscalers ask there. Write source",
    ),
    (
        "theirs is the older version, and ours is not registered",
        {V1BETA1: {"service": THEIRS}},
        "monitoring/prometheus-adapter, which is left alone: autoscalers ask there. Write source",
    ),
    (
        "theirs is the older version, and came after ours, which takes its autoscalers away",
        {V1BETA1: {"service": THEIRS}, V1BETA2: {"service": OURS}},
        "monitoring/prometheus-adapter, which is left alone: autoscalers ask here for all custom metrics, and those"
        " of that adapter are lost to them. Set metricsServer.register=false and write source Prometheus or KEDA",
    ),
    ("a local one", {V1BETA2: {}}, "the API server itself"),
    ("none", {}, f"there is no APIService {V1BETA2}"),
]


@pytest.mark.parametrize(("services", "said"), [o[1:] for o in OTHERS], ids=[o[0] for o in OTHERS])
async def test_an_apiservice_of_somebody_else_is_left_alone(services: dict[str, Any], said: str) -> None:
    api = FakeApi()
    for name, spec in services.items():
        api.put("APIService", name, spec=dict(spec))
    trust = await keeper(api).look()
    assert said in trust.registration
    assert api.writes == [f"create {SECRET_NAME}"]
    assert all(api.objects["APIService", name]["spec"] == spec for name, spec in services.items())


async def test_one_taken_over_between_look_and_write_stays_theirs(api: FakeApi) -> None:
    await keeper(api).look()
    api.objects["APIService", V1BETA2]["spec"].pop("caBundle")
    get = api.get

    async def then_taken(kind: Kind, namespace: str | None, name: str) -> dict[str, Any] | None:
        found = await get(kind, namespace, name)
        if name == V1BETA2:
            api.put("APIService", V1BETA2, spec={"service": THEIRS})
            api.objects["APIService", V1BETA2]["metadata"]["resourceVersion"] = "2"
        return found

    api.get = then_taken  # type: ignore[method-assign, assignment]
    with pytest.raises(Transient):
        await keeper(api).look()
    assert api.objects["APIService", V1BETA2]["spec"] == {"service": THEIRS}


async def test_without_rights_to_look_it_serves_on_and_says_so(api: FakeApi) -> None:
    api.forbidden = {"APIService", "ConfigMap"}
    trust = await keeper(api).look()
    assert "apiservices is forbidden" in trust.registration
    assert trust.request_header.authorities == ""
