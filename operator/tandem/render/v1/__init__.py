"""Renderer version 1. Once released it is frozen: whatever changes a byte of its output is version 2."""

from tandem.render.inputs import Inputs, Rendered
from tandem.render.v1.launch import launch_plan
from tandem.render.v1.models import model_configs
from tandem.render.v1.pod import preflight_pod, server_pod


def render(inputs: Inputs) -> Rendered:
    """Render a spec that was accepted (`tandem.accept`) for its profile."""
    launch = launch_plan(inputs)
    return Rendered(
        files={**model_configs(inputs), "launch.json": launch.text},
        pod=server_pod(inputs),
        preflight=preflight_pod(inputs),
        preflight_inputs={
            "image": inputs.image,
            "servingImage": inputs.serving_image,
            "checks": launch.preflight,
        },
    )
