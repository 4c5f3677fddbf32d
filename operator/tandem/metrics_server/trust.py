"""What server and cluster must know of each other: the certificate's Secret, the cluster's request-header
authority, and the APIService that points here. Looked at again and again, so that all of it may change.
"""

import base64
import logging
import ssl
from dataclasses import dataclass

from tandem.api.wire import Object
from tandem.autoscaling import SOURCES
from tandem.cluster.client import Api
from tandem.cluster.kinds import API_SERVICE, CONFIGMAP, SECRET
from tandem.errors import Refused
from tandem.metrics_server.authentication import RequestHeader
from tandem.metrics_server.certificates import Certificate, CertificateError, renewed, secret, utc_now
from tandem.metrics_server.custom_metrics import METRICS_GROUP, METRICS_VERSION
from tandem.settings import MetricsServerSettings

log = logging.getLogger(__name__)

AUTHENTICATION = ("kube-system", "extension-apiserver-authentication")
OWN_API_SERVICE = f"{METRICS_VERSION}.{METRICS_GROUP}"
API_SERVICES = (OWN_API_SERVICE, f"v1beta1.{METRICS_GROUP}")
"""Both versions: an autoscaler takes v1beta2 for every metric where there is one, also for those that only an
adapter of v1beta1 knows."""
REGISTERED = " or ".join(name for name, source in SOURCES.items() if source.needs_api_service)
"""Autoscaling sources that read metrics by this registration alone ..."""
UNREGISTERED = " or ".join(name for name, source in SOURCES.items() if not source.needs_api_service)
"""... and those to write where another adapter is registered."""


@dataclass(frozen=True)
class Trust:
    """What a listener needs, and who else serves the API."""

    certificate: Certificate
    request_header: RequestHeader
    registration: str
    """Why the cluster's autoscalers do not ask here, or should not, in words; empty: all is well."""

    @property
    def listens_as(self) -> tuple[bytes, str]:
        """What `context` is made of: another one is another context."""
        return self.certificate.chain, self.request_header.authorities

    def context(self) -> ssl.SSLContext:
        """TLS with this certificate and these client authorities."""
        return self.certificate.context(self.request_header.authorities)


class TrustKeeper:
    """Reads, and, where asked to, makes and renews."""

    def __init__(self, api: Api, settings: MetricsServerSettings, namespace: str) -> None:
        self._api, self._settings, self._namespace = api, settings, namespace

    async def look(self) -> Trust:
        """All of it, now.

        Raises:
            Transient, Refused: the API server cannot be asked.
            CertificateError: the Secret of somebody else holds no certificate.
        """
        certificate = await self._certificate()
        return Trust(certificate, await self._request_header(), await self._registration(certificate))

    async def _certificate(self) -> Certificate:
        name = self._settings.secret
        held = await self._api.get(SECRET, self._namespace, name)
        if not self._settings.manage_certificate:
            if held is None:
                raise CertificateError(f"there is no Secret {self._namespace}/{name} yet: have its owner make it")
            return Certificate.parse(held)
        before = _readable(held)
        new = renewed(before, self._names(), utc_now())
        if new is None:
            assert before is not None
            return before
        manifest = secret(name, self._namespace, new, {"app.kubernetes.io/name": "tandem"}, held)
        # Another replica may be first: AlreadyExists and conflicts are Transient, and the next look takes its own.
        await (self._api.replace(SECRET, manifest) if held else self._api.create(SECRET, manifest))
        log.info("certificate %s the Secret %s/%s", "renewed in" if held else "made:", self._namespace, name)
        return new

    def _names(self) -> tuple[str, ...]:
        service = f"{self._settings.service}.{self._namespace}"
        return (f"{service}.svc", f"{service}.svc.cluster.local", service)

    async def _request_header(self) -> RequestHeader:
        try:
            found = RequestHeader.parse(await self._api.get(CONFIGMAP, *AUTHENTICATION))
        except Refused as error:
            log.warning(
                "no client is trusted as the API server's proxy, so autoscalers cannot read metrics: %s", error
            )
            return RequestHeader()
        return found

    async def _registration(self, certificate: Certificate) -> str:
        try:
            found = {name: await self._api.get(API_SERVICE, None, name) for name in API_SERVICES}
        except Refused as error:
            return f"the APIService cannot be read: {error}"
        own = found[OWN_API_SERVICE]
        for name, live in found.items():
            if live and not self._is_ours(live):
                theirs = f"APIService {name} belongs to {_owner(live)}, which is left alone: autoscalers ask"
                if own and self._is_ours(own):
                    return (
                        f"{theirs} here for all custom metrics, and those of that adapter are lost to them. Set"
                        f" metricsServer.register=false and write source {UNREGISTERED}, or remove that adapter"
                    )
                return f"{theirs} there. Write source {UNREGISTERED}, or remove that adapter"
        if own is None:
            return f"there is no APIService {OWN_API_SERVICE}: autoscalers of source {REGISTERED} find no metrics"
        bundle = base64.b64encode(certificate.authorities).decode()
        if self._settings.manage_certificate and own["spec"].get("caBundle") != bundle:
            await self._tell(own, bundle)
        return ""

    def _is_ours(self, live: Object) -> bool:
        service = live["spec"].get("service") or {}
        return bool((service.get("namespace"), service.get("name")) == (self._namespace, self._settings.service))

    async def _tell(self, live: Object, bundle: str) -> None:
        # The resourceVersion: should another take it over meanwhile, it stays theirs.
        metadata = {"name": OWN_API_SERVICE, "resourceVersion": live["metadata"]["resourceVersion"]}
        kind = {"apiVersion": API_SERVICE.api_version, "kind": API_SERVICE.kind}
        await self._api.apply(API_SERVICE, {**kind, "metadata": metadata, "spec": {"caBundle": bundle}})
        log.info("APIService %s has the certificate's authority", OWN_API_SERVICE)


def _readable(held: Object | None) -> Certificate | None:
    """The certificate in the Secret; None where it is to be made anew."""
    if held is None:
        return None
    try:
        return Certificate.parse(held)
    except CertificateError as error:
        log.warning("%s", error)
        return None


def _owner(live: Object) -> str:
    service = live["spec"].get("service")
    return f"Service {service['namespace']}/{service['name']}" if service else "the API server itself"
