"""`tandem status` and `tandem top`: what they show of a cluster, read through a fake kubectl."""

import copy
import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from support.live_services import HPA, PODS, answer, kubectl, raw_list, service
from tandem.api.types import SpeculativeInferenceService
from tandem.cli import app, status, top
from tandem.cli.status import Listed, Seen
from tandem.client.kubectl import ClusterError, parsed

__all__ = ["kubectl"]  # a fixture

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
SHOWN = """\
team-a/llama  BLS DraftTarget, profile reference
http://llama-triton.team-a.svc:8000

Ready                  True   ServersAnswer  2 of 2 servers answer (3 h)
SpeculationBeneficial  False  Slower         0.90 times (5 min)

revision      0123456789
pods          1 of 2 answer
              llama-server-a  0123456789  no node yet  pod llama-server-a cannot be scheduled: 0/3 nodes are available
              llama-server-b  0123456789  node-1  answers
speculation   acceptance 75.3%, mean accepted length 3.90, draft length 4.0, speed-up 0.90x
              from 12,900 steps, 2 min ago; updated when it changes
autoscaling   needs 3 replicas, Demand: 40 requests (30 s ago)
              HorizontalPodAutoscaler llama-server: 2 replicas, desired 3, between 1 and 8, reads 1.31 a replica
"""


def text(seen: SpeculativeInferenceService, pods: Listed, autoscalers: Listed, *, wide: bool = False) -> str:
    return "\n".join(line.plain for line in status.lines(Seen(seen, pods, autoscalers), NOW, wide=wide))


def test_status_shows_all_that_is_known() -> None:
    assert text(service(), yaml.safe_load(PODS), yaml.safe_load(HPA)) + "\n" == SHOWN


def test_status_of_a_new_service_says_who_has_to_act() -> None:
    new = service(observedGeneration=None, conditions=[], speculation=None, autoscaling=None, currentRevision=None)
    shown = text(new, [], [])
    assert "the operator has not acted on this spec yet: check that it runs" in shown
    assert "revision      none yet" in shown
    assert "speculation" not in shown


def test_what_pods_say_cannot_steer_the_terminal() -> None:
    pod = yaml.safe_load(PODS)[1]
    pod["status"]["conditions"][0]["message"] = "\x1b[2J[red]gone"
    shown = text(service(), [pod], [])
    assert "\x1b" not in shown
    assert "␛[2J[red]gone" in shown


def test_status_of_a_service_that_goes_says_so() -> None:
    metadata = {**service().metadata, "deletionTimestamp": "2026-01-01T12:00:00Z"}
    gone = service().model_copy(update={"metadata": metadata})
    assert "it is being deleted" in text(gone, [], []).splitlines()


GOING = [
    # metadata, status, what is said of the pod
    ({"deletionTimestamp": "2026-01-01T11:59:00Z"}, {}, "is stopping"),
    ({}, {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}, "has ended: Evicted: low on memory"),
    ({}, {"phase": "Failed"}, "has ended: Failed: its node stopped it"),
]


@pytest.mark.parametrize(("metadata", "state", "said"), GOING, ids=[row[2] for row in GOING])
def test_pods_that_serve_no_more_do_not_count(metadata: dict[str, str], state: dict[str, str], said: str) -> None:
    ready = yaml.safe_load(PODS)[0]
    going = {**ready, "metadata": {**ready["metadata"], **metadata}, "status": {**ready["status"], **state}}
    shown = text(service(), [going], [])
    assert "pods          0 of 2 answer" in shown
    assert f"node-1  {said}\n" in shown


def test_status_shows_advice() -> None:
    advice = {"gain": 1.2, "message": "write maxConcurrency: 8"}
    seen = {"samples": 9, "observedAt": "2026-01-01T11:59:00Z", "advice": advice}
    shown = text(service(speculation=seen), [], [])
    assert "advice: write maxConcurrency: 8 (expected: 1.20x the tokens a second)" in shown
    assert "acceptance -, mean accepted length -" in shown


def test_wide_shows_where_pods_are_and_how_often_they_restarted() -> None:
    pods = yaml.safe_load(PODS)
    pods[0]["status"] |= {"podIP": "10.0.0.7", "containerStatuses": [{"restartCount": 2}, {"restartCount": 1}]}
    shown = text(service(), pods, [], wide=True)
    assert "llama-server-b  0123456789  node-1  10.0.0.7  3 restarts  answers" in shown
    assert "llama-server-a  0123456789  no node yet  -  0 restarts  pod" in shown


SENTENCE = "0.90 times"
"""What the condition says of the service: `status` shows it with the condition, above."""


def shown(board: top.ServiceTable, *, everywhere: bool = False) -> list[list[str]]:
    console = Console(width=200, file=io.StringIO())
    with console.capture() as capture:
        console.print(top.table(board, NOW, everywhere=everywhere))
    return [line.split() for line in capture.get().splitlines() if line.strip() and "─" not in line]


BUSY = {top.TOKENS: {("team-a", "llama"): 1234.0}, top.RUNNING: {("team-a", "llama"): 12.0}, top.WAITING: {}}


def test_top_shows_load_and_worth() -> None:
    header, row, worth = shown(top.ServiceTable([service()], BUSY))
    assert " ".join(worth) == f"llama: {SENTENCE}"
    assert SENTENCE in SHOWN
    (one,) = top.as_object(top.ServiceTable([service()], BUSY))["services"]
    assert one["worth"] == SENTENCE
    assert " ".join(header) == "NAME TYPE READY REPLICAS RUN WAIT TOKENS/S ACCEPTED LENGTH SPEED-UP AGE WHY"
    assert " ".join(row) == "llama DraftTarget True 2/2 > 3 12 - 1,234 75.3% 3.90 0.90x 2 min Demand"


def test_top_puts_the_busiest_first_and_shows_what_is_not_known_as_such() -> None:
    quiet = service(speculation=None, autoscaling=None, conditions=[], readyReplicas=None)
    quiet = quiet.model_copy(update={"metadata": {**quiet.metadata, "name": "aaa"}})
    header, first, second, worth = shown(top.ServiceTable([quiet, service()], BUSY), everywhere=True)
    assert header[0] == "NAMESPACE"
    assert first[:2] == ["team-a", "llama"]
    assert worth[0] == "team-a/llama:"
    assert second[1:] == ["aaa", "DraftTarget", "-", "0/2", "-", "-", "-", "-", "-", "-", "-", "-"]


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (120, "NAMESPACE NAME TYPE READY REPLICAS RUN WAIT TOKENS/S ACCEPTED LENGTH SPEED-UP AGE WHY"),
        (80, "NAMESPACE NAME READY REPLICAS RUN WAIT TOKENS/S ACCEPTED SPEED-UP"),
        (50, "NAMESPACE NAME READY RUN WAIT TOKENS/S"),
    ],
    ids=["wide", "as terminals are by default", "narrow"],
)
def test_top_leaves_out_columns_rather_than_cut_them(width: int, columns: str) -> None:
    console = Console(width=width, file=io.StringIO())
    with console.capture() as capture:
        console.print(top.fitting(console, top.ServiceTable([service()], BUSY), NOW, everywhere=True))
    lines = [line.split() for line in capture.get().splitlines() if line.strip(" ─")]
    assert lines[0] == columns.split()
    assert lines[1][:2] == ["team-a", "llama"]
    assert "…" not in capture.get()


@pytest.mark.parametrize("width", [60, 80, 100])
def test_one_long_name_does_not_cost_all_services_their_figures(width: int) -> None:
    name, namespace = (
        "a-name-that-is-as-long-as-one-may-be-oh",
        "one-branch-of-one-team-has-a-namespace-with-a-long-name-as-well",
    )
    long = service().model_copy(update={"metadata": {**service().metadata, "name": name, "namespace": namespace}})
    console = Console(width=width, file=io.StringIO())
    with console.capture() as capture:
        console.print(top.fitting(console, top.ServiceTable([long, service()], BUSY), NOW, everywhere=True))
    lines = [line.split() for line in capture.get().splitlines() if line.strip(" ─")]
    assert lines[0] == ["NAMESPACE", "NAME", "READY", "RUN", "WAIT", "TOKENS/S"]
    assert lines[1] == ["team-a", "llama", "True", "12", "-", "1,234"]
    assert "…" not in capture.get(), "names are broken, not cut"


@pytest.mark.parametrize("page", ["<!doctype html>", "[]", "[" * 20_000], ids=["a page", "a list", "without end"])
def test_what_is_no_answer_of_a_cluster_is_said_to_be_none(page: str) -> None:
    with pytest.raises(ClusterError, match="no Kubernetes API server answers, but perhaps a proxy"):
        parsed(page)


def test_the_commands_read_through_kubectl(kubectl: Path) -> None:
    answer(kubectl, "speculativeinferenceservices.serving.tandem.dev llama", raw_list(service())["items"][0])
    answer(kubectl, "get pods", {"items": yaml.safe_load(PODS)})
    answer(kubectl, "horizontalpodautoscalers", {"items": yaml.safe_load(HPA)})
    done = CliRunner().invoke(app, ["status", "llama", "-n", "team-a"])
    assert done.exit_code == 0, done.stderr
    assert "mean accepted length 3.90" in done.stdout
    calls = (kubectl / "calls").read_text(encoding="utf-8")
    assert "--namespace team-a" in calls
    assert "serving.tandem.dev/service=llama,serving.tandem.dev/component=server" in calls


def test_status_shows_what_one_may_see(kubectl: Path) -> None:
    answer(kubectl, "speculativeinferenceservices.serving.tandem.dev llama", raw_list(service())["items"][0])
    script = (kubectl / "kubectl").read_text(encoding="utf-8")
    forbidden = """echo 'Error from server (Forbidden): pods is forbidden: User "jo" cannot list them' >&2; exit 1"""
    (kubectl / "kubectl").write_text(f"{script[: script.rindex('echo')]}{forbidden}\n", encoding="utf-8")
    done = CliRunner().invoke(app, ["status", "llama"])
    assert done.exit_code == 0, done.stderr
    assert "mean accepted length 3.90" in done.stdout
    assert "pods          2 of 2 answer; Error from server (Forbidden): pods is forbidden" in done.stdout
    assert "autoscaler    Error from server (Forbidden)" in done.stdout


def test_top_without_the_metrics_api_says_so_and_shows_the_rest(kubectl: Path) -> None:
    answer(kubectl, "get speculativeinferenceservices", raw_list(service()))
    done = CliRunner().invoke(app, ["top"])
    assert done.exit_code == 0, done.stderr
    assert "75.3%" in done.stdout
    assert "no RUN, WAIT and TOKENS/S: Error from server (NotFound)" in done.stdout


def test_top_reads_the_metrics_api(kubectl: Path) -> None:
    answer(kubectl, "get speculativeinferenceservices", raw_list(service()))
    answer(kubectl, "tokens_per_second", {"items": [{"describedObject": {"name": "llama"}, "value": "1234500m"}]})
    done = CliRunner().invoke(app, ["top", "-A"])
    assert done.exit_code == 0, done.stderr
    assert "1,234" in done.stdout


def test_top_asks_for_a_few_metrics_at_a_time(kubectl: Path) -> None:
    items = raw_list(service())["items"]
    many = [{**item, "metadata": {**item["metadata"], "namespace": f"team-{i}"}} for item in items for i in range(9)]
    answer(kubectl, "get speculativeinferenceservices", {"items": many})
    script = (kubectl / "kubectl").read_text(encoding="utf-8")
    counted = "mkdir -p running/$$; sleep 0.1; ls running | wc -l >> most; rmdir running/$$\nfor file"
    (kubectl / "kubectl").write_text(script.replace("for file", counted, 1), encoding="utf-8")
    assert CliRunner().invoke(app, ["top", "-A"]).exit_code == 0
    seen = [int(line) for line in (kubectl / "most").read_text(encoding="utf-8").split()]
    assert len(seen) == 1 + 9 * 3
    assert max(seen) <= top.AT_ONCE


@pytest.mark.parametrize("command", [["status", "llama"], ["top"]])
def test_a_service_of_a_newer_tandem_is_said_to_be_one(kubectl: Path, command: list[str]) -> None:
    (newer,) = raw_list(service())["items"]
    newer["spec"]["speculation"]["decodingType"] = "Clairvoyant"
    answer(kubectl, "get speculativeinferenceservices", newer if "status" in command else {"items": [newer]})
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 1
    assert done.stderr.startswith(
        "error: team-a/llama is of another version of Tandem: use that one's command (spec."
    )


def test_lists_leave_it_out_with_a_warning(kubectl: Path) -> None:
    (newer,), (older,) = raw_list(service())["items"], raw_list(service())["items"]
    newer = copy.deepcopy(newer)
    newer["spec"]["speculation"]["decodingType"] = "Clairvoyant"
    newer["metadata"]["name"] = "newer"
    answer(kubectl, "get speculativeinferenceservices", {"items": [newer, older]})
    done = CliRunner().invoke(app, ["status"])
    assert done.exit_code == 0, done.stderr
    assert "llama" in done.stdout
    assert done.stderr.startswith("warning: team-a/newer is of another version of Tandem: use that one's command")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["status", "llama"], "lists those that exist"),
        (["top"], "lists those that exist"),
    ],
)
def test_errors_say_what_to_do(kubectl: Path, arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1
    assert said in done.stderr


def test_no_services_here(kubectl: Path) -> None:
    answer(kubectl, "get speculativeinferenceservices", {"items": []})
    for command in ("top", "status"):
        done = CliRunner().invoke(app, [command])
        assert (done.exit_code, "-A shows those of all namespaces" in done.stdout) == (0, True)


class Enough(Exception):
    """The table was shown twice."""


class Page(io.StringIO):
    """Standard output until then."""

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.getvalue().count("75.3%") >= 2:
            raise Enough
        return written


async def test_top_shows_again_and_again_when_watched(kubectl: Path) -> None:
    answer(kubectl, "get speculativeinferenceservices", raw_list(service()))
    with pytest.raises(Enough):
        await top.top(Console(file=Page(), width=200), None, everywhere=False, watch=0.01)


async def test_top_outlives_an_api_server_that_is_away_for_a_moment(
    kubectl: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal that is left open all day; when it is started, what is wrong ends it."""
    page, reads = Page(), top.read

    async def read(*asked: Any) -> top.ServiceTable:
        if page.getvalue().count("75.3%") == 1 and "away" not in page.getvalue():
            raise ClusterError("the API server is away")
        return await reads(*asked)

    answer(kubectl, "get speculativeinferenceservices", raw_list(service()))
    monkeypatch.setattr(top, "read", read)
    with pytest.raises(Enough):
        await top.top(Console(file=page, width=200), None, everywhere=False, watch=0.01)
    assert "trying again: the API server is away" in page.getvalue()
