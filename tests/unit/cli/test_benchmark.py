"""Figures of `tandem bench`, from what the clients saw."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from support.completions import completion
from tandem.client.bench import app, load, plot, record
from tandem.client.bench.figures import Level, Side, Window, refused, unjudged, verdict
from tandem.client.bench.load import Load, play
from tandem.client.generate.app import Endpoint
from tandem.client.generate.errors import RequestRefusedError
from tandem.client.generate.figures import Chunk, Completion
from tandem.client.generate.request import Request, Sampling
from tandem.client.generate.view import PLAIN_WIDTH
from tandem.client.kubectl import ClusterError


def window(tokens: int, *completions: Completion) -> Window:
    return Window(2.0, tokens, completions, tuple(c.first_token_seconds for c in completions))


def level(streams: int, *pairs: tuple[int, int], ended: tuple[bool, bool] = (True, True)) -> Level:
    """Tokens of each side in pairs of windows; `ended`: whether requests of each side ended."""
    done = completion(2, 1.0, 0.5)
    ours, alone = (
        [window(n, *[done] * end) for n in of] for of, end in zip(zip(*pairs, strict=True), ended, strict=True)
    )
    return Level(streams, Side(tuple(ours)), Side(tuple(alone)))


def test_a_sides_figures_are_of_all_its_windows() -> None:
    side = Side(
        (
            window(20, completion(11, 1.5, 0.5, drafted=8, accepted=6)),
            window(40, completion(21, 2.5, 0.5, drafted=12, accepted=8), completion(1, 0.3, 0.3)),
            window(0),
        )
    )
    assert side.tokens_per_second == 10  # the median window's 20 tokens in 2 s
    assert side.first_token == 0.5
    assert side.inter_token == pytest.approx(
        0.1
    )  # 10 tokens after the first in 1 s, 20 in 2 s; one token says nothing
    assert side.acceptance_rate == 14 / 20
    assert side.mean_accepted_length == 1 + 14 / (5 + 13)  # the completion without drafts does not count


def test_what_is_not_known_is_none() -> None:
    side = Side((window(0),))
    assert (side.first_token, side.inter_token, side.acceptance_rate, side.mean_accepted_length) == (None,) * 4


@pytest.mark.parametrize(
    ("pairs", "speedup", "reason"),
    [
        ([(30, 20)], 1.5, "one pair is its own median"),
        ([(30, 20), (10, 20), (40, 20)], 1.5, "the median of the pairs, not of the sides"),
        ([(30, 20), (3, 2), (20, 20)], 1.5, "a slow moment met both sides of a pair"),
        ([(30, 0), (40, 20)], 2.0, "a window without tokens has no ratio"),
        ([(30, 0)], None, "nothing to compare with"),
    ],
)
def test_speedup(pairs: list[tuple[int, int]], speedup: float | None, reason: str) -> None:
    assert level(1, *pairs).speedup == speedup, reason


NO_VERDICT = (
    "at no load both sides ended a request, so there is no verdict: make the windows longer (--seconds), or the"
    " answers shorter (--max-tokens)"
)
NOT_ALONE = Level(1, Side((window(30),)), Side((window(20, completion(9, 1.0, 0.5, drafted=8, accepted=6)),)))


@pytest.mark.parametrize(
    ("levels", "says"),
    [
        ([level(1, (3, 2)), level(4, (3, 2), (5, 2))], "speculation pays at every load measured"),
        (
            [level(1, (1, 2))],
            "speculation harms at every load measured: write speculation.decodingType: None, or another draft",
        ),
        (
            [level(1, (3, 2)), level(4, (3, 2)), level(16, (1, 2))],
            "speculation pays at 1, 4, harms at 16 streams: let the draft length follow the load"
            " (speculation.adaptive in mode BLS; draftLenSchedule in mode LLMAPI)",
        ),
        (
            [level(1, (3, 2)), level(4, (3, 2), (19, 20))],
            "speculation pays at 1, makes no clear difference at 4 streams: measure for longer (--seconds,"
            " --repeats)",
        ),
        (
            [level(1, (2, 2))],
            "speculation makes no clear difference at any load measured: measure for longer (--seconds, --repeats)",
        ),
        (
            [level(1, (3, 0))],
            "no tokens came without speculation, so there is no comparison: make the windows longer (--seconds)",
        ),
        (
            [NOT_ALONE],
            "the service of --against speculates too: give one of decodingType None",
        ),
        ([level(1, (3, 2), ended=(False, True))], NO_VERDICT),
        ([level(1, (3, 2), ended=(True, False))], NO_VERDICT),
        ([level(1, (0, 2), ended=(False, True))], NO_VERDICT),
        ([level(1, (3, 2)), level(4, (3, 9), ended=(True, False))], "speculation pays at every load measured"),
    ],
    ids=[
        *("pays", "harms", "harms at some", "pairs that disagree", "no difference", "no tokens", "nobody is alone"),
        *("no request with speculation", "nor without", "nor a token", "at another load"),
    ],
)
def test_verdict(levels: list[Level], says: str) -> None:
    assert verdict(levels) == says


def test_a_load_without_a_verdict_is_named() -> None:
    silent = level(4, (3, 9), ended=(True, False))
    assert unjudged([level(1, (3, 2)), silent]).startswith("no verdict at 4 streams, where one side ended no request")
    assert unjudged([level(1, (3, 2))]) == ""
    assert unjudged([silent]) == "", "the verdict has it"
    assert [each.streams for each in record.recorded([level(1, (3, 2)), silent])] == [1]


def test_the_spread_of_repeats_is_shown() -> None:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(app.table([level(1, (30, 20), (40, 20), (33, 20)), level(4, (30, 20))]))
    first, second = (" ".join(line.split()) for line in capture.get().splitlines()[1:])
    assert first.startswith("1 16.5 (15.0-20.0) 10.0 1.65 (1.50-2.00)")
    assert second.startswith("4 15.0 10.0 1.50")


def test_a_row_is_a_line_where_there_is_no_terminal() -> None:
    console = Console(width=PLAIN_WIDTH)
    fast = level(64, (40_000, 20_000), (42_222, 19_999), (38_888, 21_111))
    with console.capture() as capture:
        console.print(app.table([fast]))
    assert len(capture.get().splitlines()) == 2, capture.get()
    assert "20000.0 (19444-21111)" in capture.get()


def test_refused_requests_are_told_of() -> None:
    full = Side((Window(2.0, 20, (), (), ("full", "the queue is full")),))
    levels = [level(1, (3, 2)), Level(16, full, Side((window(20),)))]
    assert refused(levels[:1]) == ""
    assert refused(levels) == (
        "requests that the server refused are left out (2 at 16 streams; the last: the queue is full): measure with"
        " fewer --streams, or when there is no other traffic"
    )


class Server:
    """Answers requests with two tokens each; refuses those whose numbers are in `refuses`, None: all."""

    def __init__(self, refuses: set[int] | None) -> None:
        self._refuses = refuses
        self.asked = 0
        self.served: set[object] = set()
        """Streams with an answer after the last refusal."""

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        self.asked += 1
        if self._refuses is None or self.asked in self._refuses:
            raise RequestRefusedError("request refused: the queue is full")
        await asyncio.sleep(0.02)
        yield Chunk("", ids=(1, 2), finish_reason="length")
        if self.asked > max(self._refuses):
            self.served.add(asyncio.current_task())


async def test_a_stream_that_is_refused_goes_on_with_its_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server({1, 4})

    async def time_is_over(streams: list[Any], **_: object) -> tuple[set[Any], set[Any]]:
        """When both streams went on, however long that takes here."""
        async with asyncio.timeout(60):
            while len(server.served) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return set(), set(streams)

    monkeypatch.setattr(load, "REFUSED_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(asyncio, "wait", time_is_over)
    found = await play(server, Load(["p"], Sampling(2), streams=2), 0.0, 600.0)  # type: ignore[arg-type]  # a fake
    assert found.refusals == ("request refused: the queue is full",) * 2
    assert len(found.completions) > 2


async def test_who_refuses_everything_is_not_measured() -> None:
    server = Server(None)
    with pytest.raises(RequestRefusedError, match="the queue is full"):
        await play(server, Load(["p"], Sampling(2), streams=3), 0.0, 60.0)  # type: ignore[arg-type]  # a fake
    assert server.asked == 3, "one a stream"


def measured_by(monkeypatch: pytest.MonkeyPatch, ended: bool = True) -> app.BenchmarkPlan:
    """A plan of two loads, of which the second is refused. `ended`: whether requests end at the first."""

    @contextlib.asynccontextmanager
    async def servers(*_: Any) -> AsyncIterator[tuple[None, None]]:
        yield None, None

    async def measure(_: None, __: None, plan: app.BenchmarkPlan, streams: int, *___: Any) -> Level:
        if streams == 4:
            raise RequestRefusedError("the pod is gone")
        return level(streams, (3, 2), ended=(ended, ended))

    monkeypatch.setattr(app, "_servers", servers)
    monkeypatch.setattr(app, "_level", measure)
    return app.BenchmarkPlan(["p"], Sampling(8), [1, 4], warm_up=0, seconds=1, repeats=1)


@pytest.mark.parametrize("name", ["-", "", "result.json"], ids=["JSON", "a table", "both"])
def test_what_was_measured_is_shown_though_the_rest_cannot_be(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plan, file = measured_by(monkeypatch), Path(name) if name == "-" else tmp_path / name if name else None
    with pytest.raises(RequestRefusedError):
        app.bench(Endpoint(url="x:1"), plan, app.Files(file, tmp_path / "result.svg"), no_color=True)
    shown = capsys.readouterr().out
    if name != "-":
        assert shown.splitlines()[1].split()[:4] == ["1", "1.5", "1.0", "1.50"]
    if file:
        found = json.loads(shown if name == "-" else file.read_text(encoding="utf-8"))
        assert [each["streams"] for each in found["levels"]] == [1]
        assert (found["judged"], found["levels"][0]["speculative"]["lowestTokensPerSecond"]) == (True, 1.5)
    assert "speculation pays at every load" in (tmp_path / "result.svg").read_text(encoding="utf-8")


SHAPES = "{http://www.w3.org/2000/svg}"


def drawn(levels: list[Level]) -> dict[tuple[str, str], list[float]]:
    """Heights of the circles, pixels from the top, by panel and color; all within the picture."""
    picture = ElementTree.fromstring(plot.svg(levels))
    width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
    found: dict[tuple[str, str], list[float]] = {}
    for each in picture.iter(f"{SHAPES}circle"):
        x, y = float(each.attrib["cx"]), float(each.attrib["cy"])
        assert 0 < x < width
        assert 0 < y < height
        found.setdefault(("tokens/s" if x < width / 2 else "speed-up", each.attrib["fill"]), []).append(y)
    return found


def test_the_picture_has_a_point_for_each_figure() -> None:
    heights = drawn([level(1, (30, 20), (40, 20)), level(4, (10, 20)), level(16, (10, 0))])
    ours, alone = heights["tokens/s", plot.SPECULATIVE], heights["tokens/s", plot.ALONE]
    assert ours[0] == pytest.approx(plot.TOP + plot.HEIGHT * (1 - 17.5 / 20)), "35 tokens in 2 s, of 20 at the top"
    assert ours[0] < alone[0], "more is higher"
    assert ours[1] > alone[1]
    assert len(alone) == 3
    faster, slower = heights["speed-up", plot.SPECULATIVE]  # none where the target alone made nothing
    assert faster < heights["speed-up", plot.ALONE][0] < slower


def test_the_picture_shows_the_spread_of_repeats() -> None:
    picture = ElementTree.fromstring(plot.svg([level(1, (30, 20), (40, 20))]))
    bars = [each.attrib for each in picture.iter(f"{SHAPES}line") if each.get("stroke") == plot.SPECULATIVE]
    assert [float(bar["y1"]) > float(bar["y2"]) for bar in bars] == [True, True], "from 15 to 20, from 1.5 to 2"


@pytest.mark.parametrize(
    "levels", [[level(1, (0, 0))], [level(64, (100_000, 3))], [level(n, (3, 2)) for n in range(1, 9)]]
)
def test_any_figures_can_be_drawn(levels: list[Level]) -> None:
    assert drawn(levels)


@pytest.mark.parametrize(("ended", "code"), [(True, 0), (False, 3)], ids=["a verdict", "none"])
def test_the_exit_code(ended: bool, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = replace(measured_by(monkeypatch, ended), streams=[1])
    assert app.bench(Endpoint(url="x:1"), plan, app.Files(), no_color=True) == code


@pytest.mark.parametrize(
    ("levels", "says"),
    [
        ([NOT_ALONE], "not recorded: the service of --against speculates too"),
        ([level(1, (3, 0))], "no tokens"),
    ],
    ids=["the other side speculates", "no tokens"],
)
async def test_what_says_nothing_of_speculation_is_not_recorded(
    levels: list[Level], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = record.ServedRevision({"metadata": {"name": "quick", "namespace": "demo", "uid": "u"}}, "0a1b")

    async def serving(*_: Any) -> record.ServedRevision:
        return measured

    monkeypatch.setattr(record, "serving", serving)
    with pytest.raises(ClusterError, match=says):
        await record.keep(measured, levels, "other")
