"""Clusters for these tests alone."""

from __future__ import annotations

import itertools
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster import Cluster, binaries, images, preflight, state
from cluster.processes import wait_until

NUMBERS = itertools.count()
NewCluster = Callable[[], Cluster]


@pytest.fixture(scope="module")
def new_cluster() -> Iterator[NewCluster]:
    """Make clusters that are removed in the end, whatever happens.

    They lie beside the user's own: clusters that start at the same time choose different addresses only
    when they know of each other. The names are those of no one else's.
    """
    made: list[Cluster] = []

    def make() -> Cluster:
        made.append(Cluster(f"test-{os.getpid()}-{next(NUMBERS)}", print))
        return made[-1]

    yield make
    for cluster in made:
        cluster.down()


@pytest.fixture(scope="module")
def real_nodes_can_run() -> None:
    """Fail with the reasons where no real node can run: these tests prove nothing when they are left out."""
    if problems := preflight.find_problems(state.clusters_dir()):
        pytest.fail("real nodes cannot run here:\n" + "\n".join(problems))


@pytest.fixture(scope="session")
def probe_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of ``localhost/tandem/probe:v0``, a server that looks names up and opens connections."""
    archive = tmp_path_factory.mktemp("images") / "probe.tar"
    images.write_scratch_image(binaries.ensure(["probe"], print)["probe"], "localhost/tandem/probe:v0", archive)
    return archive


def fetch(url: str, seconds: float = 60) -> str:
    """Return what ``url`` answers, asking again while nothing listens or it says no: DNS may come up later."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    answers: list[str] = []
    said = ["nothing"]

    def answered() -> bool:
        try:
            with opener.open(url, timeout=10) as response:
                answers.append(response.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                said.append(f"{error.code} {error.read().decode()}")
        except (urllib.error.URLError, OSError) as error:
            said.append(str(error))
        return bool(answers)

    assert wait_until(answered, seconds), f"{url} answers {said[-1]}"
    return answers[0].strip()
