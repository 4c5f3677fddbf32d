"""Engines that failed: the condition by the pods alone, and one Event and one count for each failure."""

import json
from typing import Any

import pytest

from support.services import QUICKSTART, parse
from support.world import observed_of
from tandem import counters, names
from tandem.api import KIND
from tandem.api.types import SpeculativeInferenceService
from tandem.api.wire import Object
from tandem.cluster.events import FailureEvents
from tandem.cluster.pods import termination_message
from tandem.cluster.problems import pod_problem
from tandem.conditions.engine_health import Failure, engine_health, failures
from tandem.errors import AlreadyExists, Refused, Transient
from tandem.rollout.termination import MOST_MESSAGE, EngineFailure, engine_failure

CUDA = "[TensorRT-LLM][ERROR] CUDA error: an illegal memory access was encountered"
FAILED, STARTED = "2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z"
SOON, LATER = "2026-01-01T00:05:00Z", "2026-01-01T00:10:10Z"


def said(message: str = CUDA, reason: str = "EngineFailing", model: str = "tensorrt_llm") -> str:
    return json.dumps({"engineFailure": {"model": model, "reason": reason, "message": message}})


def end(message: str | None = None, container: str = "containerd://1", at: str | None = FAILED) -> Object:
    found = {"exitCode": 1, "reason": "Error", "message": said() if message is None else message}
    return found | {"containerID": container} | ({"finishedAt": at} if at else {})


TERMINATED: Object = {"state": {"terminated": end()}}
WAITING: Object = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": end()}}
LOADING: Object = {
    "started": False,
    "restartCount": 1,
    "state": {"running": {"startedAt": STARTED}},
    "lastState": {"terminated": end()},
}
RUNNING: Object = {**LOADING, "started": True}
HEALTHY: Object = {"started": True, "state": {"running": {"startedAt": FAILED}}}
PROXY: Object = {"name": "istio-proxy", "started": True, "state": {"running": {"startedAt": FAILED}}}
PROXY_ENDED: Object = {"name": "istio-proxy", "state": {"terminated": {"exitCode": 3, "message": "no pilot"}}}


def pod(container: Object, name: str = "p", *beside: Object, **metadata: Any) -> Object:
    """A server pod; containers `beside` ours come first, as webhooks may put them."""
    return {
        "kind": "Pod",
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {names.LABEL_COMPONENT: names.SERVER}} | metadata,
        "status": {
            "phase": "Running",
            "containerStatuses": [*beside, {"name": names.CONTAINER, **container}],
        },
    }


def found(*pods: Object) -> list[Failure]:
    return failures(observed_of(*pods))


def shown(service: SpeculativeInferenceService, pods: list[Object], now: str) -> list[tuple[str, str, str, str]]:
    return [(f.type, f.status, f.reason, f.message) for f in engine_health(service, found(*pods), now)]


# --- what the pods say ------------------------------------------------------------------------------
WORDS = f"pod p, {FAILED}: engine tensorrt_llm failed: {CUDA}"
ROWS: list[tuple[str, list[Object], str, str | None]] = [
    # reason, pods, now, the condition's message; None: there is none
    ("nothing failed", [pod(HEALTHY)], SOON, None),
    ("it has just ended", [pod(TERMINATED)], FAILED, WORDS),
    ("it waits for its next start", [pod(WAITING)], SOON, WORDS),
    ("and waits on: that is no health", [pod(WAITING)], "2026-01-01T09:00:00Z", WORDS),
    ("it loads", [pod(LOADING)], SOON, WORDS),
    ("a large model loads for an hour", [pod(LOADING)], "2026-01-01T01:00:00Z", WORDS),
    ("it serves again", [pod(RUNNING)], SOON, WORDS),
    ("it has served for ten minutes", [pod(RUNNING)], LATER, None),
    ("a proxy comes first", [pod(RUNNING, "p", PROXY)], SOON, WORDS),
    ("a proxy says the same of itself", [pod(HEALTHY, "p", {**RUNNING, "name": "istio-proxy"})], SOON, None),
    ("ended otherwise", [pod({"state": {"terminated": end("Killed")}})], SOON, None),
    ("on its way out, as a group is whose pod restarts", [pod(RUNNING, deletionTimestamp=SOON)], SOON, WORDS),
    ("evicted since", [{**pod(RUNNING), "status": {**pod(RUNNING)["status"], "phase": "Failed"}}], SOON, None),
    ("a worker of a group", [pod(RUNNING, labels={names.LABEL_COMPONENT: names.WORKER})], SOON, None),
    ("the other replica is well", [pod(HEALTHY, "q"), pod(RUNNING)], SOON, WORDS),
    (
        "two of them",
        [pod(RUNNING, "q"), pod(RUNNING)],
        SOON,
        f"{WORDS.replace('pod p', 'pod q')}; and 1 more of its pods",
    ),
    ("one of two is well again", [pod(RUNNING, "q"), pod(WAITING)], LATER, WORDS),
]


@pytest.mark.parametrize(("reason", "pods", "now", "message"), ROWS, ids=[row[0] for row in ROWS])
def test_the_condition(
    service: SpeculativeInferenceService, reason: str, pods: list[Object], now: str, message: str | None
) -> None:
    wanted = [("EngineHealthy", "False", "EngineFailing", message)] if message else []
    assert shown(service, pods, now) == wanted, reason


def test_a_hang_is_another_reason(service: SpeculativeInferenceService) -> None:
    hung = said("no answer for 12 s", "EngineHung")
    ((_, _, reason, message),) = shown(service, [pod({"state": {"terminated": end(hung)}})], SOON)
    assert reason == "EngineHung"
    assert message.endswith("engine tensorrt_llm hung: no answer for 12 s")


def test_the_newest_failure_is_shown(service: SpeculativeInferenceService) -> None:
    again = end(said("again"), "containerd://2", SOON)
    ((*_, message),) = shown(
        service, [pod({"state": {"terminated": again}, "lastState": {"terminated": end()}})], SOON
    )
    assert message.endswith("again")


def with_condition(status: str, since: str) -> SpeculativeInferenceService:
    raw = {
        "type": "EngineHealthy",
        "status": status,
        "reason": "EngineHung",
        "message": "m",
        "lastTransitionTime": since,
    }
    service = parse(QUICKSTART)
    return service.model_copy(update={"status": type(service.status).model_validate({"conditions": [raw]})})


@pytest.mark.parametrize(
    ("pods", "now", "stays", "reason"),
    [
        ([], SOON, True, "a group is made anew after a failure: its pods, that say so, are gone"),
        ([], "2026-01-01T00:10:00Z", False, "for as long as a pod that is there"),
        ([pod(RUNNING)], LATER, False, "a pod that is well again ends it"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_pod_that_is_gone(pods: list[Object], now: str, stays: bool, reason: str) -> None:
    wanted = [("EngineHealthy", "False", "EngineHung", "m")] if stays else []
    assert shown(with_condition("False", FAILED), pods, now) == wanted, reason


def test_one_failure_is_the_same_in_every_state_of_its_pod() -> None:
    runs = {failure.run for state in (TERMINATED, WAITING, LOADING, RUNNING) for failure in found(pod(state))}
    assert len(runs) == 1
    other = [pod(RUNNING, "q"), pod({"state": {"terminated": end(container="containerd://2", at=SOON)}})]
    assert len(runs | {failure.run for failure in found(*other)}) == 3, "another pod's, and the next of this one"


# --- what a pod may write ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    "message",
    [
        "",
        "Killed",
        "[]",
        '{"checks": []}',
        '{"engineFailure": "it failed"}',
        said(reason="Whatever"),
        said(model=""),
        said(model="m" * 129),
        said()[:-9],
        '{"engineFailure":' * 500,
        said(CUDA.replace("CUDA", "LONE")).replace("LONE", "\\ud800"),
    ],
)
def test_what_is_not_of_the_form_says_nothing(message: str) -> None:
    assert engine_failure(message) is None
    assert found(pod({"state": {"terminated": end(message)}})) == []


def test_without_a_time_nothing_is_known() -> None:
    assert found(pod({"state": {"terminated": end(at=None)}})) == []


def test_an_error_is_one_line_of_bounded_length(service: SpeculativeInferenceService) -> None:
    long = "CUDA error:\n\t\x1b\u202eline\x00\n" + "x" * 4000
    ((*_, message),) = shown(service, [pod({"state": {"terminated": end(said(long))}})], SOON)
    assert "CUDA error: line x" in message
    assert "\n" not in message
    assert len(message) < MOST_MESSAGE + 100


# --- our container, by its name ---------------------------------------------------------------------
@pytest.mark.parametrize("ours", [names.CONTAINER, names.FETCH])
def test_a_verdict_is_read_from_our_container(ours: str) -> None:
    status: Object = {"name": ours, "state": {"terminated": {"exitCode": 0, "message": "verdict"}}}
    ended: Object = {"metadata": {"name": "p"}, "status": {"containerStatuses": [PROXY_ENDED, status]}}
    assert termination_message(ended) == "verdict"
    alone: Object = {"metadata": {"name": "p"}, "status": {"containerStatuses": [PROXY_ENDED]}}
    assert termination_message(alone) is None


def test_what_keeps_a_pod_from_running_is_our_container_s_word_first() -> None:
    told = words(pod({"state": {"terminated": {"exitCode": 1, "message": "no model"}}}, "p", PROXY_ENDED))
    assert told == "pod p, container triton: exit code 1: no model"
    assert words(pod(HEALTHY, "p", PROXY_ENDED)) == "pod p, container istio-proxy: exit code 3: no pilot"


def words(pod: Object) -> str:
    problem = pod_problem(pod)
    return problem.message if problem else ""


def test_a_failed_engine_is_told_in_words() -> None:
    where = "pod p, container triton"
    assert words(pod(WAITING)) == f"{where}: CrashLoopBackOff: engine tensorrt_llm failed: {CUDA}"
    assert words(pod(TERMINATED)) == f"{where}: exit code 1: engine tensorrt_llm failed: {CUDA}"


# --- Events and the metric --------------------------------------------------------------------------
class Events:
    """An API server that keeps Events by name; `error` is what it answers instead."""

    def __init__(self) -> None:
        self.made: dict[str, Object] = {}
        self.requests = 0
        self.error: Exception | None = None

    def now(self) -> str:
        return "2026-01-01T00:00:00Z"

    async def create_once(self, _: object, manifest: Object) -> bool:
        self.requests += 1
        if self.error:
            raise self.error
        name = manifest["metadata"]["name"]
        if name in self.made:
            return False
        self.made[name] = manifest
        return True

    def check(self) -> None:
        """It leads, too."""


class Recorder:
    """One operator process after the other before the same API server."""

    def __init__(self) -> None:
        self.api = Events()
        self.service = parse(QUICKSTART)
        self.before = self.count()
        self.restart()

    def restart(self) -> None:
        self.events = FailureEvents(self.api, self.api)  # type: ignore[arg-type]

    async def see(self, *pods: Object, now: str = SOON) -> None:
        await self.events.record(self.service, found(*pods), now)

    @staticmethod
    def count(reason: str = "EngineFailing") -> float:
        labels = {"namespace": "default", KIND.lower(): "quickstart", "reason": reason}
        (family,) = counters.ENGINE_FAILURES.collect()
        found = [s.value for s in family.samples if s.labels == labels and s.name.endswith("_total")]
        return sum(found)

    @property
    def counted(self) -> float:
        return self.count() - self.before


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


async def test_one_event_and_one_count_for_each_failure(recorder: Recorder) -> None:
    for state in (TERMINATED, WAITING, WAITING, LOADING, RUNNING):
        await recorder.see(pod(state))
    (event,) = recorder.api.made.values()
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "EngineFailed", WORDS)
    assert event["involvedObject"]["uid"] == recorder.service.uid
    assert recorder.counted == 1
    assert recorder.api.requests == 1, "what is known costs no request"
    again = {"state": {"terminated": end(container="containerd://2", at=SOON)}}
    await recorder.see(pod(again), pod(RUNNING, "q"))
    assert len(recorder.api.made) == recorder.counted == 3


async def test_an_operator_that_starts_counts_nothing_twice(recorder: Recorder) -> None:
    await recorder.see(pod(RUNNING))
    recorder.restart()
    await recorder.see(pod(RUNNING), now=LATER)
    assert len(recorder.api.made) == recorder.counted == 1
    recorder.restart()
    recorder.api.made.clear()  # after an hour the API server forgets, and the pod still shows it
    await recorder.see(pod(RUNNING), now="2026-01-01T01:00:00Z")
    assert recorder.api.made == {}
    assert recorder.counted == 1


async def test_what_happened_while_no_operator_ran_is_recorded(recorder: Recorder) -> None:
    await recorder.see(pod(RUNNING), now="2026-01-01T00:29:00Z")
    assert len(recorder.api.made) == recorder.counted == 1


@pytest.mark.parametrize("error", [Transient("busy"), AlreadyExists("no name to be had")])
async def test_an_api_server_that_is_away_is_asked_again(recorder: Recorder, error: Exception) -> None:
    recorder.api.error = error
    with pytest.raises(Transient):
        await recorder.see(pod(RUNNING))
    assert recorder.counted == 0
    recorder.api.error = None
    await recorder.see(pod(RUNNING))
    assert len(recorder.api.made) == recorder.counted == 1


async def test_where_no_event_may_be_written_it_is_counted_all_the_same(recorder: Recorder) -> None:
    recorder.api.error = Refused(403, "no")
    await recorder.see(pod(RUNNING))
    await recorder.see(pod(RUNNING))
    assert (recorder.api.made, recorder.counted, recorder.api.requests) == ({}, 1, 1)


async def test_what_is_gone_is_forgotten(recorder: Recorder) -> None:
    await recorder.see(pod(RUNNING))
    await recorder.see()
    await recorder.see(pod(RUNNING, "q"))
    recorder.events.forget("default", "quickstart")
    assert recorder.events._known == {}


def test_reasons_are_few() -> None:
    """They are a label of a metric."""
    assert EngineFailure.model_json_schema()["properties"]["reason"]["enum"] == [
        "EngineFailing",
        "EngineHung",
        "EngineArgumentsRefused",
    ]
