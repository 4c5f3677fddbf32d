"""`tandem diff`: what applying files would change of the objects in them, and of the services' children."""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import replace

from tandem import names
from tandem.accept import Refusal
from tandem.api.types import SpeculativeInferenceService
from tandem.api.wire import Object
from tandem.children.desired import Desired
from tandem.children.foreign import described, is_in_pods
from tandem.children.metadata import identity
from tandem.cli import changes
from tandem.cli.apply import FIELD_MANAGER, Checked, apply, as_list, services_of
from tandem.cli.live import parse as parse_service
from tandem.client import kubectl
from tandem.cluster import parse
from tandem.cluster.kinds import (
    AUTOSCALERS,
    CACHE_CLAIM,
    CONFIGMAP,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    JOB,
    LEADER_WORKER_SET,
    NETWORK_POLICY,
    POD,
    SERVICE,
    Kind,
)
from tandem.cluster.manifests import owner_uid
from tandem.render.latest import claim_name
from tandem.rollout.observed import Observed
from tandem.rollout.offline import desired_of
from tandem.settings import Settings

DECIDING = (CONFIGMAP, DEPLOYMENT, JOB, POD, LEADER_WORKER_SET, *AUTOSCALERS)
"""Kinds that a decision on a service looks at."""
OTHERS = (SERVICE, NETWORK_POLICY, DISRUPTION_BUDGET)
"""Kinds of which nothing is needed but what others wrote into them; who may not list them is shown the rest."""
NO_SUCH_KIND = "doesn't have a resource type"
NO_SETTINGS = "the operator's settings cannot be read, so its children are not shown: give them with --settings"


async def diff(checked: Checked, namespace: str | None) -> tuple[str, list[str]]:
    """The text, empty where nothing would change, and a line for each service: whether its pods roll.

    Raises:
        kubectl.ClusterError: it cannot be found out.
    """
    place = ["--namespace", namespace] if namespace else []
    own = await _kubectl_diff(checked.objects, FIELD_MANAGER, *place)
    wanted = services_of(await apply(checked.objects, namespace, force=True, dry_run=True))
    if checked.settings is None:
        return own, [f"{_named(each)}: {NO_SETTINGS}" for each in wanted]
    found = await asyncio.gather(*(_children(parse_service(each), checked.settings) for each in wanted))
    return "".join([own, *(text for text, _ in found)]), [line for _, line in found]


async def _kubectl_diff(found: Iterable[Object], manager: str, *place: str) -> str:
    options = ("--server-side", "--force-conflicts", f"--field-manager={manager}", "--filename=-")
    answer = await kubectl.run("diff", *place, *options, stdin=json.dumps(as_list(found)))
    if answer.code > 1:  # https://kubernetes.io/docs/reference/kubectl/generated/kubectl_diff/
        raise kubectl.ClusterError(kubectl.explain(answer.error))
    return answer.out


async def _children(service: SpeculativeInferenceService, settings: Settings) -> tuple[str, str]:
    """Diff and summary of a service as it would be."""
    name = f"{service.namespace}/{service.name}"
    observed = await observe(service, settings)
    desired = desired_of(service, settings, observed)
    if isinstance(desired, Refusal):
        return "", f"{name}: the operator would refuse it: {desired.reason}: {desired.message}"
    wanted = [*desired.in_order, *([desired.autoscaler] if desired.autoscaler else [])]
    text = await _kubectl_diff(wanted, names.FIELD_MANAGER) + _foreign(wanted, observed)
    return text, f"{name}: {_summary(desired, observed, bool(text))}"


def _foreign(wanted: Iterable[Object], observed: Observed) -> str:
    """What others wrote into the children, which goes: a server-side apply as kubectl's leaves it. Pure."""
    lives = [live for each in wanted if (live := observed.child(*identity(each)))]
    said = ((live, described(live.manifest)) for live in lives)
    return "".join(f"# {live.kind} {live.name}: {text}: the operator removes it\n" for live, text in said if text)


def _summary(desired: Desired, observed: Observed, differs: bool) -> str:
    """Whether pods roll, and what goes. Pure."""
    if not observed.workloads:
        return "new"
    here, gone = observed.live_revision, _removed(desired, observed)
    there = changes.revision_of(desired.workload) if desired.workload else here
    if here != there and desired.workload:
        return changes.rolls(desired.workload, here, there) + gone
    same = observed.child(*identity(desired.workload)) if desired.workload else None
    if desired.workload and same and is_in_pods(same.manifest):
        return f"pods roll {changes.how(desired.workload)}: what others wrote into them goes{gone}"
    return ("pods stay as they are" if differs or gone else "nothing changes for its children") + gone


def _removed(desired: Desired, observed: Observed) -> str:
    """Workloads and autoscalers that others take the place of, or none."""
    wanted = {identity(each) for each in (desired.workload, desired.autoscaler) if each}
    every = [*(each.live for each in observed.workloads), *(each.live for each in observed.autoscalers)]
    gone = [f"{each.kind} {each.name}" for each in every if (each.kind, each.name) not in wanted]
    return f"; removes {', '.join(gone)}" if gone else ""


async def observe(service: SpeculativeInferenceService, settings: Settings) -> Observed:
    """The children that a decision looks at, as this user may read them. Raises kubectl.ClusterError."""
    kinds = (*DECIDING, *OTHERS)
    listed = await asyncio.gather(*(_owned(kind, service) for kind in kinds))
    found = parse.parse(service.name, {kind.kind: items for kind, items in zip(kinds, listed, strict=True)})
    where = ("--namespace", service.namespace, "--ignore-not-found", "--output=json")
    claim = await kubectl.kubectl("get", CACHE_CLAIM.plural, claim_name(service.spec), *where)
    return replace(found, claim=parse.claim(kubectl.parsed(claim)) if claim.strip() else None)


async def _owned(kind: Kind, service: SpeculativeInferenceService) -> list[Object]:
    group, version = kind.group_version
    resource = f"{kind.plural}.{version}.{group}" if group else kind.plural
    selector = f"{names.LABEL_SERVICE}={service.name},{names.LABEL_MANAGED_BY}={names.FIELD_MANAGER}"
    try:
        where = ("--namespace", service.namespace, "--selector", selector, "--show-managed-fields")
        found = await kubectl.listed(resource, *where)
    except kubectl.ClusterError as error:
        if NO_SUCH_KIND in str(error) or kind in OTHERS:
            return []
        raise
    return [each for each in found if kind is POD or owner_uid(each) == service.uid]


def _named(service: Object) -> str:
    return f"{service['metadata']['namespace']}/{service['metadata']['name']}"
