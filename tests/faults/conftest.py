"""One cluster for all plans, of which several run at once."""

import asyncio
import logging
import os
import shutil
import ssl
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from cluster import binaries
from cluster.core import Cluster
from integration.conftest import wait_established
from support import images

from .observer import Observer
from .plans import Plan
from .proxy import client_session
from .run import Outcome, reference, run
from .world import Kubernetes, World

log = logging.getLogger(__name__)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Show the table, as docs/design/faults.md has it."""
    for line in config.stash.get(TABLE, []):
        terminalreporter.write_line(line)


TABLE = pytest.StashKey[list[str]]()
REPOSITORY = Path(__file__).parents[2]
STAGES = REPOSITORY / "tests/integration/stages"
AT_ONCE = int(os.environ.get("FAULTS_AT_ONCE", "6"))
"""Plans that run side by side: they mostly wait."""


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    made = Cluster("tandem-faults", say=print)
    made.down()
    made.folder.mkdir(parents=True)
    shutil.copytree(STAGES, made.folder / "stages")
    made.up(["simulated:6"])
    made.kubectl.run("apply", "-f", str(REPOSITORY / "crds"))
    wait_established(made, "speculativeinferenceservices.serving.tandem.dev")
    lease = ("--verb=get,create,update", "--resource=leases.coordination.k8s.io")
    made.kubectl.run("-n", "default", "create", "role", "lease", *lease)
    made.kubectl.run(
        "-n", "default", "create", "rolebinding", "lease", "--role=lease", "--group=system:serviceaccounts"
    )
    yield made
    made.down()


@pytest.fixture(scope="session")
def role() -> dict[str, Any]:
    """The Role that the chart gives the operator of a namespace."""
    command = [str(binaries.ensure(["helm"], print)["helm"]), "template", "tandem", "charts/tandem", "-n", "home"]
    command += ["--show-only=templates/rbac.yaml", "--set=namespaces={one}", *images.SET]
    rendered = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    return next(each for each in yaml.safe_load_all(rendered) if each and each["kind"] == "Role")


def table(plans: Sequence[Plan], outcomes: Mapping[str, Outcome]) -> list[str]:
    """Lines: group, plans, how many passed, and the slowest recovery."""
    lines = ["| group | plans | passed | slowest recovery |", "|---|---:|---:|---:|"]
    for group in sorted({plan.group for plan in plans}):
        ids = [plan.id for plan in plans if plan.group == group]
        passed = [outcomes[each].recovery for each in ids if each in outcomes]
        lines.append(f"| {group} | {len(ids)} | {len(passed)} | {max(passed, default=0):.1f} s |")
    return lines


class Campaign:
    """Runs plans, several at once, in the order in which they are asked for or before."""

    def __init__(self, kubernetes: Kubernetes, observer: Observer, role: dict[str, Any], folder: Path) -> None:
        self._made = kubernetes, observer, role, folder
        self._seats = asyncio.Semaphore(AT_ONCE)
        self._references: dict[str, asyncio.Task[Outcome]] = {}
        self._runs: dict[str, asyncio.Task[Outcome]] = {}
        self._names: Counter[str] = Counter()
        self.outcomes: dict[str, Outcome] = {}
        """Of plans that passed, by their ids."""

    def begin(self, plans: list[Plan]) -> None:
        """Have these run."""
        for plan in plans:
            self._runs[plan.id] = asyncio.create_task(self._run(plan))

    async def outcome(self, plan: Plan) -> Outcome:
        """What came of a plan."""
        found = self.outcomes[plan.id] = await self._runs[plan.id]
        return found

    def reference(self, scenario: str) -> asyncio.Task[Outcome]:
        """The scenario without a fault."""
        if scenario not in self._references:
            self._references[scenario] = asyncio.create_task(self._reference(scenario))
        return self._references[scenario]

    async def _reference(self, scenario: str) -> Outcome:
        async with self._seats:
            world = self._world(scenario)
            try:
                return await reference(world, scenario)
            finally:
                await world.leave()

    async def _run(self, plan: Plan) -> Outcome:
        wanted = await self.reference(plan.reference)
        async with self._seats:
            world, began = self._world(plan.scenario), time.monotonic()
            try:
                found = await run(world, plan, wanted)
            except AssertionError as error:
                log.info("%s failed after %.1f s: %s", plan.id, time.monotonic() - began, error)
                raise
            finally:
                await world.leave()
        log.info("%s passed after %.1f s, recovery %.1f s", plan.id, time.monotonic() - began, found.recovery)
        return found

    def _world(self, scenario: str) -> World:
        self._names[scenario] += 1
        return World(*self._made, f"faults-{scenario}-{self._names[scenario]}")

    def cancel(self) -> None:
        """End what still runs."""
        for task in (*self._runs.values(), *self._references.values()):
            task.cancel()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def campaign(
    cluster: Cluster, role: dict[str, Any], request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Campaign]:
    pki = cluster.folder / "pki"
    trust = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    trust.load_cert_chain(pki / "client-kubernetes-admin.crt", pki / "client-kubernetes-admin.key")
    server = yaml.safe_load(cluster.kubeconfig.read_text(encoding="utf-8"))["clusters"][0]["cluster"]["server"]
    async with client_session(trust) as session:
        observer = Observer(session, server)
        watching = asyncio.create_task(observer.run())
        made = Campaign(
            Kubernetes(session, server, cluster.audit_log), observer, role, tmp_path_factory.mktemp("faults")
        )
        parameters = [each.params for item in request.session.items if (each := getattr(item, "callspec", None))]
        for each in parameters:
            if "scenario" in each:
                made.reference(each["scenario"])
        asked: list[Plan] = [each["plan"] for each in parameters if "plan" in each]
        made.begin(asked)
        yield made
        assert not watching.done(), watching.exception()
        request.config.stash[TABLE] = table([plan for plan in asked if not plan.defect], made.outcomes)
        made.cancel()
        watching.cancel()
