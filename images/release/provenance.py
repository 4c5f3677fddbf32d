"""Provenance of a release: an in-toto statement with SLSA's predicate, version 1.

Formats: https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md, https://slsa.dev/spec/v1.0/provenance.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

BUILD_TYPE = "https://serving.tandem.dev/release/v1"
"""`make release` of this repository."""


@dataclass(frozen=True)
class Source:
    """What a release is made from."""

    repository: str
    """Its URL; empty where the checkout has none."""
    commit: str
    materials: Mapping[str, str]
    """SHA-256 of the locks and Containerfiles that fix what is downloaded, by path."""


@dataclass(frozen=True)
class Builder:
    """Who makes it. ``id`` names a machine that is trusted as one; ``run`` this time."""

    id: str
    run: str = ""


def builder(environment: Mapping[str, str] = os.environ) -> Builder:
    """Return GitHub's runner where the workflow runs, else a machine that nothing is known of."""
    if environment.get("GITHUB_ACTIONS") != "true":
        return Builder(f"{BUILD_TYPE}/local")
    repository = f"{environment['GITHUB_SERVER_URL']}/{environment['GITHUB_REPOSITORY']}"
    run = f"{repository}/actions/runs/{environment['GITHUB_RUN_ID']}/attempts/{environment['GITHUB_RUN_ATTEMPT']}"
    return Builder(f"{repository}/.github/workflows/release.yaml@{environment['GITHUB_REF']}", run)


def statement(
    sums: Mapping[str, str], parameters: Mapping[str, str], source: Source, by: Builder, times: tuple[str, str]
) -> dict[str, Any]:
    """Return the statement that files with these SHA-256 sums were made so.

    ``times``: when it began and ended, RFC 3339.
    """
    git = {"uri": f"git+{source.repository}" if source.repository else "git", "digest": {"gitCommit": source.commit}}
    files = [{"name": path, "digest": {"sha256": digest}} for path, digest in sorted(source.materials.items())]
    began, ended = times
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sums.items()],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": dict(parameters),
                "resolvedDependencies": [git, *files],
            },
            "runDetails": {
                "builder": {"id": by.id},
                "metadata": {
                    **({"invocationId": by.run} if by.run else {}),
                    "startedOn": began,
                    "finishedOn": ended,
                },
            },
        },
    }
