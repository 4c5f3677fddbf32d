"""The real huggingface_hub against a server that speaks the Hub's protocol, the fetcher killed and hindered."""

import json
import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.ports import free_port
from fetcher.conftest import FETCHED, MODEL, WEIGHTS, Fetcher
from fetcher.hub_server import HubServer

LARGE = "model-00001-of-00002.safetensors"
LIMIT = 500_000
"""Bytes a second of each file where a test needs time: six seconds for the weights."""


@pytest.fixture
def fetcher(tmp_path: Path, hub: HubServer) -> Fetcher:
    return Fetcher(tmp_path, {"HF_ENDPOINT": hub.url})


REFUSALS = [
    # faults, token, arguments, reason, status, exit code, part of the message
    # This one pauses for half a minute between its tries: it comes first, and others run meanwhile.
    (
        {"cdn_status": 403},
        "",
        [f"hf://{MODEL}"],
        "SourceUnavailable",
        "Unknown",
        1,
        "sends downloads, answers HTTP 403",
    ),
    ({}, "", ["hf://acme/none"], "ModelNotFound", "False", 0, "there is no acme/none that this token may see"),
    ({}, "hf_good", ["hf://acme/none"], "ModelNotFound", "False", 0, "correct the URI"),
    ({}, "", [f"hf://{MODEL}/none"], "ModelNotFound", "False", 0, "has no none at revision"),
    ({}, "", [f"hf://{MODEL}", "--revision", "v9"], "RevisionNotFound", "False", 0, "has no revision 'v9'"),
    ({}, "hf_bad", [f"hf://{MODEL}"], "TokenInvalid", "False", 0, "refuses the token"),
    ({"private": [MODEL]}, "", [f"hf://{MODEL}"], "ModelNotFound", "False", 0, "HF_TOKEN"),
    ({"gated": [MODEL]}, "", [f"hf://{MODEL}"], "TokenNeeded", "False", 0, "is gated: accept its terms at http"),
    ({"gated": [MODEL]}, "hf_outsider", [f"hf://{MODEL}"], "AccessDenied", "False", 0, "has no access: ask for it"),
    ({}, "", [f"hf://{MODEL}/onnx"], "NoWeights", "False", 0, "no *.safetensors"),
    ({}, "", [f"hf://{MODEL}", "--allow", "*.bin"], "NoWeights", "False", 0, "no file matches *.bin"),
    ({"extra_names": ["../../etc/x.json"]}, "", [f"hf://{MODEL}"], "UnsafeFileName", "False", 0, "../../etc/x.json"),
    ({"extra_names": ["/etc/x.json"]}, "", [f"hf://{MODEL}"], "UnsafeFileName", "False", 0, "'/etc/x.json'"),
    ({"status": 200}, "", [f"hf://{MODEL}"], "SourceUnavailable", "Unknown", 1, "does not answer as a Hub does"),
    ({"status": 418}, "", [f"hf://{MODEL}"], "SourceUnavailable", "Unknown", 1, "answers HTTP 418"),
    (
        {"status": 429},
        "",
        [f"hf://{MODEL}"],
        "SourceUnavailable",
        "Unknown",
        1,
        "make a Secret with the key HF_TOKEN, and write its name in the model's secretName",
    ),
    (
        {"status": 429},
        "hf_good",
        [f"hf://{MODEL}"],
        "SourceUnavailable",
        "Unknown",
        1,
        "too many requests with this token (HTTP 429): try again later",
    ),
    ({}, "", ["hf://acme"], "InvalidUri", "False", 0, "hf://org/name"),
]


@pytest.mark.parametrize(("faults", "token", "arguments", "reason", "status", "code", "message"), REFUSALS)
def test_refused(
    hub: HubServer,
    fetcher: Fetcher,
    faults: dict[str, object],
    token: str,
    arguments: list[str],
    reason: str,
    status: str,
    code: int,
    message: str,
) -> None:
    for name, value in faults.items():
        setattr(hub.faults, name, value)
    fetcher.env |= {"HF_TOKEN": token} if token else {}
    result = fetcher.fetch(*arguments)
    assert (result.reason, result.check["status"], result.code) == (reason, status, code)
    assert message in result.check["message"]
    assert "\n" not in result.check["message"]
    assert not re.search("signature|hf_good|hf_bad|hf_outsider", json.dumps(result.verdict) + result.log)
    assert not list(fetcher.work.rglob("x.json"))


def test_a_model_is_fetched_as_serving_needs_it(hub: HubServer, fetcher: Fetcher, model: Path) -> None:
    result = fetcher.fetch()
    assert (result.code, result.check["status"], result.reason) == (0, "True", "Fetched")
    assert fetcher.names(result) == FETCHED
    folder = fetcher.cache / result.verdict["path"]
    assert all((folder / name).read_bytes() == (model / name).read_bytes() for name in FETCHED)
    assert result.verdict["revision"] == hub.commit(MODEL)
    assert result.verdict["files"] == len(FETCHED)
    assert result.verdict["bytes"] == sum((folder / name).stat().st_size for name in FETCHED)
    assert not (folder / ".partial").exists()


def test_the_manifest_lists_the_files_with_their_digests(hub: HubServer, fetcher: Fetcher) -> None:
    result = fetcher.fetch()
    manifest = json.loads((fetcher.cache / result.verdict["path"] / ".complete").read_text())
    listed = {file.path: file for file in hub.files(MODEL)}
    assert [manifest["uri"], manifest["revision"]] == [f"hf://{MODEL}", hub.commit(MODEL)]
    assert {file["name"]: file["digest"] for file in manifest["files"]} == {
        name: f"sha256:{listed[name].sha256}" if listed[name].lfs else f"git-blob:{listed[name].blob}"
        for name in FETCHED
    }


def test_resolve_pins_a_branch_and_fetches_nothing(hub: HubServer, fetcher: Fetcher) -> None:
    resolved = fetcher.run("resolve", f"hf://{MODEL}", "--revision", "main")
    assert (resolved.code, resolved.check["status"], resolved.reason) == (0, "Unknown", "RevisionResolved")
    assert resolved.verdict["revision"] == hub.commit(MODEL)
    assert not hub.sent
    fetched = fetcher.fetch(f"hf://{MODEL}", "--revision", resolved.verdict["revision"])
    assert {**fetched.verdict, "checks": []} == {**resolved.verdict, "checks": []}, "same path, bytes and files"


def test_what_is_complete_is_served_without_the_hub(hub: HubServer, fetcher: Fetcher) -> None:
    first = fetcher.fetch()
    hub.shutdown()
    hub.server_close()
    again = fetcher.fetch(f"hf://{MODEL}", "--revision", first.verdict["revision"])
    assert (again.code, again.reason) == (0, "Cached")
    assert {**again.verdict, "checks": []} == {**first.verdict, "checks": []}


def test_a_moved_branch_is_another_folder(hub: HubServer, fetcher: Fetcher, model: Path) -> None:
    first = fetcher.fetch()
    (model / "config.json").write_bytes(b'{"vocab_size": 301}')
    second = fetcher.fetch()
    assert second.reason == "Fetched"
    assert second.verdict["path"] != first.verdict["path"]
    assert (fetcher.cache / first.verdict["path"] / "config.json").read_bytes() == b'{"vocab_size": 300}'


def test_killed_midway_it_goes_on_where_it_ended(hub: HubServer, fetcher: Fetcher) -> None:
    hub.faults.bytes_per_second = LIMIT
    process = fetcher.start("fetch", f"hf://{MODEL}")
    fetcher.wait_for_bytes(2 * WEIGHTS / 3)
    fetcher.kill(process)
    kept = fetcher.cached_bytes()
    assert kept > WEIGHTS / 4
    assert not list(fetcher.cache.rglob(".complete"))
    hub.sent.clear()
    hub.faults.bytes_per_second = 0
    result = fetcher.fetch()
    assert result.reason == "Fetched"
    # What the killed one had is not asked for again: the small files, and the weights up to where they ended.
    # A few blocks more: the server may have sent them to the one that was dead.
    assert hub.sent.total() <= 2 * WEIGHTS - kept + 4 * 65_536
    assert set(hub.sent) == {f"{MODEL}/{name}" for name in FETCHED if "-of-" in name}


def test_killed_again_and_again_it_arrives(hub: HubServer, fetcher: Fetcher) -> None:
    hub.faults.bytes_per_second = LIMIT
    for share in (0.2, 0.4, 0.6, 0.8):
        process = fetcher.start("fetch", f"hf://{MODEL}")
        fetcher.wait_for_bytes(2 * WEIGHTS * share)
        fetcher.kill(process)
    hub.faults.bytes_per_second = 0
    assert fetcher.fetch().reason == "Fetched"
    total = sum(len(file.content) for file in hub.files(MODEL) if file.path in FETCHED)
    # Each kill costs what was on the wire, in sockets and in one block of the two large files.
    assert hub.sent.total() < 2 * total


def test_a_pod_that_must_stop_says_so(hub: HubServer, fetcher: Fetcher, tmp_path: Path) -> None:
    hub.faults.bytes_per_second = LIMIT
    message = tmp_path / "termination-log"
    process = fetcher.start("fetch", f"hf://{MODEL}", "--termination-log", str(message))
    fetcher.wait_for_bytes(WEIGHTS / 4)
    process.send_signal(signal.SIGTERM)
    result = fetcher.end(process)
    assert (result.code, result.check["status"], result.reason) == (1, "Unknown", "Interrupted")
    assert json.loads(message.read_text()) == result.verdict


def test_broken_connections_are_resumed_within_a_run(hub: HubServer, fetcher: Fetcher) -> None:
    hub.faults.cut_after = WEIGHTS * 2 // 3
    result = fetcher.fetch()
    assert result.reason == "Fetched"
    assert "trying again" in result.log
    assert hub.sent.total() < 1.2 * result.verdict["bytes"]


def test_a_server_without_ranges_is_read_from_the_start(hub: HubServer, fetcher: Fetcher) -> None:
    hub.faults.bytes_per_second = LIMIT
    process = fetcher.start("fetch", f"hf://{MODEL}")
    fetcher.wait_for_bytes(WEIGHTS / 4)
    fetcher.kill(process)
    hub.faults.bytes_per_second, hub.faults.ranges = 0, False
    assert fetcher.fetch().reason == "Fetched"


def test_a_damaged_file_is_fetched_again(hub: HubServer, fetcher: Fetcher, model: Path) -> None:
    hub.faults.corrupt, hub.faults.corrupt_times = [LARGE], 1
    result = fetcher.fetch()
    assert result.reason == "Fetched"
    assert f"{LARGE}: the digest is" in result.log
    assert (fetcher.cache / result.verdict["path"] / LARGE).read_bytes() == (model / LARGE).read_bytes()


@pytest.mark.parametrize("name", [LARGE, "config.json"], ids=["LFS object", "git blob"])
def test_a_file_damaged_twice_is_refused_by_name(hub: HubServer, fetcher: Fetcher, name: str) -> None:
    hub.faults.corrupt = [name]
    result = fetcher.fetch()
    assert (result.code, result.check["status"], result.reason) == (0, "False", "ChecksumMismatch")
    assert name in result.check["message"]
    assert not list(fetcher.cache.rglob(".complete"))
    hub.faults.corrupt = []
    assert fetcher.fetch().reason == "Fetched", "nothing of the damaged file was kept"


def test_a_partial_file_that_went_bad_is_found_out(hub: HubServer, fetcher: Fetcher) -> None:
    hub.faults.bytes_per_second = LIMIT
    process = fetcher.start("fetch", f"hf://{MODEL}")
    fetcher.wait_for_bytes(WEIGHTS / 4)
    fetcher.kill(process)
    hub.faults.bytes_per_second = 0
    (partial,) = fetcher.cache.rglob(f".partial/{LARGE}")
    partial.write_bytes(bytes(partial.stat().st_size))  # as after a power cut
    result = fetcher.fetch()
    assert result.reason == "Fetched"
    assert "fetching it again" in result.log


def second_waits(hub: HubServer, fetcher: Fetcher) -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
    """Two fetchers of the same model: the first, stopped midway, and the second, which says that it waits."""
    hub.faults.bytes_per_second = LIMIT
    first = fetcher.start("fetch", f"hf://{MODEL}")
    fetcher.wait_for_bytes(WEIGHTS / 4)
    first.send_signal(signal.SIGSTOP)
    second = fetcher.start("fetch", f"hf://{MODEL}")
    assert second.stderr is not None
    assert any("another pod fetches the same model" in line for line in second.stderr)
    return first, second


def test_two_at_once_fetch_once(hub: HubServer, fetcher: Fetcher) -> None:
    first, second = second_waits(hub, fetcher)
    first.send_signal(signal.SIGCONT)
    hub.faults.bytes_per_second = 0
    results = [fetcher.end(first), fetcher.end(second)]
    assert [result.reason for result in results] == ["Fetched", "Cached"]
    assert hub.sent.total() == results[0].verdict["bytes"]


def test_the_one_that_waits_takes_over_from_a_killed_one(hub: HubServer, fetcher: Fetcher) -> None:
    first, second = second_waits(hub, fetcher)
    fetcher.kill(first)
    hub.sent.clear()
    kept, hub.faults.bytes_per_second = fetcher.cached_bytes(), 0
    assert fetcher.end(second).reason == "Fetched"
    assert hub.sent.total() <= 2 * WEIGHTS - kept + 4 * 65_536


def test_an_unreachable_hub_is_worth_another_try(fetcher: Fetcher) -> None:
    fetcher.env["HF_ENDPOINT"] = "http://127.0.0.1:9"
    result = fetcher.fetch()
    assert (result.code, result.check["status"], result.reason) == (1, "Unknown", "SourceUnavailable")
    assert (
        "http://127.0.0.1:9 cannot be reached: check the network; or correct HF_ENDPOINT" in result.check["message"]
    )


def test_a_secret_whose_values_end_with_a_line_break(hub: HubServer, fetcher: Fetcher) -> None:
    hub.faults.gated = [MODEL]
    fetcher.env = {"HF_ENDPOINT": f"{hub.url}\n", "HF_TOKEN": "hf_good\n"}
    result = fetcher.fetch()
    assert (result.code, result.reason) == (0, "Fetched"), result.log


def test_the_token_opens_and_never_goes_to_the_cdn(hub: HubServer, fetcher: Fetcher) -> None:
    hub.faults.gated = [MODEL]
    fetcher.env["HF_TOKEN"] = "hf_good"
    assert fetcher.fetch().reason == "Fetched"
    cdn = [headers for path, headers in hub.requests if path.startswith("/_cdn/")]
    assert cdn
    assert not any("authorization" in headers for headers in cdn)


def test_a_subfolder_is_a_model_of_its_own(hub: HubServer, fetcher: Fetcher, model: Path) -> None:
    (model / "heads").mkdir()
    (model / "heads" / "model.safetensors").write_bytes(b"\0" * 100)
    (model / "heads" / "config.json").write_bytes(b"{}")
    assert fetcher.names(fetcher.fetch(f"hf://{MODEL}/heads")) == ["config.json", "model.safetensors"]


def test_progress_is_answered_while_it_fetches(hub: HubServer, fetcher: Fetcher) -> None:
    hub.faults.bytes_per_second = LIMIT
    port = free_port()
    process = fetcher.start("fetch", f"hf://{MODEL}", "--port", str(port))
    fetcher.wait_for_bytes(WEIGHTS / 4)
    cached = fetcher.cached_bytes()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/progress") as response:
        progress = json.load(response)
    hub.faults.bytes_per_second = 0
    result = fetcher.end(process)
    assert progress["phase"] == "Fetching"
    assert cached / 2 < progress["bytes"] < progress["total"] == result.verdict["bytes"]
    assert progress["files"] < progress["totalFiles"] == len(FETCHED)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A cache volume of 4 MB, where the tests run as root."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    folder = tmp_path / "cache"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_volume_that_is_too_small_is_found_out_first(hub: HubServer, fetcher: Fetcher, small_disk: Path) -> None:
    result = fetcher.fetch()
    assert (result.code, result.check["status"], result.reason) == (0, "False", "DiskFull")
    (missing, need, free) = map(int, re.findall(r"([0-9]+) (?:bytes|more|are)", result.check["message"]))
    assert (need, missing) == (result.verdict["bytes"], need - free)
    assert not hub.sent


def test_a_volume_that_fills_up_meanwhile_says_so(hub: HubServer, fetcher: Fetcher, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    hub.faults.bytes_per_second = LIMIT
    process = fetcher.start("fetch", f"hf://{MODEL}")
    fetcher.wait_for_bytes(WEIGHTS / 4)
    (small_disk / "another").write_bytes(bytes(5_000_000))
    hub.faults.bytes_per_second = 0
    result = fetcher.end(process)
    assert (result.code, result.reason) == (0, "DiskFull")
    assert "the cache volume is full" in result.check["message"]


def test_a_read_only_volume(hub: HubServer, fetcher: Fetcher, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    result = fetcher.fetch()
    assert (result.code, result.reason) == (0, "CacheReadOnly")
    assert "mount it writable" in result.check["message"]
