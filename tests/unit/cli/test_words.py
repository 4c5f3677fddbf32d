"""Quantities and ages, as the commands read and show them."""

from datetime import UTC, datetime

import pytest

from tandem.cli import words

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
QUANTITIES = [
    ("0", 0.0),
    ("1431m", 1.431),
    ("12", 12.0),
    ("3k", 3000.0),
    ("250u", 0.00025),
    ("1.5", 1.5),
    ("5T", 5e12),
    ("2Gi", 2.0**31),
    ("1024Ki", 2.0**20),
    ("1E", 1e18),
    ("1e3", 1e3),
]


@pytest.mark.parametrize(("text", "value"), QUANTITIES)
def test_quantities(text: str, value: float) -> None:
    assert words.quantity(text) == pytest.approx(value)


AGES = [("2026-01-01T11:59:59Z", "1 s"), ("2026-01-01T11:58:30Z", "90 s"), ("2026-01-01T11:57:00Z", "3 min")]
AGES += [("2026-01-01T09:00:00Z", "3 h"), ("2025-12-28T12:00:00Z", "4 d"), ("2026-01-01T12:00:09Z", "0 s")]


@pytest.mark.parametrize(("since", "wanted"), AGES, ids=[row[1] for row in AGES])
def test_ages(since: str, wanted: str) -> None:
    assert words.age(since, NOW) == wanted


@pytest.mark.parametrize("text", ["", "Gi", "2GiB", "two"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="no quantity"):
        words.quantity(text)
