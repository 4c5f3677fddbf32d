"""Renderer version 1. Once released it is frozen: whatever changes a byte of its output is version 2."""

from collections.abc import Callable, Mapping
from typing import Any

from tandem.api.folders import folders
from tandem.api.roles import Role
from tandem.api.types import Mode
from tandem.digest import digest
from tandem.render.record import Record
from tandem.render.rendered import JobPod, Rendered
from tandem.render.v1.bls import bls
from tandem.render.v1.inputs import Inputs
from tandem.render.v1.launch import config_file, launch_plan
from tandem.render.v1.llmapi import llmapi
from tandem.render.v1.pod import build_pod, preflight_pod, server_pod, template_metadata, worker_pod
from tandem.render.v1.stack import Stack, preflight_checks
from tandem.render.v1.volumes import mounted, own_claim

STACKS: Mapping[Mode, Callable[[Inputs], Stack]] = {Mode.BLS: bls, Mode.LLMAPI: llmapi}
"""The Triton models around an engine, by who runs the loop."""


def render(record: Record) -> Rendered:
    """Render a spec that was accepted (`tandem.accept`) for its profile.

    Raises:
        KeyError: a download is not in `record.fetched`.
    """
    models = folders(record.spec, record.fetched)
    inputs = Inputs(
        spec=record.spec,
        profile=record.profile,
        serving_image=record.serving_image,
        folders=models,
        pods=record.pods,
    )
    stack = STACKS[inputs.engine.mode](inputs)
    checks = preflight_checks(inputs, stack)
    configs = {config_file(model): text for model, text in stack.configs.items()}
    return Rendered(
        files={**configs, **stack.files, "launch.json": launch_plan(inputs, stack)},
        pod=server_pod(inputs),
        worker=worker_pod(inputs),
        nodes=inputs.plan.nodes,
        metadata=template_metadata(inputs),
        preflight=JobPod(preflight_pod(inputs), _preflight_digest(inputs, checks)),
        builds=_builds(inputs),
    )


def _preflight_digest(inputs: Inputs, checks: Mapping[str, Any]) -> str:
    # What is mounted is at its role's place, wherever it comes from: its URI tells one model from another.
    places = {role.value: source.uri for role, source in mounted(inputs.spec).items()}
    parts = {"image": inputs.image, "servingImage": inputs.serving_image, "checks": checks, **_claim(inputs)}
    return digest({**parts, **({"mounted": places} if places else {})})


def _builds(inputs: Inputs) -> dict[Role, JobPod]:
    """The Jobs that build engines. An engine's folder is named by all that it depends on, but for the claim."""
    wanted = inputs.engine.builds(inputs.spec, inputs.image, inputs.folders)
    return {
        role: JobPod(build_pod(inputs, role), digest({"folder": build.folder, **_claim(inputs)}), build.folder)
        for role, build in wanted.items()
    }


def _claim(inputs: Inputs) -> Mapping[str, str]:
    return own_claim(inputs.spec, inputs.engine)
