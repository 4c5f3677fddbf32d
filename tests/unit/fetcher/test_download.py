"""Downloading: resumed, verified, bounded by the disk; the source is in memory."""

import errno
from pathlib import Path

import pytest

from tandem_fetcher.cache import Entry
from tandem_fetcher.download import RETRIES, Download
from tandem_fetcher.errors import FetchError, Reason, cache_error
from tandem_fetcher.progress import Progress
from unit.fetcher.memory_source import EtagSource, MemorySource

CONTENTS = {"a.json": b"{}", "b.safetensors": b"0123456789" * 10}


def download(source: MemorySource, folder: Path, free: int = 10**9) -> Progress:
    """Fetch everything; returns the counters at the end."""
    progress = Progress()
    Download(source, "0" * 40, Entry(folder), progress, backoff=0, free=lambda path: free).run(source.files(""))
    return progress


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_all_files_arrive_and_are_counted(tmp_path: Path) -> None:
    progress = download(MemorySource(CONTENTS), tmp_path)
    assert contents(tmp_path) == CONTENTS
    assert progress.as_json() == {"phase": "Fetching", "bytes": 102, "total": 102, "files": 2, "totalFiles": 2}


def test_a_partial_file_is_gone_on_with(tmp_path: Path) -> None:
    Entry(tmp_path).partial("b.safetensors").write_bytes(CONTENTS["b.safetensors"][:37])
    source = MemorySource(CONTENTS)
    assert download(source, tmp_path).done == 102
    assert ("b.safetensors", 37) in source.streams
    assert source.sent["b.safetensors"] == 63


def test_a_file_that_was_verified_is_not_fetched_again(tmp_path: Path) -> None:
    (tmp_path / "b.safetensors").write_bytes(CONTENTS["b.safetensors"])
    source = MemorySource(CONTENTS)
    assert download(source, tmp_path).done == 102
    assert source.streams == [("a.json", 0)]


def test_a_partial_file_that_is_too_long_begins_anew(tmp_path: Path) -> None:
    Entry(tmp_path).partial("b.safetensors").write_bytes(b"x" * 101)
    assert download(MemorySource(CONTENTS), tmp_path).done == 102
    assert contents(tmp_path) == CONTENTS


def test_more_than_was_listed_is_not_written(tmp_path: Path) -> None:
    source = MemorySource(CONTENTS)
    files = source.files("")
    source.contents = {name: data + b"more" for name, data in CONTENTS.items()}
    Download(source, "0" * 40, Entry(tmp_path), Progress(), backoff=0).run(files)
    assert contents(tmp_path) == CONTENTS


@pytest.mark.parametrize(
    ("refuse", "arrives"), [(RETRIES, True), (RETRIES + 1, False)], ids=["as often as it tries", "once more"]
)
def test_a_source_that_is_away_for_a_while(tmp_path: Path, refuse: int, arrives: bool) -> None:
    source = MemorySource({"b.safetensors": b"0123456789" * 10}, refuse=refuse)
    if arrives:
        download(source, tmp_path)
        assert contents(tmp_path) == source.contents
    else:
        with pytest.raises(FetchError, match="away") as caught:
            download(source, tmp_path)
        assert caught.value.passing


def test_failures_with_progress_between_them_are_not_counted_together(tmp_path: Path) -> None:
    source = MemorySource({"b.safetensors": b"0123456789" * 10}, cut=9)
    download(source, tmp_path)
    assert [offset for _, offset in source.streams] == list(range(0, 100, 10))


def test_what_is_denied_is_not_tried_again(tmp_path: Path) -> None:
    source = MemorySource(CONTENTS, fatal="a.json")
    with pytest.raises(FetchError) as caught:
        download(source, tmp_path)
    assert caught.value.reason is Reason.ACCESS_DENIED
    assert source.streams.count(("a.json", 0)) == 1


def test_what_is_denied_ends_the_tries_for_other_files(tmp_path: Path) -> None:
    source = MemorySource(CONTENTS, fatal="a.json", refuse=RETRIES + 1)
    with pytest.raises(FetchError) as caught:
        Download(source, "0" * 40, Entry(tmp_path), Progress(), backoff=0.5).run(source.files(""))
    assert caught.value.reason is Reason.ACCESS_DENIED
    assert source.streams.count(("b.safetensors", 0)) <= 1, "each can take minutes"


def test_a_damaged_file_is_fetched_again_once(tmp_path: Path) -> None:
    progress = download(MemorySource(CONTENTS, damage={"b.safetensors": 1}), tmp_path)
    assert contents(tmp_path) == CONTENTS
    assert progress.done == 102


def test_a_file_damaged_twice_is_refused_and_not_kept(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"b\.safetensors arrived damaged twice") as caught:
        download(MemorySource(CONTENTS, damage={"b.safetensors": 2}), tmp_path)
    assert caught.value.reason is Reason.CHECKSUM_MISMATCH
    assert not (tmp_path / "b.safetensors").exists()
    assert not Entry(tmp_path).partial("b.safetensors").exists()


def test_an_etag_that_is_no_digest_costs_one_second_download(tmp_path: Path) -> None:
    source = EtagSource(CONTENTS)
    Download(source, "0" * 40, Entry(tmp_path), Progress(), parallel=1).run(source.files(""))
    assert contents(tmp_path) == CONTENTS
    assert source.sent == {"a.json": 4, "b.safetensors": 100}, "only the first file comes twice"


def test_an_etag_is_believed_when_the_downloads_differ(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="arrived damaged twice"):
        download(EtagSource({"b.safetensors": b"0123456789"}, damage={"b.safetensors": 2}), tmp_path)


SPACE = [
    # bytes free, bytes of b.safetensors that are there, lacking
    (102, 0, None),
    (101, 0, 1),
    (2, 0, 100),
    (65, 37, None),
    (64, 37, 1),
    (2, 100, None),
]


@pytest.mark.parametrize(("free", "here", "lacking"), SPACE)
def test_space_is_checked_before_anything_is_asked_for(
    tmp_path: Path, free: int, here: int, lacking: int | None
) -> None:
    Entry(tmp_path).partial("b.safetensors").write_bytes(CONTENTS["b.safetensors"][:here])
    source = MemorySource(CONTENTS)
    if lacking is None:
        download(source, tmp_path, free)
        assert contents(tmp_path) == CONTENTS
        return
    with pytest.raises(FetchError, match=rf"lacks {lacking} bytes: the model needs {free + lacking} more") as caught:
        download(source, tmp_path, free)
    assert caught.value.reason is Reason.DISK_FULL
    assert source.streams == []


CACHE_ERRORS = [
    (errno.ENOSPC, Reason.DISK_FULL, False, "enlarge it"),
    (errno.EDQUOT, Reason.DISK_FULL, False, "enlarge it"),
    (errno.EROFS, Reason.CACHE_READ_ONLY, False, "mount it writable"),
    (errno.EACCES, Reason.CACHE_READ_ONLY, False, "fsGroup"),
    (errno.EIO, Reason.CACHE_FAILED, True, "look at its storage"),
]


@pytest.mark.parametrize(("number", "reason", "passing", "message"), CACHE_ERRORS)
def test_errors_of_the_volume(number: int, reason: Reason, passing: bool, message: str) -> None:
    error = cache_error(OSError(number, "as the kernel says"))
    assert (error.reason, error.passing) == (reason, passing)
    assert message in str(error)
