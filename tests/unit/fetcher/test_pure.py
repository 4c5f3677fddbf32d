"""URIs, which files are fetched, digests, the cache's folders, the verdict: no network."""

import hashlib
import json
import multiprocessing
import os
from pathlib import Path

import pytest

from tandem_fetcher import digests, verdict
from tandem_fetcher.buckets import without_folders
from tandem_fetcher.cache import CachedFile, Entry, Manifest, model_path
from tandem_fetcher.digests import Digest
from tandem_fetcher.errors import FetchError, Reason
from tandem_fetcher.selection import MAX_FILES, select
from tandem_fetcher.source import RemoteFile
from tandem_fetcher.uri import ModelUri, parse
from tandem_fetcher.verdict import Pinned

MIB = 1024 * 1024
COMMIT = "0" * 40

URIS = [
    ("hf://meta-llama/Llama-3.3-70B-Instruct", ModelUri("hf", "meta-llama/Llama-3.3-70B-Instruct", "")),
    ("hf://org/name/heads/eagle3/", ModelUri("hf", "org/name", "heads/eagle3")),
    ("s3://bucket", ModelUri("s3", "bucket", "")),
    ("s3://bucket/llm/v1=2", ModelUri("s3", "bucket", "llm/v1=2")),
    ("gs://bucket/a/b", ModelUri("gs", "bucket", "a/b")),
    ("s3://bucket/My Models/llama:8b@v2 (1)", ModelUri("s3", "bucket", "My Models/llama:8b@v2 (1)")),
]
BAD_URIS = [
    ("hf://org", "hf://org/name"),
    ("hf://org/name@v1", "`revision`"),
    ("hf://org//name", "names of repositories"),
    ("s3://", "names of repositories and buckets"),
    ("s3://-bucket/x", "names of repositories and buckets"),
    ("s3://bucket/../other", "parts of a path"),
    ("gs://bucket/.", "parts of a path"),
    ("s3://bucket/$(id)", "parts of a path"),
    ("hf://org/name?x=1", "names of repositories"),
    ("hf://org/na\nme", "names of repositories"),
    ("hf://org/name/a//b", "parts of a path"),
    ("pvc://claim/model", "are mounted"),
    ("https://example.org/model", "are mounted"),
    ("", "are mounted"),
    ("x" * 5000, "are mounted"),
]


@pytest.mark.parametrize(("text", "uri"), URIS)
def test_uri(text: str, uri: ModelUri) -> None:
    assert parse(text) == uri
    assert parse(str(uri)) == uri


@pytest.mark.parametrize(("text", "advice"), BAD_URIS)
def test_bad_uri(text: str, advice: str) -> None:
    with pytest.raises(FetchError) as caught:
        parse(text)
    assert caught.value.reason is Reason.INVALID_URI
    assert advice in str(caught.value)
    assert len(str(caught.value)) < 500


def remote(*names: str) -> list[RemoteFile]:
    return [RemoteFile(name, len(name), None) for name in names]


SELECTED = [
    # listed, patterns, chosen (smallest first), why
    (["config.json", "model.safetensors"], [], ["config.json", "model.safetensors"], "what serving reads"),
    (["a.safetensors", "modeling.py", "ext.so"], [], ["a.safetensors"], "code never"),
    (["a.safetensors", "x.py"], ["*"], ["a.safetensors"], "code never, whatever the patterns"),
    (["a.safetensors", "README.md", "LICENSE", "a.bin"], [], ["a.safetensors"], "neither prose nor pickles"),
    (["a.safetensors", "sub/config.json"], [], ["a.safetensors"], "the folder's own files alone"),
    (["sub/a.json", "b.json"], ["sub/*.json"], ["sub/a.json"], "a folder by its pattern"),
    (
        ["a.safetensors", ".hidden.json", ".git/x.json"],
        ["*", "*/*"],
        ["a.safetensors"],
        "no names of the cache's own",
    ),
    (["m.safetensors", "consolidated.safetensors"], [], ["m.safetensors"], "weights once"),
    (["consolidated.safetensors"], [], ["consolidated.safetensors"], "the only weights"),
    (["a.safetensors", "tokenizer.model.v3"], [], ["a.safetensors", "tokenizer.model.v3"], "every tokenizer"),
    (["m.bin"], ["*.bin"], ["m.bin"], "pickles when they are asked for"),
    (
        ["m.bin", "b.safetensors"],
        ["*.safetensors", "*.bin"],
        ["b.safetensors"],
        "pickles where there is nothing else",
    ),
    (
        [
            *("pytorch_model.bin", "training_args.bin", "optimizer.bin", "optimizer_1.pt", "scheduler.bin"),
            *("sampler.bin", "scaler.pt", "rng_state_0.pth", "random_states_0.pkl", "trainer_state.json"),
        ],
        ["*"],
        ["pytorch_model.bin"],
        "no state of a training",
    ),
]


@pytest.mark.parametrize(("listed", "allow", "chosen", "why"), SELECTED, ids=[row[3] for row in SELECTED])
def test_select(listed: list[str], allow: list[str], chosen: list[str], why: str) -> None:
    assert [file.name for file in select(remote(*listed), allow)] == chosen


NOTHING = [
    (["config.json"], [], "no weights at all"),
    (["pytorch_model.bin", "config.json"], [], "only 'pytorch_model.bin' and the like"),
    (["heads/model.safetensors"], [], "weights only in heads): add that folder to the URI"),
    (["a.safetensors"], ["*.gguf"], "no file matches *.gguf"),
]


@pytest.mark.parametrize(("listed", "allow", "message"), NOTHING)
def test_no_weights(listed: list[str], allow: list[str], message: str) -> None:
    with pytest.raises(FetchError) as caught:
        select(remote(*listed), allow)
    assert caught.value.reason is Reason.NO_WEIGHTS
    assert message in str(caught.value)


HOSTILE = ["../x.json", "a/../x.json", "/etc/x", "a//b", "", ".", "a/.", "a\\..\\b", "a\nb", "a\0b", "x" * 300, "a/"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_leaves_the_cache_is_refused_even_when_it_is_not_wanted(name: str) -> None:
    with pytest.raises(FetchError) as caught:
        select(remote("model.safetensors", name))
    assert caught.value.reason is Reason.UNSAFE_FILE_NAME


@pytest.mark.parametrize(
    "files",
    [
        remote("a.safetensors", "a.safetensors"),
        [RemoteFile("a.safetensors", -1, None)],
        remote(*(f"{number}.safetensors" for number in range(MAX_FILES + 1))),
    ],
    ids=["twice", "negative size", "without end"],
)
def test_listings_that_make_no_sense_are_refused(files: list[RemoteFile]) -> None:
    with pytest.raises(FetchError) as caught:
        select(files)
    assert caught.value.reason is Reason.UNSAFE_FILE_NAME


def hexdigest(digest: Digest, data: bytes, step: int) -> str:
    hasher = digest.hasher(len(data))
    for start in range(0, len(data), step):
        hasher.update(data[start : start + step])
    return hasher.hexdigest()


def test_git_blob_is_what_git_says() -> None:
    # echo hello | git hash-object --stdin
    value = "ce013625030ba8dba906f756967f9e9ca394464a"
    assert hexdigest(digests.git_blob(value), b"hello\n", 1) == value


@pytest.mark.parametrize("step", [1000, 5 * MIB + 1, 50 * MIB], ids=["small", "across parts", "whole"])
def test_parts_are_hashed_whatever_the_blocks(step: int) -> None:
    data = os.urandom(20 * MIB + 1)
    parts = [hashlib.md5(data[start : start + 8 * MIB]).digest() for start in range(0, len(data), 8 * MIB)]
    etag = f"{hashlib.md5(b''.join(parts)).hexdigest()}-3"
    digest = digests.from_etag(f'"{etag}"', len(data))
    assert digest is not None
    assert hexdigest(digest, data, max(step, MIB)) == etag


MD5 = "d41d8cd98f00b204e9800998ecf8427e"
ETAGS = [
    (f'"{MD5}"', 0, "md5"),
    (MD5, 10, "md5"),
    (f'"{MD5}-3"', 20 * MIB, "md5-parts"),
    (f'"{MD5}-7"', 20 * MIB, None),  # no usual part size gives seven
    ('"CKih16GjycICEAE="', 10, None),  # Cloud Storage, composed of parts
    (None, 10, None),
]


@pytest.mark.parametrize(("etag", "size", "algorithm"), ETAGS)
def test_etags(etag: str | None, size: int, algorithm: str | None) -> None:
    digest = digests.from_etag(etag, size)
    assert (digest.algorithm if digest else None) == algorithm
    assert digest is None or not digest.certain


def test_the_folder_names_all_that_decides_its_content() -> None:
    uri = parse("hf://org/name")
    base = model_path(uri, COMMIT, [])
    assert base == "models/69a0785e07f77ecd7699614d4e06f013", "a change makes every cache fetch anew"
    assert base == model_path(parse("hf://org/name/"), COMMIT, [])
    assert model_path(uri, COMMIT, ["a", "b"]) == model_path(uri, COMMIT, ["b", "a"])
    others = [
        model_path(parse("hf://org/name/sub"), COMMIT, []),
        model_path(uri, "1" * 40, []),
        model_path(uri, COMMIT, ["*.bin"]),
    ]
    assert len({base, *others}) == 4


def test_the_manifest_is_there_all_at_once(tmp_path: Path) -> None:
    entry = Entry(tmp_path)
    assert entry.manifest() is None
    (tmp_path / "config.json").write_bytes(b"{}")
    manifest = Manifest("hf://org/name", COMMIT, (CachedFile("config.json", 2, "sha256:0"),))
    entry.complete(manifest)
    assert entry.manifest() == manifest
    assert manifest.size == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == [".complete", "config.json"]


LOST = [
    ("config.json", None, "a file is gone"),
    ("config.json", b"{", "a file is shorter"),
    (".complete", b"", "the marker is empty"),
    (".complete", b"{}", "the marker says nothing"),
    (".complete", b'{"uri": "", "revision": "", "files": [{"path": "a"}]}', "the marker is another version's"),
]


@pytest.mark.parametrize(("name", "content", "reason"), LOST, ids=[row[2] for row in LOST])
def test_a_folder_that_lost_something_is_not_complete(
    tmp_path: Path, name: str, content: bytes | None, reason: str
) -> None:
    entry = Entry(tmp_path)
    (tmp_path / "config.json").write_bytes(b"{}")
    entry.complete(Manifest("hf://org/name", COMMIT, (CachedFile("config.json", 2, ""),)))
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    assert entry.manifest() is None, reason


def hold(folder: Path, held: "multiprocessing.synchronize.Event") -> None:
    with Entry(folder).lock(waiting=lambda: None):
        held.set()
        multiprocessing.Event().wait()


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    holder = context.Process(target=hold, args=(tmp_path, held))
    holder.start()
    assert held.wait(60)
    with Entry(tmp_path).lock(waiting=holder.kill):
        assert holder.pid is not None
    holder.join()
    assert holder.exitcode == -9, "it was waited for, and killed then"


def test_the_verdict_fits_a_termination_message() -> None:
    error = FetchError(Reason.MODEL_NOT_FOUND, "ä\n" * 5000)
    text = verdict.failure(error, Pinned(COMMIT, model_path(parse("hf://org/name"), COMMIT, []), 10**15, 10_000))
    assert len(text.encode()) <= 4096
    assert "\n" not in json.loads(text)["checks"][0]["message"]


def test_passing_troubles_are_unknown_and_others_false() -> None:
    statuses = {
        reason: json.loads(verdict.failure(FetchError(reason, ""), Pinned()))["checks"][0]["status"]
        for reason in Reason
    }
    assert {reason for reason, status in statuses.items() if status == "Unknown"} == {
        Reason.SOURCE_UNAVAILABLE,
        Reason.SOURCE_CHANGED,
        Reason.CACHE_FAILED,
        Reason.INTERRUPTED,
    }
    assert set(statuses.values()) == {"Unknown", "False"}


FOLDERS = [
    ([("", 0), ("a.json", 2)], ["a.json"], "the model's own folder, made in the console"),
    ([("a", 0), ("a/b", 0), ("a/b/c.json", 2)], ["a/b/c.json"], "folders in it"),
    ([("a", 0), ("b.json", 2)], ["a", "b.json"], "an empty file, or a folder with nothing in it"),
    ([("a", 1), ("a/b", 2)], ["a", "a/b"], "no folder: it has content"),
]


@pytest.mark.parametrize(("listed", "files", "reason"), FOLDERS, ids=[row[2] for row in FOLDERS])
def test_objects_that_stand_for_folders(listed: list[tuple[str, int]], files: list[str], reason: str) -> None:
    assert [name for name, _, _ in without_folders([(name, size, None) for name, size in listed])] == files, reason
