"""`tandem conformance` against the real Triton server in both modes: verified, and broken as the engine breaks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tandem.client.conformance.cases import CASES
from triton import bls_client as bls
from triton import llmapi_client
from triton.bls_client import PAIR
from triton.faults.engine_faults import ACCEPTS, FAILS
from triton.harness import Options, TritonServer
from triton.target_alone import conformance

DRAFT = {"decoding_type": "Draft_Target", "max_draft_len": 4, "speculative_model": str(PAIR / "draft")}


@pytest.fixture(scope="module")
def target_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """A server of mode BLS, without faults."""
    folder = tmp_path_factory.mktemp("alone")
    with TritonServer(bls.repository(folder, "reference", max_draft_len=4, max_engine_rows=64)) as server:
        yield server


@pytest.fixture(scope="module")
def llmapi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TritonServer, Path]]:
    """A server of mode LLMAPI, and the file by which its engine fails."""
    folder = tmp_path_factory.mktemp("llmapi")
    arguments = {"speculative_config": DRAFT, "max_batch_size": 16}
    made = llmapi_client.repository(folder / "models", arguments, engine="Tandem")
    (folder / "faults").mkdir()
    with TritonServer(made, Options(env={}, faults=folder / "faults")) as server:
        yield server, folder / "faults/tensorrt_llm_stream"


def test_mode_bls_is_verified(target_alone: TritonServer, tmp_path: Path) -> None:
    code, found = conformance(tmp_path / "report", "--url", target_alone.grpc_url, "--minutes", "0.01")
    assert {name: case["outcome"] for name, case in found.items()} == {
        **dict.fromkeys([*CASES, "soak"], "verified"),
        "health": "not applicable",
        "parameter-min_p": "not applicable",  # mode BLS has no input for it
    }
    assert code == 0
    for name in ("exact-1", "exact-4", "exact-16", "mixed", "long"):
        assert found[name]["figures"]["nearTies"] == 0, "the reference engine is exact"
        assert found[name]["figures"]["meanAcceptedLength"] > 1
    assert found["long"]["figures"]["limit"] == 2048
    assert found["long"]["figures"]["promptTokens"] > 0.9 * 2048


def test_mode_llmapi_is_verified(
    target_alone: TritonServer, llmapi: tuple[TritonServer, Path], tmp_path: Path
) -> None:
    urls = ("--url", llmapi[0].grpc_url, "--against-url", target_alone.grpc_url)
    code, found = conformance(tmp_path / "report", *urls)
    assert {case["outcome"] for name, case in found.items() if name != "health"} == {"verified"}
    assert code == 0
    assert found["exact-16"]["detail"].endswith("as the target alone")


def test_mode_llmapi_without_the_target_alone(llmapi: tuple[TritonServer, Path], tmp_path: Path) -> None:
    cases = ("--case", "exact-1", "--case", "exact-4")
    code, found = conformance(tmp_path / "report", "--url", llmapi[0].grpc_url, *cases)
    assert code == 0
    assert found["exact-1"]["outcome"] == "not applicable"
    assert "give --against a service of decodingType None" in found["exact-1"]["detail"]
    assert (found["exact-4"]["outcome"], "one row at a time" in found["exact-4"]["detail"]) == ("verified", True)


BROKEN = [
    # how the engine breaks, what each case says of it
    (ACCEPTS, {"exact-1": "other tokens from token", "exact-4": "other tokens from token"}),
    # The last one: the canary may find it first, and end the model's process.
    (FAILS, {"exact-1": "request refused", "sampled": "request refused"}),
]


@pytest.mark.parametrize(("word", "says"), BROKEN, ids=[row[0] for row in BROKEN])
def test_an_engine_that_breaks_is_noticed(
    target_alone: TritonServer, llmapi: tuple[TritonServer, Path], tmp_path: Path, word: str, says: dict[str, str]
) -> None:
    server, fault = llmapi
    cases = [argument for name in says for argument in ("--case", name)]
    urls = ("--url", server.grpc_url, "--against-url", target_alone.grpc_url)
    fault.write_text(word)
    try:
        code, found = conformance(tmp_path / "report", *urls, *cases)
    finally:
        fault.unlink()
    assert code == 1
    for name, detail in says.items():
        assert (found[name]["outcome"], detail in found[name]["detail"]) == ("broke", True), found[name]
        assert found[name]["evidence"]
