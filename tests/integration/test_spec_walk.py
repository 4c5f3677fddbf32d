"""Whatever a user writes into a spec: the API server refuses it, or the operator says what it makes of it.

Each walk begins with an example, and changes it and back again ten times. The values are drawn from the CRD's schema;
the real API server says which it takes; those reach an operator in virtual time (`support.simulation`).
`SPEC_WALKS=200` draws 2,000 new ones.
"""

import logging
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kubernetes import client, config

from bench.scale.__main__ import NAME
from cluster.core import Cluster
from support.simulation.api import copied
from support.simulation.world import World
from support.spec_walk import EXAMPLES, Spec, changes
from tandem.api import API_VERSION, KIND, PLURAL
from tandem.cluster.manifests import condition

from .conftest import Namespace, new_namespace

pytestmark = pytest.mark.nightly

ASKED = os.environ.get("SPEC_WALKS")
WALKS, STEPS = int(ASKED or 20), 10


class Admission:
    """What the API server says to specs."""

    def __init__(self, namespace: Namespace) -> None:
        reached = config.new_client_from_config(str(namespace.cluster.kubeconfig))  # type: ignore[no-untyped-call]
        self._api, self._namespace = client.CustomObjectsApi(reached), namespace.name
        self.answers = Counter[bool]()
        self.reasons = Counter[str]()
        """Of the condition SpecAccepted, of those that it took."""

    @property
    def summary(self) -> str:
        """How many specs the API server took, and what the operator made of them."""
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(self.reasons.items()))
        return f"taken {self.answers[True]} ({reasons}), refused by the API server {self.answers[False]}"

    def accepts(self, spec: Spec) -> bool:
        """Whether it would take a service with it."""
        group, version = API_VERSION.split("/")
        body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": NAME}, "spec": spec}
        try:
            self._api.create_namespaced_custom_object(
                group, version, self._namespace, PLURAL, body, dry_run="All", field_validation="Strict"
            )
        except client.ApiException as error:
            assert error.status in (400, 422), error
            self.answers[False] += 1
            return False
        self.answers[True] += 1
        return True


@pytest.fixture(scope="module")
def admission(cluster: Cluster) -> Iterator[Admission]:
    made = Admission(new_namespace(cluster))
    yield made
    print(made.summary)
    assert min(made.answers[True], made.answers[False]) > WALKS, "few of either kind were tried"


class Exceptions(logging.Handler):
    """What was logged with a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        if record.exc_info:
            self.found.append(repr(record.exc_info[1]))


@pytest.fixture(scope="module")
def exceptions() -> Iterator[Exceptions]:
    handler, log = Exceptions(), logging.getLogger("tandem")
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


@pytest.mark.timeout(0 if ASKED else 1200)
@settings(
    max_examples=WALKS,
    deadline=None,
    derandomize=not ASKED,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
@given(data=st.data(), example=st.sampled_from(EXAMPLES))
def test_there_and_back_again(
    admission: Admission, exceptions: Exceptions, data: st.DataObject, example: Spec
) -> None:
    world = World(0)
    try:
        world.create(example)
        good = settled(world)
        for _ in range(STEPS):
            spec = data.draw(changes(example))
            if not admission.accepts(spec):
                continue
            edit(world, spec)
            there = settled(world)
            accepted = condition(world.service or {}, "SpecAccepted")
            assert accepted
            admission.reasons[accepted["reason"]] += 1
            if accepted["status"] == "False":
                assert served(there) == served(good), "what serves stays as it was"
            edit(world, example)
            assert settled(world) == good
        assert exceptions.found == []
        assert world.judge.faults == []
        assert world.processes.failures() == []
        if ASKED:
            print(admission.summary)
    finally:
        exceptions.found.clear()
        world.close()


def edit(world: World, spec: Spec) -> None:
    """As by `kubectl apply`."""
    assert world.service
    world.cluster.put({**copied(world.service), "spec": copied(spec)}, "user")


def settled(world: World) -> dict[str, Any]:
    """How it is once nothing is written any more; the status is of this generation."""
    [found] = world.settled().values()
    assert found["seen"], "no status of this generation"
    return found


def served(state: dict[str, Any]) -> dict[str, Any]:
    """The pods, and what makes them."""
    workloads = {name: child for name, child in state["children"].items() if name.startswith("Deployment/")}
    return {"pods": state["pods"], **workloads}
