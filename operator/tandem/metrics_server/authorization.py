"""Who may ask what: each request is reviewed by the API server (SubjectAccessReview), so that RBAC decides."""

from dataclasses import dataclass
from typing import ClassVar

from tandem.api.wire import Object
from tandem.cluster.kinds import SUBJECT_ACCESS_REVIEW, Kind
from tandem.metrics_server.authentication import CACHE_SECONDS, CACHE_SIZE, Reviewer, User
from tandem.metrics_server.cache import TokenCache
from tandem.metrics_server.custom_metrics import METRICS_GROUP, METRICS_VERSION


@dataclass(frozen=True)
class MetricRequest:
    """A metric of one object, or (`*`) of all in a namespace: as Kubernetes' RequestInfo has it, the metric is a
    subresource."""

    namespace: str
    resource: str
    name: str
    metric: str
    verb: ClassVar[str] = "get"

    def attributes(self) -> Object:
        """The part of a SubjectAccessReview's spec that says what is asked for."""
        resource = {"group": METRICS_GROUP, "version": METRICS_VERSION, "resource": self.resource}
        asked = {"namespace": self.namespace, "name": self.name, "subresource": self.metric}
        return {"resourceAttributes": {"verb": self.verb, **resource, **asked}}

    def __str__(self) -> str:
        """For messages."""
        what = f'resource "{self.resource}/{self.metric}" in API group "{METRICS_GROUP}"'
        return f'{what}, object "{self.name}" in namespace "{self.namespace}"'


@dataclass(frozen=True)
class PathRequest:
    """Anything that is no resource, by its path."""

    path: str
    verb: ClassVar[str] = "get"

    def attributes(self) -> Object:
        """The part of a SubjectAccessReview's spec that says what is asked for."""
        return {"nonResourceAttributes": {"verb": self.verb, "path": self.path}}

    def __str__(self) -> str:
        """For messages."""
        return f'path "{self.path}"'


@dataclass(frozen=True)
class ObjectRequest:
    """An object of the cluster, or with an empty `name` all of a kind; with an empty `namespace` those of all."""

    verb: str
    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    def attributes(self) -> Object:
        """The part of a SubjectAccessReview's spec that says what is asked for."""
        group, version = self.kind.group_version
        resource = {"group": group, "version": version, "resource": self.kind.plural, "subresource": self.subresource}
        return {"resourceAttributes": {"verb": self.verb, "namespace": self.namespace, "name": self.name, **resource}}

    def __str__(self) -> str:
        """For messages."""
        what = "/".join(filter(None, (self.kind.plural, self.subresource)))
        return f'resource "{what}", object "{self.name}" in namespace "{self.namespace}"'


AccessRequest = MetricRequest | PathRequest | ObjectRequest


class Authorizer:
    """Asks the API server; answers are kept for seconds."""

    def __init__(self, api: Reviewer) -> None:
        self._api = api
        self._answers: TokenCache[bool] = TokenCache(CACHE_SECONDS, CACHE_SIZE)

    async def allows(self, user: User, request: AccessRequest) -> bool:
        """Whether `user` may ask it.

        Raises:
            Transient, Refused: the API server cannot be asked.
        """

        async def ask() -> bool:
            who = {"user": user.name, "uid": user.uid, "groups": list(user.groups)}
            extra = {key: list(values) for key, values in user.extra}
            spec = {**who, "extra": extra, **request.attributes()}
            status = await self._api.review(SUBJECT_ACCESS_REVIEW, spec)
            return bool(status.get("allowed")) and not status.get("denied")

        return await self._answers.get((user, request), ask)
