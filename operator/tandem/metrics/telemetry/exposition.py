"""A page of Prometheus' text format, of which only Tandem's families and two of the engines' are read.

Triton's own series are most of a page and are skipped unread. Equal lines come again at every scrape and from every
pod: the text of a series is parsed once (by prometheus_client) and remembered, so that a line costs a look-up.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
"""

import re
from functools import lru_cache

from prometheus_client.parser import text_string_to_metric_families

from tandem.metrics.telemetry.families import ACCEPTED_PER_POSITION, COUNTERS, ENGINE_LABELS, GAUGES
from tandem.metrics.telemetry.page import MAX_SERIES, Page, PageError, Series, series

MAX_SERIES_BYTES = 256
"""A series' name and labels."""

_READ = "|".join(("tandem_", *ENGINE_LABELS)).encode()
_LINES = re.compile(rb"^(?:# TYPE )?(?:%b)[^\n]*" % _READ, re.MULTILINE)
_TYPES = {
    **dict.fromkeys((*COUNTERS, ACCEPTED_PER_POSITION), "counter"),
    **dict.fromkeys((family for family, _ in GAUGES), "gauge"),
}


def parse(text: bytes) -> Page:
    """The page's samples of the families that are read.

    Raises:
        PageError: this is no page of metrics, or none that Tandem's models wrote.
    """
    if text.lstrip()[:1] in {b"<", b"{", b"["}:
        raise PageError("this is HTML or JSON, not a page of metrics")
    if text and not text.endswith(b"\n"):
        raise PageError("the page ends in the middle of a line")
    lines: list[bytes] = _LINES.findall(text)
    if len(lines) > MAX_SERIES:
        raise PageError(f"more than {MAX_SERIES} lines of Tandem's and the engines': they write about a hundred")
    page, seen = Page(), set[bytes]()
    for line in lines:
        if line.startswith(b"#"):
            _check_type(line)
            continue
        name, value = _split(line)
        if name in seen:
            raise PageError(f"{_shown(name)} is there twice")
        seen.add(name)
        if (found := _series(name)) is not None:
            page.add(found, _number(value))
    return page.known()


def _split(line: bytes) -> tuple[bytes, bytes]:
    """A sample's series (name and labels) and the value after it; a timestamp behind the value is left out."""
    end = line.rfind(b"}") + 1  # values and timestamps have no braces, as label values may
    words = line[end:].split(None, 2)
    if not end and words:
        return words[0], words[1] if len(words) > 1 else b""
    return line[:end], words[0] if words else b""


@lru_cache(maxsize=4096)
def _series(name: bytes) -> Series | None:
    """The series of a sample's name and labels; None for one that is not read."""
    if len(name) > MAX_SERIES_BYTES:
        raise PageError(f"a series' name and labels are longer than {MAX_SERIES_BYTES} bytes: {_shown(name)}")
    try:
        (family,) = text_string_to_metric_families(name.decode() + " 0\n")
        (sample,) = family.samples
    except ValueError:  # UnicodeDecodeError is one
        raise PageError(f"no sample of a metric: {_shown(name)}") from None
    return series(sample.name, sample.labels)


def _number(value: bytes) -> float:
    try:
        number = None if b"_" in value else float(value)  # Python's numbers may have them, Prometheus' not
    except ValueError:
        number = None
    if number is None:
        raise PageError(f"{_shown(value)} is no number")
    return number


def _check_type(line: bytes) -> None:
    name, _, kind = line.removeprefix(b"# TYPE ").decode(errors="replace").strip().partition(" ")
    expected = _TYPES.get(name, kind)
    if kind not in {expected, "untyped"}:
        raise PageError(f"{name} is of type {kind[:32]!r}, not {expected}")


def _shown(text: bytes) -> str:
    return repr(text[:64].decode(errors="replace"))
