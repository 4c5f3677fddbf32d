"""ChildrenKept, which is there only while somebody writes a child again and again."""

from tandem.conditions.contested import children_kept
from tandem.conditions.situation import Contested


def test_none_while_nobody_does() -> None:
    assert list(children_kept([])) == []


def test_it_names_who_and_what() -> None:
    tool = Contested("Deployment", "svc-server", 5, "keel wrote spec.template.spec.containers[triton].image")
    (found,) = children_kept([tool, Contested("Service", "svc-triton", 5, "")])
    assert (found.type, found.status, found.reason) == ("ChildrenKept", "False", "WrittenByOthers")
    first, second = found.message.split("; ")
    assert first.startswith(
        "Deployment svc-server: keel wrote spec.template.spec.containers[triton].image, again after"
    )
    assert second.startswith(
        "Service svc-triton is not as it was applied, 5 times within the hour: see which admission"
    )
