"""Defects that the simulation must find: each is put into the running code, as a change of its text."""

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from tandem.cluster import apply, observe
from tandem.process.operator import Operator
from tandem.process.reconcile import Reconciler
from tandem.process.resync import Resync
from tandem.process.watches import ChildWatch
from tandem.process.workqueue import WorkQueue
from tandem.rollout import plan


@dataclass(frozen=True)
class Mutant:
    """`old` in a function's text becomes `new`."""

    function: Callable[..., Any]
    old: str
    new: str


MUTANTS = {
    "revisions that pods mount are pruned": Mutant(
        plan._obsolete, "{server.revision for server in observed.servers}", "set()"
    ),
    "what is applied names no UID": Mutant(apply._apply, "**bound", ""),
    "what is changed names no resourceVersion": Mutant(apply._version, '("uid", "resourceVersion")', '("uid",)'),
    "what is created may be another's": Mutant(apply._apply, '{"resourceVersion": NEVER}', "{}"),
    "a status names no UID": Mutant(apply.apply_status, 'manifest["metadata"] |= _version(service.manifest)', "pass"),
    "it is applied without the Lease": Mutant(apply._apply, "    may_write()\n    try:", "    try:"),
    "it is deleted without the Lease": Mutant(
        apply._carry_out, "may_write()\n        await api.delete", "await api.delete"
    ),
    "a status is written without the Lease": Mutant(apply.apply_status, "    may_write()\n", ""),
    "objects of others are taken": Mutant(
        apply._apply, "if owner_uid(live) != owner and not _let_go(live, manifest):", "if False:"
    ),
    "children of another owner are ours": Mutant(observe._children, "or owner_uid(each) == service.uid", "or True"),
    "a service that is being deleted is served": Mutant(
        observe._live, 'or "deletionTimestamp" in manifest["metadata"]', ""
    ),
    "what went with its service is made again": Mutant(
        Reconciler._reconcile, "and not await is_there(self._api, service)", "and False"
    ),
    "what failed for now is not tried again": Mutant(
        Operator._handle,
        '%s again in %.1f s: %s", key, self._queue.retry(key), error)\n    except Refused',
        '%s: %s", key, error)\n    except Refused',
    ),
    "what comes while it is worked at is forgotten": Mutant(WorkQueue.add, "self._again.add(key)", "pass"),
    "no comparison finds what events missed": Mutant(
        Resync._compare,
        "missed = {uid: one for uid, one, known in still if known is None or known.version != one.version}",
        "missed = {uid: one for uid, one, known in still if known is None}",
    ),
    "a child with another's label concerns that one alone": Mutant(
        ChildWatch.changed, "keys(before, now)", "keys(now or before)"
    ),
    "a Job's verdict is thrown away before it is recorded": Mutant(plan._old_jobs, "if _keeps_job(step)", "if False"),
}


@contextmanager
def mutated(mutant: Mutant) -> Iterator[None]:
    """The code with the defect, for every caller, whoever imported it."""
    function = mutant.function
    assert isinstance(function, FunctionType)
    text = textwrap.dedent(inspect.getsource(function))
    assert text.count(mutant.old) == 1, f"the text of {function.__qualname__} has changed"
    made: dict[str, Any] = {}
    exec(text.replace(mutant.old, mutant.new), function.__globals__, made)
    before, function.__code__ = function.__code__, made[function.__name__].__code__
    try:
        yield
    finally:
        function.__code__ = before
