"""The revisions that are there and may still be wanted, rendered once for all that a reconcile asks of them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tandem.api.types import SpeculativeInferenceService
from tandem.render import Revision, asks_for, render
from tandem.rollout.observed import Observed


@dataclass(frozen=True)
class KnownRevisions:
    """By digest, the newest first. Those that this operator cannot render are not among them."""

    all: Mapping[str, Revision] = field(default_factory=dict)
    """Those of the service's spec, and those that serve or served before. The others are history: one of them is
    wanted again only with a spec that asks for it."""
    of_spec: Mapping[str, Revision] = field(default_factory=dict)
    """Those of the service's spec."""


def known_revisions(service: SpeculativeInferenceService, observed: Observed) -> KnownRevisions:
    """What the ConfigMaps of revisions render to."""
    status, wanted = service.status, asks_for(service.spec)
    records = {stored.digest: stored.record for stored in observed.revisions if stored.record}
    of_spec = {digest for digest, record in records.items() if asks_for(record.spec) == wanted}
    serve = {observed.live_revision, status.current_revision, status.fallback_revision}
    serve |= {server.revision for server in observed.servers}
    known = {digest: render(record) for digest, record in records.items() if digest in of_spec | serve}
    return KnownRevisions(known, {digest: revision for digest, revision in known.items() if digest in of_spec})
