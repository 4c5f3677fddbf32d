"""Whose the served namespaces are: what stands in the cluster, and whether the operator may work."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from tandem.cluster import sole_operator
from tandem.cluster.kinds import Kind
from tandem.cluster.sole_operator import EVERYWHERE, HERE, LEASE_ANNOTATION, SoleOperator
from tandem.errors import Refused, Transient

OURS = "tandem-system/tandem-operator"


@dataclass
class Objects:
    """Objects by kind, namespace and name; an error in an object's place is raised."""

    found: dict[tuple[str, str | None, str], Any]
    looks: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Any:
        self.looks.release()
        answer = self.found.get((kind.kind, namespace, name))
        if isinstance(answer, Exception):
            raise answer
        return answer


def of(lease: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {LEASE_ANNOTATION: lease}}}


ALL, TEAM = ("ClusterRole", None, EVERYWHERE), ("Role", "team-a", HERE)
ROWS: list[tuple[str, list[str | None], dict[Any, Any], str]] = [
    ("ours", [None], {ALL: of(OURS)}, ""),
    ("another's", [None], {ALL: of("b/other")}, "ClusterRole tandem:serves-all-namespaces is of another operator"),
    ("no chart made one", [None], {}, ""),
    ("it may not be read", [None], {ALL: Refused(403, "no right")}, ""),
    ("somebody made one by its name alone", [None], {ALL: {"metadata": {}}}, ""),
    ("one of several namespaces", ["team-b", "team-a"], {TEAM: of("b/other")}, "in namespace team-a is of another"),
    ("who serves some looks at those alone", ["team-b"], {ALL: of("b/other"), TEAM: of("b/other")}, ""),
]


@pytest.mark.parametrize(("scopes", "found", "problem"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS])
async def test_who_serves(scopes: list[str | None], found: dict[Any, Any], problem: str) -> None:
    looked = SoleOperator(Objects(found), scopes, OURS)  # type: ignore[arg-type]
    assert looked.problem, "nothing is written before the first look"
    looked._set(await looked._look())
    assert problem in looked.problem
    assert bool(looked.problem) is bool(problem)
    assert looked.ours.is_set() is not bool(problem)
    assert not problem or "b/other" in looked.problem


async def test_what_was_seen_holds_while_the_api_server_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sole_operator, "RETRY_SECONDS", 0.0)
    objects = Objects({ALL: of("b/other")})
    looked = SoleOperator(objects, [None], OURS)  # type: ignore[arg-type]
    running = asyncio.create_task(looked.run(0.0))

    async def after_looks(number: int) -> str:
        objects.looks = asyncio.Semaphore(0)
        async with asyncio.timeout(60):
            for _ in range(number):
                await objects.looks.acquire()
        return looked.problem

    before = await after_looks(2)
    objects.found[ALL] = Transient("away")
    assert await after_looks(2) == before
    assert not looked.ours.is_set()
    objects.found[ALL] = of(OURS)
    assert await after_looks(2) == ""
    assert looked.ours.is_set()
    running.cancel()
