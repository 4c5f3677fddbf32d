"""Blocks of pages are found, run in one shell, and compared with what they print."""

from pathlib import Path

import pytest

from support.console import Step, marked, matches, names, run

PAGE = """
<!-- test: one -->
```console
$ echo a \\
    b
a b
$ true
```

```console
$ not-marked
```

<!-- test: two -->
```console
cat <<'END'
text
END
```

<!-- test: one -->
```console
$ false
```
"""


def test_blocks_of_a_name_in_order() -> None:
    assert names(PAGE) == ["one", "two"]
    assert marked(PAGE, "one") == [Step("echo a \\\n    b", "a b"), Step("true", ""), Step("false", "")]
    assert marked(PAGE, "two") == [Step("cat <<'END'\ntext\nEND\n", "")]


def test_one_shell_runs_all(tmp_path: Path) -> None:
    steps = [Step("export A=1", ""), Step("sleep 60 &", ""), Step("kill %1", ""), Step("echo $A$B >&2", "")]
    assert [(r.status, r.printed.strip()) for r in run(steps, tmp_path, {"B": "2"}, 10)][-1] == (0, "12")


def test_a_command_that_fails_is_the_last(tmp_path: Path) -> None:
    steps = [Step("true", ""), Step("sleep 60 &", ""), Step("(echo why; exit 3) | cat", ""), Step("echo no", "")]
    results = run(steps, tmp_path, {}, 10)
    assert [r.status for r in results] == [0, 0, 3]
    assert results[-1].printed == "why\n"


@pytest.mark.parametrize(
    ("shown", "printed", "equal"),
    [
        ("a b", "a     b", True),
        ("a:\n  b", "a:\n    b", True),
        ("took 1.5 s", "took 12 s", True),
        ("a\n...\nc", "a\nb\nc", True),
        ('{"id":"...","n":1}', '{"id":"x-1","n":22}', True),
        ("a", "b\nbefore a", False),
        ("a\nc", "c\na", False),
        ("", "anything", True),
    ],
)
def test_what_is_shown_is_compared_loosely(shown: str, printed: str, equal: bool) -> None:
    assert matches(shown, printed) is equal
