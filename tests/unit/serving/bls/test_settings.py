import math
from pathlib import Path

import pytest

from tandem_serving.bls.settings import read
from tandem_serving.parameters import ParameterError

LEAST = {
    **{f"tensorrt_llm_{what}_name": what for what in ("model", "collector", "streams")},
    **{"tokenizer_dir": "/t", "target_model_path": "/m"},
}


def test_defaults_without_a_draft() -> None:
    settings = read(LEAST)
    assert (settings.draft_model, settings.draft_path, settings.max_draft_len) == ("", None, 0)
    assert (settings.request_timeout, settings.draft_timeout, settings.queue_timeout) == (600, 10, math.inf)
    assert (settings.running, settings.waiting, settings.mix_seed) == (64, 1024, False)
    assert (settings.use_draft_logits, settings.acceptance_threshold) == (False, None)


def test_all() -> None:
    draft = {"tensorrt_llm_draft_model_name": "draft", "draft_model_path": "/d", "max_draft_len": "4"}
    draft["tensorrt_llm_draft_collector_name"] = "rows"
    times = {"draft_timeout_seconds": "0.5", "queue_timeout_seconds": "0.9"}
    settings = read(LEAST | draft | times | {"mix_seed": "true"})
    assert (settings.draft_path, settings.max_draft_len) == (Path("/d"), 4)
    assert (settings.draft_timeout, settings.queue_timeout, settings.mix_seed) == (0.5, 0.9, True)


def test_the_canary() -> None:
    assert read(LEAST).canary_seconds == 3
    assert read(LEAST | {"canary_seconds": "0"}).canary_seconds == 0
    with pytest.raises(ParameterError, match=r"canary_seconds in config\.pbtxt is -1: write 0 or more"):
        read(LEAST | {"canary_seconds": "-1"})


def test_a_request_outlasts_two_drafts_that_never_come() -> None:
    assert read(LEAST | {"request_timeout_seconds": "8"}).draft_timeout == 2
    assert read(LEAST | {"request_timeout_seconds": "8", "draft_timeout_seconds": "0.5"}).draft_timeout == 0.5


def test_acceptance_by_logits() -> None:
    settings = read(LEAST | {"use_draft_logits": "true", "draft_acceptance_threshold": "0.0"})
    assert (settings.use_draft_logits, settings.acceptance_threshold, settings.fast_logits) == (True, 0.0, False)
    assert read(LEAST | {"fast_logits": "true"}).fast_logits


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer_dir": ""}, "parameter tokenizer_dir is missing"),
        (
            {"tensorrt_llm_draft_model_name": "d", "tensorrt_llm_draft_collector_name": "c"},
            "draft_model_path is missing",
        ),
        ({"max_draft_len": "four"}, "max_draft_len in config.pbtxt is 'four': write a number"),
        ({"max_draft_len": "-1"}, "max_draft_len in config.pbtxt is -1: write 0 or more"),
        ({"max_running_sequences": "0"}, "write 1 or more"),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        read(LEAST | changes)
