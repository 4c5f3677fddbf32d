"""Volumes of a server's pod, and where its container mounts them."""

import pytest

from support.pods import PROFILE, rendered
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
    assert uses_cache(asked.spec, PROFILE) is wanted, reason
    assert ("cache" in {volume["name"] for volume in volumes(asked.spec, PROFILE)}) is wanted
    found = [mount for mount in mounts(asked.spec, PROFILE, cache_writable=True) if mount["name"] == "cache"]
    assert found == ([{"name": "cache", "mountPath": "/cache"}] if wanted else [])


def test_every_volume_is_reserved_for_us_and_mounted() -> None:
    everything = rendered("""
    runtime: {mode: LLMAPI}
    target: {model: {uri: pvc://models/x}, tensorParallelSize: 16}
    draft: {model: {uri: hf://org/draft}}
    speculation: {decodingType: UserProvided, userProvided: {entryPoint: "mine:make", configMapName: mine}}
    """)
    pod = server_pod(everything)
    added_by_the_builder = {"revision", "ssh"}
    named = {volume["name"] for volume in pod["volumes"]} | added_by_the_builder
    assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == named
    assert named - {"source-target"} == set(OWN_VOLUMES)
    paths = {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert paths - {"/sources/target"} == set(OWN_PATHS) - {"/sources"}
