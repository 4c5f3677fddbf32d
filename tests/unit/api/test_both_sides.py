"""What stands both here and in the images, whose programs cannot import it, is the same."""

from typing import get_args

import pytest

from tandem.api import bounds, ports
from tandem.api.decoding import DecodingType, Mode
from tandem.api.profile import Profile
from tandem.api.types import Source, Thinking
from tandem.api.types.service import ToolCalls
from tandem.cli.admission import ManifestProblem, problems, without_nulls
from tandem.engines import modes
from tandem.metrics.telemetry import families
from tandem.render.v1.openai import _thinking
from tandem.settings import shipped_profiles
from tandem_fetcher import cli as fetcher
from tandem_fetcher import uri as fetched
from tandem_fetcher.errors import FetchError
from tandem_serving.bls import settings
from tandem_serving.boot import entrypoint, mpi
from tandem_serving.llmapi import engines
from tandem_serving.llmapi.engines.tensorrt_llm.arguments import USER_PROVIDED
from tandem_serving.openai.thinking import Markers
from tandem_serving.openai.tool_calls import FORMATS
from tandem_serving.prepare import build_progress

PROFILES = [Profile.model_validate(each) for each in shipped_profiles()]
LLM_API = [profile for profile in PROFILES if Mode.LLMAPI in modes(profile)]
NEEDED = {
    "tensorrt_llm_model_name": "t",
    "tensorrt_llm_collector_name": "c",
    "tensorrt_llm_streams_name": "s",
    "tokenizer_dir": "/t",
    "target_model_path": "/t",
}


def test_the_startup_probe_asks_the_port_that_triton_listens_on() -> None:
    assert entrypoint._parser().parse_args(["probe"]).port == ports.HTTP


def test_the_openai_endpoint_asks_the_port_that_triton_listens_on() -> None:
    options = entrypoint._parser().parse_args(["openai", "--mode=BLS", "--name=m"])
    assert (options.port, options.triton_port, options.metrics_port) == (ports.OPENAI, ports.GRPC, ports.METRICS)


def test_the_openai_endpoint_takes_the_markers_that_a_service_may_name() -> None:
    rendered = _thinking(Thinking(begin="-<think>"))
    options = entrypoint._parser().parse_args(["openai", "--mode=BLS", "--name=m", *rendered])
    assert Markers(options.thinking_begin, options.thinking_end) == Markers("-<think>", "</think>")


def test_the_openai_endpoint_knows_the_formats_that_a_service_may_name() -> None:
    assert set(get_args(ToolCalls)) == set(FORMATS)


def test_ranks_of_a_group_are_reached_over_the_port_that_is_declared() -> None:
    assert mpi.PORT == ports.SSH
    assert entrypoint._parser().parse_args(["node"]).port == ports.RANKS


def test_the_fetcher_shows_its_progress_where_the_operator_asks() -> None:
    assert fetcher._parser().parse_args(["fetch", "--uri", "hf://a/b"]).port == ports.FETCH


def test_a_build_shows_its_progress_there_too() -> None:
    assert build_progress.PORT == ports.FETCH


def test_as_many_sequences_run_in_mode_bls() -> None:
    assert settings.read(NEEDED).running == bounds.BLS_SEQUENCES


def test_a_drafter_of_the_users_is_added_under_the_names_that_are_written() -> None:
    assert DecodingType.USER_PROVIDED.traits.upstream == USER_PROVIDED


@pytest.mark.parametrize("profile", LLM_API, ids=lambda profile: profile.name)
def test_the_image_knows_the_engine_of_each_profile(profile: Profile) -> None:
    assert profile.engine.kind in engines.ENGINES


def test_the_families_of_each_engine_s_state_are_read() -> None:
    for kind in map(engines.find, engines.ENGINES):
        assert {kind.families.requests.name, kind.families.kv_cache.name} <= families.ENGINE_LABELS.keys()


PATHS: list[tuple[str, bool, str]] = [
    # a path below a bucket, a repository or a claim; whether it is taken; why
    ("", True, "all of it"),
    ("llm", True, "a folder"),
    ("llm/Llama-3.3-70B_Instruct/", True, "a folder as consoles show it"),
    ("llm/v1=2/dt=2026-01-01", True, "partitions of a data lake"),
    (".cache/huggingface", True, "a hidden folder"),
    ("_staging/_tmp", True, "an underscore first"),
    ("-x/+y", True, "another sign first"),
    ("hub/models--org--name/snapshots/0a1b", True, "a Hub cache"),
    ("torch2.11.0+cu130", True, "a local version"),
    ("team@corp/llama:8b", True, "names of other tools"),
    ("a,b~c!(1)&d", True, "what consoles take"),
    ("My Models/Llama 3", True, "spaces between"),
    (" x", False, "a space first"),
    ("x /y", False, "a space last"),
    ("a//b", False, "an empty part"),
    ("/a", False, "an empty part first"),
    ("a//", False, "and last"),
    ("../a", False, "out of it"),
    ("a/..", False, "out of it at the end"),
    ("a/./b", False, "the same place"),
    ("a/.", False, "the same at the end"),
    ("...", True, "three dots are a name"),
    ("$(HF_TOKEN)", False, "a kubelet expands it in commands"),
    ("a$b", False, "the sign alone"),
    ("a;b", False, "a shell's"),
    ("a|b", False, "a shell's"),
    ("`a`", False, "a shell's"),
    ("a'b", False, "a quote"),
    ('a"b', False, "a quote"),
    ("a\\b", False, "a backslash"),
    ("a*", False, "a wildcard"),
    ("a?x=1", False, "a query"),
    ("a#b", False, "a fragment"),
    ("100%", False, "what may be escaped or not"),
    ("a\nb", False, "a line break"),
    ("a\tb", False, "a tab"),
    ("a\x00b", False, "a zero"),
]


@pytest.mark.parametrize("root", ["s3://bucket", "gs://bucket", "hf://org/name", "pvc://claim"])
@pytest.mark.parametrize(("path", "taken", "reason"), PATHS, ids=[row[2] for row in PATHS])
def test_paths_have_one_grammar(root: str, path: str, taken: bool, reason: str) -> None:
    """The resource's and the fetcher's; claims are mounted, so they have no fetcher."""
    text = f"{root}/{path}" if path else root
    assert (not refused(text)) == taken, reason
    if not root.startswith("pvc://"):
        assert downloads(text) == taken, reason


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("s3://b.2-x", True),
        ("s3://my_bucket/x", True),
        ("s3://-b/x", False),
        ("s3://b=1/x", False),
        ("s3://", False),
        ("hf://org", False),
        ("hf://org/name@v1", False),
        ("hf://_org/name", False),
        ("hf://org/name/heads@2", True),
    ],
)
def test_roots_have_one_grammar(text: str, taken: bool) -> None:
    assert (not refused(text), downloads(text)) == (taken, taken)


def refused(uri: str) -> list[ManifestProblem]:
    """What the resource's rules say of it."""
    spec = {
        "runtime": {"mode": "LLMAPI", "profile": "p"},
        "target": {"model": {"uri": uri}},
        "speculation": {"decodingType": "None"},
    }
    found = problems(without_nulls({"metadata": {"name": "x"}, "spec": spec}))
    rules = {rule.message for rule in Source.cel}
    return [each for each in found if each.path == ("spec", "target", "model") and each.message in rules]


def downloads(uri: str) -> bool:
    try:
        fetched.parse(uri)
    except FetchError:
        return False
    return True
