"""What is counted of requests, and the engine's state on the metrics page."""

import time

import numpy as np
import pytest

from support.serving.llmapi import HANGS, STREAM, Start, eventually
from tandem_serving.llmapi import service as services
from tandem_serving.llmapi.statistics import EngineState, Speculation


def test_the_canary_is_no_request_in_metrics(start: Start) -> None:
    site = start(canary=0.05)
    site.ask(b"xyz").wait()
    eventually(lambda: len(site.engine.calls) > 5, "canaries")
    assert all(call.prompt.sampling["max_tokens"] == 1 for call in site.engine.calls[1:])
    eventually(lambda: site.sink.values.get("tandem_prompt_tokens_total") == 3, "counted")
    assert site.sink.values["tandem_generation_tokens_total"] == 6
    assert site.sink.values.get("tandem_requests_running", 0) == 0


@pytest.mark.parametrize("speculates", [True, False])
def test_what_is_counted(start: Start, speculates: bool) -> None:
    site = start(speculates=speculates)
    site.ask(b"xyz", **STREAM).wait()
    expected = {
        "tandem_prompt_tokens_total": 3,
        "tandem_generation_tokens_total": 6,
        "tandem_time_to_first_token_seconds_count": 1,
        "tandem_inter_token_latency_seconds_count": 4,
        "tandem_request_latency_seconds_count": 1,
    }
    if speculates:
        expected |= {
            "tandem_spec_decode_num_drafts_total": 3,
            "tandem_spec_decode_num_accepted_tokens_total": 3,
        }
    eventually(lambda: expected.items() <= site.sink.values.items(), f"{expected} in {site.sink.values}")
    assert any("spec_decode" in name for name in site.sink.values) == speculates
    assert "tandem_spec_decode_num_draft_tokens_total" not in site.sink.values, "the engine does not tell"


def test_the_best_of_several_has_no_first_token(start: Start) -> None:
    site = start()
    site.ask(b"xyz", sampling_param_best_of=np.array([2], np.int32)).wait()
    eventually(lambda: site.sink.values.get("tandem_request_latency_seconds_count") == 1, "counted")
    assert "tandem_time_to_first_token_seconds_count" not in site.sink.values


def test_load_is_counted_by_what_the_engine_runs_at_once(start: Start) -> None:
    site = start(running=2, waiting=2)
    site.ask(HANGS, HANGS, HANGS)
    load = ("tandem_requests_running", "tandem_requests_waiting")
    eventually(lambda: [site.sink.values.get(name) for name in load] == [2, 1], "two run, one waits")


ACTIVE, BLOCKS, USED = (
    f"tandem_engine_{name}"
    for name in ("request_metrics active", "kv_cache_block_metrics max", "kv_cache_block_metrics used")
)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "STATE_SECONDS", 0.01)


@pytest.mark.usefixtures("soon")
def test_the_engine_s_state_is_told_while_sequences_run(start: Start) -> None:
    site = start()
    site.engine.reports = [
        lambda: EngineState(requests=9, blocks=40, used=30),
        lambda: EngineState(requests=2, blocks=40, used=12),
    ]
    time.sleep(1)
    assert ACTIVE not in site.sink.values, "nobody asked for anything yet"
    site.ask(HANGS, request_id="x")

    def shown() -> list[float | None]:
        return [site.sink.values.get(name) for name in (ACTIVE, BLOCKS, USED)]

    eventually(lambda: shown() == [2, 40, 12], "the latest iteration's")
    site.service.cancel("x")
    eventually(lambda: shown() == [0, 40, 0], "nothing is held any more")


@pytest.mark.usefixtures("soon")
def test_what_an_engine_counts_itself_is_added_up(start: Start) -> None:
    site = start(speculates=False)
    rounds = (Speculation(3, 12, (3, 2, 0, 0)), None, Speculation(2, 8, (1, 1, 1, 0)))
    counts = iter(
        EngineState(1, 40, 12, waiting=waiting, preemptions=1, speculation=told)
        for waiting, told in zip((0, 1, 1), rounds, strict=True)
    )
    site.engine.reports = [lambda: next(counts, EngineState(1, 40, 12, waiting=1))] * 3
    site.ask(HANGS, HANGS, request_id="x")
    expected = {
        "tandem_spec_decode_num_drafts_total": 5,
        "tandem_spec_decode_num_draft_tokens_total": 20,
        "tandem_spec_decode_num_accepted_tokens_total": 8,
        "tandem_spec_decode_num_accepted_tokens_per_pos_total": 8,
        "tandem_engine_preemptions_total": 3,
        "tandem_requests_running": 1,
        "tandem_requests_waiting": 1,
    }
    eventually(lambda: expected.items() <= site.sink.values.items(), f"{expected} in {site.sink.values}")


@pytest.mark.usefixtures("soon")
def test_statistics_that_fail_cost_nothing_else(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    site = start()
    site.engine.reports = [lambda: 1 / 0]  # type: ignore[list-item, return-value]
    site.ask(HANGS)
    eventually(lambda: "the engine's state is not reported any more" in caplog.text, "noticed")
    assert site.ask(b"x").wait().chunks[-1].finish_reason == "length"
    assert site.service.healthy
    site.engine.reports = [lambda: EngineState(requests=2, blocks=40, used=12)]
    eventually(lambda: site.sink.values.get(ACTIVE) == 2, "it is told again once it can be")
