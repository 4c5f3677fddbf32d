"""`tandem status NAME`: all that is known of one service, as text or as an object."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from tandem import names
from tandem.api import GROUP, PLURAL
from tandem.api.conditions import ConditionType
from tandem.api.types import AutoscalingStatus, Condition, SpeculationStatus, SpeculativeInferenceService
from tandem.api.wire import Object
from tandem.cli.live import parse
from tandem.cli.services import summary
from tandem.cli.words import NONE, age, factor, number, percent, quantity
from tandem.client import kubectl
from tandem.client.generate.format import printable
from tandem.cluster.manifests import label
from tandem.cluster.pods import pod_ready
from tandem.cluster.problems import pod_problem
from tandem.plural import counted

ANSWERS = "answers"
LABEL = 14
"""Width of the column of headings, in characters."""


Listed = list[Object] | str
"""Objects; or why they cannot be read: who may see services need not see all that is theirs."""


@dataclass(frozen=True)
class Seen:
    """A service, its server pods and its HorizontalPodAutoscalers, whoever made them."""

    service: SpeculativeInferenceService
    pods: Listed
    autoscalers: Listed


async def read(name: str, namespace: str | None) -> Seen:
    """The service and what is its own. Raises kubectl.ClusterError."""
    place = ["--namespace", namespace] if namespace else []
    service = parse(await kubectl.get(f"{PLURAL}.{GROUP}", name, *place))
    place = ["--namespace", service.namespace]
    of_service = f"{names.LABEL_SERVICE}={name}"
    pods, autoscalers = await asyncio.gather(
        _listed("pods", *place, "--selector", f"{of_service},{names.LABEL_COMPONENT}={names.SERVER}"),
        _listed("horizontalpodautoscalers.v2.autoscaling", *place, "--selector", of_service),
    )
    return Seen(service, pods, autoscalers)


async def _listed(*arguments: str) -> Listed:
    try:
        return await kubectl.listed(*arguments)
    except kubectl.ClusterError as error:
        return str(error)


def show(console: Console, seen: Seen, now: datetime, *, wide: bool = False) -> None:
    """Write it, a line each; long lines are the terminal's to wrap."""
    for line in lines(seen, now, wide=wide):
        console.print(line, soft_wrap=True, highlight=False)


def as_object(seen: Seen) -> dict[str, Any]:
    """The same for programs: the summary of `services`, the status's own parts, pods and autoscalers. Pure.

    What may not be read is null.
    """
    status = seen.service.status.model_dump(by_alias=True, mode="json", exclude_none=True)
    pods = None if isinstance(seen.pods, str) else [_pod_object(pod) for pod in _by_name(seen.pods)]
    autoscalers = None if isinstance(seen.autoscalers, str) else [_autoscaler_object(a) for a in seen.autoscalers]
    shown = {name: status.get(name) for name in ("conditions", "speculation", "autoscaling")}
    return {**summary(seen.service), **shown, "pods": pods, "autoscalers": autoscalers}


def _pod_object(pod: Object) -> dict[str, Any]:
    state = _state(pod)
    return {
        "name": pod["metadata"]["name"],
        "revision": label(pod, names.LABEL_REVISION),
        "node": pod["spec"].get("nodeName"),
        "ip": pod.get("status", {}).get("podIP"),
        "restarts": _restarts(pod),
        "ready": state == ANSWERS,
        "state": state,
    }


def _autoscaler_object(live: Object) -> dict[str, Any]:
    spec, status = live["spec"], live.get("status", {})
    return {
        "kind": live["kind"],
        "name": live["metadata"]["name"],
        "replicas": status.get("currentReplicas", 0),
        "desiredReplicas": status.get("desiredReplicas", 0),
        "minReplicas": spec.get("minReplicas", 1),
        "maxReplicas": spec["maxReplicas"],
        "averageValue": _average(status),
    }


def lines(seen: Seen, now: datetime, *, wide: bool = False) -> Iterator[Text]:
    """The lines. Pure."""
    service, spec, status = seen.service, seen.service.spec, seen.service.status
    about = f"{spec.runtime.mode} {spec.speculation.decoding_type}, profile {spec.runtime.profile}"
    yield Text.assemble((f"{service.namespace}/{service.name}", "bold"), f"  {about}")
    if status.url:
        yield Text(status.url)
    if status.openai_url:
        yield Text(status.openai_url)
    if "deletionTimestamp" in service.metadata:
        yield Text("it is being deleted", "yellow")
    if status.observed_generation != service.generation:
        yield Text("the operator has not acted on this spec yet: check that it runs", "yellow")
    yield Text()
    yield from _conditions(status.conditions, now)
    yield Text()
    yield from _pods(service, seen.pods, wide)
    if status.speculation:
        yield from _under("speculation", _speculation(status.speculation, now))
    if status.autoscaling:
        yield from _under("autoscaling", _autoscaling(status.autoscaling, now))
    if not isinstance(seen.autoscalers, str):
        yield from _under("", (_autoscaler(autoscaler) for autoscaler in seen.autoscalers))
    elif spec.autoscaling:
        yield _headed("autoscaler", seen.autoscalers)


def _conditions(conditions: Sequence[Condition], now: datetime) -> Iterator[Text]:
    if not conditions:
        return
    wide = [max(len(getattr(c, field)) for c in conditions) for field in ("type", "status", "reason")]
    for c in conditions:
        good = c.status == "True" and c.type != ConditionType.STALLED
        style = (
            "green" if good else "yellow" if c.status == "Unknown" or c.type == ConditionType.RECONCILING else "red"
        )
        yield Text.assemble(
            f"{c.type:<{wide[0]}}  ",
            (f"{c.status:<{wide[1]}}", style),
            f"  {c.reason:<{wide[2]}}  {printable(c.message)} ({age(c.last_transition_time, now)})",
        )


def _pods(service: SpeculativeInferenceService, pods: Listed, wide: bool) -> Iterator[Text]:
    status = service.status
    rolled = status.current_revision or "none yet"
    going = f", going to {status.update_revision}" if status.update_revision != status.current_revision else ""
    yield _headed("revision", f"{rolled}{going if status.update_revision else ''}")
    if isinstance(pods, str):
        yield _headed("pods", f"{status.ready_replicas or 0} of {service.spec.replicas} answer; {pods}")
        return
    states = {str(pod["metadata"]["name"]): _state(pod) for pod in pods}
    ready = sum(state == ANSWERS for state in states.values())
    yield _headed("pods", f"{ready} of {service.spec.replicas} answer")
    for pod in _by_name(pods):
        where, name = pod["spec"].get("nodeName", "no node yet"), pod["metadata"]["name"]
        more = f"  {pod.get('status', {}).get('podIP', NONE)}  {counted(_restarts(pod), 'restart')}" if wide else ""
        yield _headed("", f"{name}  {label(pod, names.LABEL_REVISION)}  {where}{more}  {states[name]}")


def _by_name(pods: Sequence[Object]) -> list[Object]:
    return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))


def _restarts(pod: Object) -> int:
    return sum(each.get("restartCount", 0) for each in pod.get("status", {}).get("containerStatuses") or ())


def _state(pod: Object) -> str:
    status = pod.get("status", {})
    if "deletionTimestamp" in pod["metadata"]:
        return "is stopping"
    if status.get("phase") in ("Succeeded", "Failed"):  # evicted, say: it stays until it is collected
        return f"has ended: {status.get('reason', status['phase'])}: {status.get('message', 'its node stopped it')}"
    if pod_ready(pod):
        return ANSWERS
    problem = pod_problem(pod)
    return problem.message if problem else "is starting"


def _speculation(seen: SpeculationStatus, now: datetime) -> Iterator[str]:
    yield (
        f"acceptance {percent(seen.acceptance_rate)}, mean accepted length {number(seen.mean_accepted_length)},"
        f" draft length {number(seen.draft_length, 1)}, speed-up {factor(seen.speedup)}"
        f"{' (by tandem bench)' if seen.speedup_source == 'Benchmark' else ''}"
    )
    yield f"from {counted(seen.samples, 'step')}, {age(seen.observed_at, now)} ago; updated when it changes"
    if seen.advice:
        yield f"advice: {seen.advice.message} (expected: {factor(seen.advice.gain)} the tokens a second)"


def _autoscaling(decided: AutoscalingStatus, now: datetime) -> Iterator[str]:
    wanted = "holds" if decided.desired_replicas is None else f"needs {counted(decided.desired_replicas, 'replica')}"
    yield f"{wanted}, {decided.signal}: {decided.message} ({age(decided.observed_at, now)} ago)"


def _autoscaler(live: Object) -> str:
    spec, status = live["spec"], live.get("status", {})
    average = _average(status)
    read = "" if average is None else f", reads {number(average)} a replica"
    return (
        f"{live['kind']} {live['metadata']['name']}: {counted(status.get('currentReplicas', 0), 'replica')}, desired"
        f" {status.get('desiredReplicas', 0)}, between {spec.get('minReplicas', 1)} and {spec['maxReplicas']}{read}"
    )


def _average(status: Object) -> float | None:
    """The metric's value a replica, as a HorizontalPodAutoscaler reads it."""
    metrics = [m.get("object") or m.get("external") or {} for m in status.get("currentMetrics") or []]
    values = [value for metric in metrics if (value := metric.get("current", {}).get("averageValue"))]
    return quantity(values[0]) if values else None


def _under(heading: str, lines: Iterator[str]) -> Iterator[Text]:
    for line in lines:
        yield _headed(heading, line)
        heading = ""


def _headed(heading: str, text: str) -> Text:
    return Text.assemble((f"{heading:<{LABEL}}", "dim"), printable(text))
