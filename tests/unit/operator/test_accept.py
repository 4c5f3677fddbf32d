"""Specs that need the operator's settings to judge, and the settings themselves."""

from pathlib import Path

import pytest

from tandem.accept import Accepted, Refusal, accept
from tandem.errors import SettingsError
from tandem.settings import Settings, load_settings

from .conftest import QUICKSTART, parse

ROWS = [
    ({"runtime__profile": "nope"}, "UnknownProfile", "write one of: reference"),
    ({"runtime__profile": "trtllm-1.3"}, "ModeNotInProfile", "write runtime.mode: LLMAPI"),
    ({"target__tensorParallelSize": 2}, "TensorParallelNotInProfile", "target.tensorParallelSize is 2"),
    ({"draft__tensorParallelSize": 2}, "TensorParallelNotInProfile", "draft.tensorParallelSize is 2"),
]


@pytest.mark.parametrize(("change", "reason", "message"), ROWS, ids=[row[1] for row in ROWS])
def test_refused(change: dict[str, object], reason: str, message: str, settings: Settings) -> None:
    refusal = accept(parse(QUICKSTART, **change).spec, settings)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == reason
    assert message in refusal.message


def test_a_decoding_type_that_the_profile_lacks(settings: Settings) -> None:
    profile = settings.profiles[0].model_copy(update={"decoding_types": {}})
    narrow = settings.model_copy(update={"profiles": [profile]})
    refusal = accept(parse(QUICKSTART).spec, narrow)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "DecodingTypeNotInProfile"


def test_accepted(settings: Settings) -> None:
    profile = settings.profile("reference")
    assert profile is not None
    assert accept(parse(QUICKSTART).spec, settings) == Accepted(profile)


def write(folder: Path, text: str) -> Path:
    path = folder / "settings.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_profile_of_the_file_is_merged_over_the_shipped_one(tmp_path: Path) -> None:
    path = write(tmp_path, "profiles: [{name: reference, image: own/reference:1}]")
    profile = load_settings(path).profile("reference")
    shipped = load_settings().profile("reference")
    assert profile is not None
    assert shipped is not None
    assert profile == shipped.model_copy(update={"image": "own/reference:1"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "cannot read settings"),
        ("- 1", "expected a mapping"),
        ("workres: 3", "workres: Extra inputs"),
        ("workers: 0", "workers: Input should be greater"),
        ("profiles: [{name: own}]", "profiles.3.modes: Field required"),
        ("profiles: [3]", "profiles.3"),
        ("lease: {renewSeconds: 6}", "above a third of durationSeconds 15"),
    ],
)
def test_wrong_settings_say_what_is_wrong(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=message):
        load_settings(write(tmp_path, text))


def test_missing_settings_file(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot read settings"):
        load_settings(tmp_path / "none.yaml")
