"""KEDA's triggers of the user's own: which a service may have, and whose credentials they must not use.

KEDA acts for all namespaces. Who may write services may not do what KEDA may: a trigger that would act with KEDA's
own identity, or with credentials of another namespace, is refused.
https://keda.sh/docs/latest/concepts/authentication/
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tandem.api.conditions import SpecReason

CLUSTER_WIDE = "ClusterTriggerAuthentication"
IDENTITY_OWNER = "identityOwner"
"""AWS scalers, and any other with AWS's signature: `operator` is KEDA's own identity, `pod` (the default) is not."""
# fmt: off
ALLOWED = frozenset({
    "activemq", "apache-kafka", "arangodb", "artemis-queue", "aws-cloudwatch", "aws-dynamodb",
    "aws-dynamodb-streams", "aws-kinesis-stream", "aws-sqs-queue", "azure-app-insights", "azure-blob",
    "azure-data-explorer", "azure-eventhub", "azure-log-analytics", "azure-monitor", "azure-pipelines",
    "azure-queue", "azure-servicebus", "beanstalkd", "cassandra", "couchdb", "cpu", "cron", "datadog",
    "dynatrace", "elasticsearch", "etcd", "forgejo-runner", "gcp-cloudtasks", "gcp-pubsub", "gcp-stackdriver",
    "gcp-storage",
    "github-runner", "graphite", "huawei-cloudeye", "ibmmq", "influxdb", "kafka", "kubernetes-workload",
    "liiklus", "loki", "memory", "metrics-api", "mongodb", "mssql", "mysql", "nats-jetstream", "new-relic",
    "nsq", "openstack-metric", "openstack-swift", "postgresql", "predictkube", "prometheus", "pulsar",
    "rabbitmq", "redis", "redis-cluster", "redis-cluster-streams", "redis-sentinel", "redis-sentinel-streams",
    "redis-streams", "selenium-grid", "solace-direct-messaging", "solace-event-queue", "solarwinds", "solr", "splunk",
    "splunk-observability", "stan", "sumologic", "temporal",
})
# fmt: on
"""Types that read a clock, this namespace's pods, or a service with credentials that the trigger names itself. Not
`external` and `external-push`: what such a server does with a connection of KEDA's is not known. Not
`kubernetes-resource`, which reads objects with KEDA's rights, nor what a KEDA after 2.21 brings.
https://keda.sh/docs/latest/scalers/
"""


def refusal(triggers: Sequence[Mapping[str, Any]], allowed: Sequence[str]) -> tuple[SpecReason, str] | None:
    """Why the triggers are not passed on; None: they are. `allowed`: types instead of `ALLOWED`, if any."""
    types = allowed or ALLOWED
    for index, trigger in enumerate(triggers):
        where = f"autoscaling.keda.triggers[{index}]"
        kind = trigger.get("type")
        if not (isinstance(kind, str) and kind in types):
            return (SpecReason.TRIGGER_TYPE_REFUSED, _not_allowed(where, kind, allowed))
        if _is_cluster_wide(trigger.get("authenticationRef")):
            return (
                SpecReason.CLUSTER_TRIGGER_AUTHENTICATION_REFUSED,
                f"{where}.authenticationRef is a {CLUSTER_WIDE}, whose credentials are not this namespace's: write"
                " kind: TriggerAuthentication, with one of this namespace",
            )
        if field := _identity_field(trigger.get("metadata")):
            return (
                SpecReason.TRIGGER_IDENTITY_REFUSED,
                f"{where}.metadata.{field} would have KEDA act with its own cloud identity: remove it, and write an"
                " authenticationRef to a TriggerAuthentication of this namespace",
            )
    return None


def _not_allowed(where: str, kind: object, allowed: Sequence[str]) -> str:
    wanted = f"one of: {', '.join(sorted(allowed))}" if allowed else "one that reads by this namespace's credentials"
    return f"{where}.type {kind!r} is refused: write {wanted}; or add it to the Helm value keda.allowedTriggers"


def _is_cluster_wide(reference: object) -> bool:
    """A trigger says where KEDA asks, and such an object what KEDA shows there: Secrets of KEDA's namespace. Who may
    write services would read them by a trigger that asks a server of his own."""
    return isinstance(reference, Mapping) and reference.get("kind") == CLUSTER_WIDE


def _identity_field(metadata: object) -> str:
    """The field that asks for KEDA's identity, as written; empty: none does."""
    fields = metadata if isinstance(metadata, Mapping) else {}
    asks = (str(name) for name, value in fields.items() if value not in ("", "pod"))
    return next((name for name in asks if name.casefold() == IDENTITY_OWNER.casefold()), "")
