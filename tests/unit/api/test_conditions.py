"""The registry of conditions has every reason that is written and no other; its page is made from it.

That a condition has a type and a status of its reason is checked wherever a unit test makes one (conftest.py).
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tandem.api.conditions import AS_SPECIFIED, REASONS, ConditionType, Reason, SpecReason, TaskReason
from tandem.api.conditions.reference import conditions_reference
from tandem.cluster.apply import INSTALL
from tandem.errors import KindMissing
from tandem_fetcher import errors as fetcher

REPOSITORY = Path(__file__).parents[3]
WORD = re.compile(r"([A-Z][a-z0-9]+){2,}")
VERDICTS = re.compile(r"\bCheckResult\(|\breason: (str|Reason)\b|^Reason = ", re.M)
"""What a module has that makes a verdict."""


def test_the_page_in_the_repository_is_current() -> None:
    page = (REPOSITORY / "docs/reference/conditions.md").read_text(encoding="utf-8")
    assert page == conditions_reference(), "run `make generate`"


def test_the_page_has_every_type_and_every_reason() -> None:
    page = conditions_reference()
    assert [each for each in ConditionType if f"## {each}\n" not in page] == []
    assert [each for each in REASONS if f"| `{each}` | {each.meaning} | {each.action} |" not in page] == []


def test_a_word_has_one_entry() -> None:
    assert sorted({*REASONS}) == sorted(REASONS)


@pytest.mark.parametrize("reason", REASONS)
def test_an_entry_is_whole(reason: Reason) -> None:
    assert re.fullmatch(r"[A-Z][A-Za-z0-9]*", reason)
    assert reason.meaning.endswith("."), "a sentence"
    assert not reason.action or reason.action.endswith(".")
    refused = any("False" in shown.statuses for shown in reason.shown)
    heals = (*AS_SPECIFIED, TaskReason.MODEL_GONE, TaskReason.ENGINE_GONE)
    assert not refused or reason in heals or reason.action, "what to do where something is wrong"


@pytest.mark.parametrize("kind", INSTALL)
def test_a_kind_that_may_be_missing_has_a_reason(kind: str) -> None:
    assert KindMissing(kind, "install it").reason == f"{kind}Missing"


def test_the_operator_names_reasons_by_their_constants() -> None:
    words = {str(each) for each in REASONS}
    bare = [
        f"{path.relative_to(REPOSITORY)}:{line}: {text}"
        for path in outside_the_registry()
        for line, text in literals(path)
        if text in words and (path.name, text) not in OTHER_NAMES
    ]
    assert bare == [], "write the constant of tandem.api.conditions"


OTHER_NAMES = {("__init__.py", "Accepted")}
"""Words that are no reasons there, by file."""


def test_what_jobs_report_is_in_the_registry() -> None:
    known = {str(each) for each in (*REASONS, *ConditionType)}
    makers = [path for path in sources("images/serving") if VERDICTS.search(path.read_text(encoding="utf-8"))]
    reported = {text for path in makers for _, text in literals(path) if WORD.fullmatch(text)}
    assert TaskReason.MODELS_LOAD in reported
    assert reported - known == set(), "add it to tandem.api.conditions.tasks"
    assert {str(each) for each in fetcher.Reason} <= known


@pytest.mark.parametrize("reason", fetcher.Reason)
def test_a_download_reports_with_the_status_of_its_reason(reason: fetcher.Reason) -> None:
    (entry,) = (each for each in REASONS if each == str(reason))
    status = "Unknown" if fetcher.FetchError(reason, "").passing else "False"
    assert [shown.statuses for shown in entry.shown if shown.type is ConditionType.MODELS_READY] == [(status,)]


def test_alerts_name_reasons_of_the_registry() -> None:
    rules = (REPOSITORY / "charts/tandem/files/rules.yaml").read_text(encoding="utf-8")
    named = set(re.findall(r'\.reason "(\w+)"', rules))
    assert named
    assert named <= {str(each) for each in REASONS}


def test_every_reason_is_used() -> None:
    operator = "".join(path.read_text(encoding="utf-8") for path in outside_the_registry())
    constants = set(re.findall(r"\b\w+Reason\.[A-Z0-9_]+\b", operator))
    jobs = {
        text for image in ("serving", "fetcher") for path in sources(f"images/{image}") for _, text in literals(path)
    }
    unused = {reason for reason in REASONS if f"{type(reason).__name__}.{reason.name}" not in constants}
    assert unused - jobs - {f"{kind}Missing" for kind in INSTALL} == set(), "remove it"


def test_a_refusal_is_of_the_specification() -> None:
    assert {shown.type for reason in SpecReason for shown in reason.shown} == {ConditionType.SPEC_ACCEPTED}


@cache
def sources(folder: str) -> tuple[Path, ...]:
    return tuple(sorted((REPOSITORY / folder).rglob("*.py")))


@cache
def literals(path: Path) -> tuple[tuple[int, str], ...]:
    """Line and value of each string."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return tuple((n.lineno, n.value) for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))


def outside_the_registry() -> list[Path]:
    return [path for path in sources("operator/tandem") if "api" not in path.relative_to(REPOSITORY).parts]
