"""Volumes of a server's pod, and where its container mounts them."""

import pytest

from support.pods import rendered
from tandem.api.folders import folders
from tandem.api.roles import Role
from tandem.render.v1.pod import server_pod
from tandem.render.v1.volumes import OWN_PATHS, OWN_VOLUMES, mounts, uses_cache, volumes


@pytest.mark.parametrize(
    ("spec", "wanted", "reason"),
    [
        ("{}", False, "a model in the image, by the LLM API"),
        ("target: {model: {uri: gs://bucket/model}}", True, "a download"),
        ("runtime: {mode: BLS}", True, "an engine to build"),
        (
            "{runtime: {mode: BLS}, target: {engine: {prebuilt: {uri: pvc://engines/x}}}}",
            False,
            "an engine brought along",
        ),
        (
            "{runtime: {mode: BLS}, target: {engine: {prebuilt: {uri: hf://org/engine}}}}",
            True,
            "an engine to download",
        ),
    ],
)
def test_the_cache_is_there_when_something_is_put_into_it(spec: str, wanted: bool, reason: str) -> None:
    asked = rendered(spec)
    assert uses_cache(asked.spec, asked.engine) is wanted, reason
    assert ("cache" in {volume["name"] for volume in volumes(asked.spec, asked.engine)}) is wanted
    found = [mount for mount in mounts(asked.spec, asked.engine, cache_writable=True) if mount["name"] == "cache"]
    assert found == ([{"name": "cache", "mountPath": "/cache"}] if wanted else [])


def test_every_volume_is_reserved_for_us_and_mounted() -> None:
    spec = rendered("""
    runtime: {mode: LLMAPI}
    target: {model: {uri: pvc://models/x}, tensorParallelSize: 16}
    draft: {model: {uri: hf://org/draft}}
    speculation: {decodingType: UserProvided, userProvided: {entryPoint: "mine:make", configMapName: mine}}
    serving: {openAI: {enabled: true, apiKeySecret: keys, tlsSecret: certificate}}
    """)
    pod = server_pod(spec)
    added_by_the_builder = {"revision", "ssh"}
    of_the_endpoint = {"api-keys", "tls"}
    named = {volume["name"] for volume in pod["volumes"]} | added_by_the_builder
    assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == named - of_the_endpoint
    assert {mount["name"] for mount in pod["containers"][1]["volumeMounts"]} == {"tokenizer", *of_the_endpoint}
    assert named - {"source-target"} == set(OWN_VOLUMES)
    paths = {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert paths - {"/sources/target"} == set(OWN_PATHS) - {"/sources"}


COMMIT = "0e9e39f249a16976918f6564b8830bc894c89659"
CLAIMS = [
    # path in the claim, what is mounted of it, the model's folder, why
    ("", None, "/sources/target", "all of it"),
    ("/llm/70b/", "llm/70b", "/sources/target", "a folder"),
    (
        f"/hub/models--org--name/snapshots/{COMMIT}",
        "hub/models--org--name",
        f"/sources/target/snapshots/{COMMIT}",
        "a snapshot of a Hub cache, whose files are links to its blobs",
    ),
    (
        f"/models--org--name/snapshots/{COMMIT}/heads",
        "models--org--name",
        f"/sources/target/snapshots/{COMMIT}/heads",
        "a folder in a snapshot, the cache at the claim's top",
    ),
    ("/models--org--name", "models--org--name", "/sources/target", "a repository: the preflight names its snapshots"),
    ("/a/snapshots/b", "a/snapshots/b", "/sources/target", "no Hub cache"),
]


@pytest.mark.parametrize(("path", "mounted", "folder", "reason"), CLAIMS, ids=[row[3] for row in CLAIMS])
def test_what_is_mounted_of_a_claim(path: str, mounted: str | None, folder: str, reason: str) -> None:
    asked = rendered(f"{{target: {{model: {{uri: 'pvc://models{path}'}}}}}}")
    (mount,) = (each for each in mounts(asked.spec, asked.engine) if each["name"] == "source-target")
    assert (mount["mountPath"], mount.get("subPath"), mount["readOnly"]) == ("/sources/target", mounted, True), reason
    assert folders(asked.spec, {}) == {Role.TARGET: folder}, reason
