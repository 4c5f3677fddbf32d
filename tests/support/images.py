"""Images of a registry that is not there, for operators and charts whose pods are simulated or never made."""

from typing import Any

REGISTRY = "registry.example/tandem"
SETTINGS: dict[str, Any] = {
    "servingImage": f"{REGISTRY}/serving:1",
    "fetcherImage": f"{REGISTRY}/fetcher:1",
    "profiles": [
        {"name": "reference", "image": f"{REGISTRY}/reference:1"},
        {"name": "torch", "image": f"{REGISTRY}/reference-torch:1"},
    ],
}
"""The operator's settings that name images."""
NEEDED: dict[str, Any] = {
    "image": {"repository": f"{REGISTRY}/operator"},
    "servingImage": SETTINGS["servingImage"],
    "fetcherImage": SETTINGS["fetcherImage"],
}
"""The chart's values without which it is refused."""
VALUES: dict[str, Any] = {**NEEDED, "profileImages": {each["name"]: each["image"] for each in SETTINGS["profiles"]}}
"""All of the chart's values that name images."""
SET = [
    f"--set=image.repository={REGISTRY}/operator",
    *(f"--set={name}={NEEDED[name]}" for name in ("servingImage", "fetcherImage")),
]
"""`NEEDED` as options of helm."""
