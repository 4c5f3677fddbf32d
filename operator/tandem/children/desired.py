"""All children of one service that should exist now: what is applied, and what `tandem render` shows."""

from dataclasses import dataclass

from tandem.api.wire import Object


@dataclass(frozen=True)
class Desired:
    """Manifests; None, or none, of what should not exist now."""

    service_account: Object | None = None
    network_policy: Object | None = None
    revision: Object | None = None
    """The ConfigMap of the revision."""
    endpoint: Object | None = None
    """The Service in front of the servers."""
    cache_claim: Object | None = None
    """The namespace's claim, until there is one."""
    results: tuple[Object, ...] = ()
    jobs: tuple[Object, ...] = ()
    """Of the tasks that have not begun."""
    disruption_budget: Object | None = None
    workload: Object | None = None
    autoscaler: Object | None = None
    """What decides the replicas. What is wrong with it does not keep servers from being ready."""
    routing: tuple[Object, ...] = ()
    """How gateways reach the servers. What is wrong with it does not keep servers from being ready."""
    keys: Object | None = None
    """The Secret that the pods of groups need, without its data. It can be made, but not read."""

    @property
    def in_order(self) -> tuple[Object, ...]:
        """What is applied, each after what it needs. Neither the keys, which are made once, nor the autoscaler, which
        comes after its predecessor is gone, nor the routing."""
        access = self.service_account, self.network_policy
        tasks = self.revision, self.endpoint, self.cache_claim, *self.results, *self.jobs
        servers = self.disruption_budget, self.workload
        return tuple(manifest for manifest in (*access, *tasks, *servers) if manifest)

    @property
    def all(self) -> tuple[Object, ...]:
        """What is applied, with the autoscaler and the routing."""
        return (*self.in_order, *((self.autoscaler,) if self.autoscaler else ()), *self.routing)
