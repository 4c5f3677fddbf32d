"""A revision whose accepted length is too short goes back by itself, as one that does not answer in time does."""

from typing import Any

import pytest

from support.reports import report
from support.services import QUICKSTART, parse
from support.world import GOOD, World
from tandem import names
from tandem.api.types import ServiceStatus, SpeculativeInferenceService
from tandem.conditions.ready import status
from tandem.conditions.situation import Situation
from tandem.conditions.writes import Reading, ShownReport, update
from tandem.metrics.report import ServiceReport
from tandem.settings import Settings

NOW = "2026-01-01T00:00:00Z"
NO_HISTORY = {"rollout": {"revisionHistoryLimit": 0}}


class Story:
    """A service with a minimum accepted length in a world, the status that it has, and what is measured of it."""

    def __init__(self, settings: Settings) -> None:
        self.world = World(settings)
        self.status: dict[str, Any] = {}
        self.shown: ShownReport | None = None
        self.clock = 0.0

    def ask(self, minimum: float | None = 2.0, **changes: Any) -> None:
        self.service = parse(QUICKSTART, **{**NO_HISTORY, **changes}, speculation__minAcceptedLength=minimum)

    def read(self) -> SpeculativeInferenceService:
        return self.service.model_copy(update={"status": ServiceStatus.model_validate(self.status)})

    def step(self, operator_dies: bool = False) -> tuple[list[str], dict[str, str]]:
        """One reconcile: what was done, and the conditions as Status/Reason."""
        decision, done = self.world.step(self.read())
        reading = None
        if self.shown:
            reading = Reading(self.shown.report, self.shown.idle, standings=self.shown.standings)
        shown = status(Situation(self.read(), decision, self.world.observed(), NOW, reading=reading))
        if not operator_dies:
            self.status = shown
        return done, {c["type"]: f"{c['status']}/{c['reason']}" for c in shown["conditions"]}

    def roll_out(self, answer: bool = True) -> dict[str, str]:
        """The models of what is asked for are checked, the workload is changed, its servers answer."""
        self.step()
        self.world.pods = [pod for pod in self.world.pods if pod["metadata"]["name"].startswith("server-")]
        self.world.finish_preflight(GOOD)
        self.step()
        if answer:
            self.world.run_servers(1)
            self.step()
        return self.step()[1]

    def measure(self, windows: int, **lengths: float) -> None:
        """So many windows, with the accepted length of each revision that has pods; by digest."""
        for _ in range(windows):
            self.clock += 60.0
            self.shown = update(self.shown, self.window(lengths), self.clock)

    def window(self, lengths: dict[str, float]) -> ServiceReport:
        figures = {"draftLength": 4.0, "drafted": True, "samples": 900}
        revisions = [
            {"revision": digest, "speculation": {**figures, "meanAcceptedLength": length}}
            for digest, length in lengths.items()
        ]
        minimum = self.service.spec.speculation.min_accepted_length
        return report(minAcceptedLength=minimum, revisions=revisions)

    def message(self, kind: str) -> str:
        return next(str(c["message"]) for c in self.status["conditions"] if c["type"] == kind)

    @property
    def runs(self) -> str:
        """Revision of the workload."""
        (deployment,) = [each for (kind, _), each in self.world.objects.items() if kind == "Deployment"]
        return str(deployment["spec"]["template"]["metadata"]["labels"][names.LABEL_REVISION])

    @property
    def revisions(self) -> set[str]:
        """Digests of the revisions that are kept."""
        return {stored.digest for stored in self.world.observed().revisions}


@pytest.fixture
def story(settings: Settings) -> Story:
    """A service that serves its first revision, with traffic that keeps the minimum, and was edited."""
    made = Story(settings)
    made.ask()
    made.roll_out()
    made.measure(1, **{made.runs: 2.6})
    made.step()
    made.ask(speculation__maxDraftLen=6)
    return made


def test_it_goes_back_after_its_rollout(story: Story) -> None:
    first = story.runs
    assert story.roll_out()["Ready"] == "True/ServersAnswer"
    second = story.runs
    assert (story.status["currentRevision"], story.status["fallbackRevision"]) == (second, first)
    assert first in story.revisions, "also without a history to keep, what may come back is kept"
    story.measure(1, **{second: 1.4})
    assert story.step()[1]["Ready"] == "True/ServersAnswer", "one window is no judgement"
    story.measure(1, **{second: 1.4})
    assert story.step()[1]["Stalled"] == "True/RolledBack"
    assert "mean accepted length of 1.40, below speculation.minAcceptedLength: rolling back" in story.message("Ready")
    assert (story.status["currentRevision"], story.status["failedRevision"]) == (first, second)
    assert "fallbackRevision" not in story.status

    done, found = story.step()
    assert (done, story.runs) == (["~Deployment"], first)
    assert found["Ready"] == "False/RolledBack"
    story.world.run_servers(1)
    story.measure(1, **{first: 2.6})
    done, found = story.step()
    assert (done, found["Stalled"], found["Available"]) == ([], "True/RolledBack", "True/ServersAnswer")
    assert f"and {first} serves again: change the specification" in story.message("Stalled")
    assert found["AcceptedLengthKept"] == "True/LongEnough", "of what serves"
    assert story.step()[0] == [], "it is not tried again"


def test_it_goes_back_while_it_rolls_out(story: Story) -> None:
    first = story.runs
    story.roll_out(answer=False)
    second = story.runs
    story.measure(2, **{first: 2.6, second: 1.4})
    assert story.step()[1]["Stalled"] == "True/RolledBack"
    assert (story.status["currentRevision"], story.status["failedRevision"]) == (first, second)
    assert story.step()[0] == ["~Deployment"]
    assert story.runs == first


def test_an_operator_that_dies_comes_to_the_same_end(story: Story) -> None:
    story.roll_out()
    second = story.runs
    story.measure(2, **{second: 1.4})
    assert story.step(operator_dies=True)[0] == [], "nothing is done before the status has it"
    story.shown = None  # and what it measured is lost
    assert story.step()[1]["Ready"] == "True/ServersAnswer"
    story.measure(2, **{second: 1.4})
    story.step()
    assert story.step()[0] == ["~Deployment"]


def test_one_that_kept_the_minimum_does_not_go_back_later(story: Story) -> None:
    """What changes then is the traffic: the one before would do no better."""
    story.roll_out()
    second = story.runs
    story.measure(1, **{second: 2.2})
    story.step()
    assert "fallbackRevision" not in story.status
    story.measure(2, **{second: 1.4})
    found = story.step()[1]
    assert (found["Ready"], found["AcceptedLengthKept"]) == ("True/ServersAnswer", "False/AcceptsLittle")


@pytest.mark.parametrize("answer", [True, False], ids=["after its rollout", "while it rolls out"])
def test_what_was_before_is_not_brought_back_where_it_was_no_better(story: Story, answer: bool) -> None:
    """Who looks for a better draft would never get there: 1.9 is more than 1.2."""
    first = story.runs
    story.ask()
    story.measure(2, **{first: 1.2})
    assert story.step()[1]["AcceptedLengthKept"] == "False/AcceptsLittle"
    story.ask(speculation__maxDraftLen=6)
    story.roll_out(answer)
    second = story.runs
    story.measure(2, **{second: 1.9})
    for _ in range(3):
        done, found = story.step()
        assert (done, found["AcceptedLengthKept"]) == ([], "False/AcceptsLittle")
        assert "Stalled" not in found
    assert story.runs == second != first


@pytest.mark.parametrize(
    ("lengths", "reason"),
    [({}, "no figures are not below"), ({"other": 1.2}, "pods of another revision say nothing of this one")],
    ids=["idle", "another revision"],
)
def test_without_figures_it_stays(story: Story, lengths: dict[str, float], reason: str) -> None:
    first = story.runs
    story.roll_out()
    story.measure(9, **lengths)
    assert story.step()[1]["Ready"] == "True/ServersAnswer", reason
    assert story.status["fallbackRevision"] == first, "until it is known"


def test_the_first_revision_has_nothing_to_go_back_to(settings: Settings) -> None:
    story = Story(settings)
    story.ask()
    story.roll_out()
    story.measure(3, **{story.runs: 1.2})
    found = story.step()[1]
    assert (found["Ready"], found["AcceptedLengthKept"]) == ("True/ServersAnswer", "False/AcceptsLittle")
    assert story.step()[0] == []


@pytest.mark.parametrize(
    ("minimum", "again", "reason"),
    [
        (1.3, True, "what it had is enough now"),
        (None, True, "nothing is asked for any more"),
        (1.8, False, "it had less"),
    ],
    ids=["lower", "none", "still above it"],
)
def test_another_minimum(story: Story, minimum: float | None, again: bool, reason: str) -> None:
    story.roll_out()
    second = story.runs
    story.measure(2, **{second: 1.4})
    story.step()
    story.step()
    story.world.run_servers(1)
    story.ask(minimum, speculation__maxDraftLen=6)
    story.measure(1)
    story.step()
    assert (story.runs == second) is again, reason
    story.step()
    assert ("failedRevision" in story.status) is not again


def test_a_length_just_below_the_minimum_is_remembered_as_below(story: Story) -> None:
    """Rounded up to the minimum, the revision would be tried again and again."""
    story.roll_out()
    story.measure(2, **{story.runs: 1.9999})
    story.step()
    assert story.status["failedAcceptedLength"] == 1.99
    assert story.step()[0] == ["~Deployment"]


def test_the_minimum_is_no_part_of_a_revision(story: Story) -> None:
    story.roll_out()
    story.ask(2.5, speculation__maxDraftLen=6)
    assert story.step()[0] == []
