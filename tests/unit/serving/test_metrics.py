import pytest

from tandem_serving import metrics as m

FAMILIES = [value for value in vars(m).values() if isinstance(value, m.Family)]


class Sink:
    """Keeps what it gets; broken ones refuse it."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, m.Labels], float] = {}
        self.broken = False

    def add(self, family: m.Family, labels: m.Labels, value: float) -> None:
        if self.broken:
            raise m.SinkError("no metrics here")
        self.values[family.name, labels] = self.values.get((family.name, labels), 0) + value

    def set(self, family: m.Family, value: float) -> None:
        if self.broken:
            raise m.SinkError("no metrics here")
        self.values[family.name, ()] = value


def test_names_are_families_of_their_own() -> None:
    names = [family.name for family in FAMILIES]
    assert len(set(names)) == len(names)
    assert all(name.startswith("tandem_") for name in names)
    assert all(f.name.endswith("_total") == (f.kind == "counter") for f in FAMILIES)
    assert all(bool(f.buckets) == (f.kind == "histogram") for f in FAMILIES)


def test_differences_add_up_to_the_values() -> None:
    metrics, sink = m.Metrics(), Sink()
    for gauge, drafted, accepted in [(5, 4, 2), (3, 4, 4), (7, 2, 0)]:
        metrics.set(m.RUNNING, gauge)
        metrics.step(accepted + 1, drafted, accepted)
        metrics.flush(sink)
        metrics.flush(sink)
    assert sink.values[m.RUNNING.name, ()] == 7
    assert sink.values[m.DRAFTS.name, ()] == 3
    assert sink.values[m.DRAFT_TOKENS.name, ()] == 10
    assert sink.values[m.ACCEPTED.name, ()] == 6
    per_position = [sink.values[m.ACCEPTED_PER_POS.name, (("position", str(i)),)] for i in range(4)]
    assert per_position == [2, 2, 1, 1]


def test_rounds_that_an_engine_counted() -> None:
    metrics, sink = m.Metrics(), Sink()
    for accepted in ((3, 2, 0, 0), (1, 1, 1, 0)):
        metrics.rounds(3, 12, accepted)
    metrics.flush(sink)
    assert [sink.values[family.name, ()] for family in (m.DRAFTS, m.DRAFT_TOKENS, m.ACCEPTED)] == [6, 24, 8]
    per_position = [sink.values[m.ACCEPTED_PER_POS.name, (("position", str(i)),)] for i in range(4)]
    assert per_position == [4, 3, 1, 0]


def test_refusals_are_0_by_reason_until_there_are_some() -> None:
    """A series that begins above 0 is no increase to Prometheus."""
    metrics, sink = m.Metrics(), Sink()
    metrics.flush(sink)
    refused = {labels: value for (name, labels), value in sink.values.items() if name == m.REFUSED.name}
    assert refused == {(("reason", "queue_full"),): 0, (("reason", "queue_timeout"),): 0}


def test_several_instances_add_up_but_for_the_draft_length() -> None:
    instances, sink = (m.Metrics(), m.Metrics()), Sink()
    for running, drafted in [(5, 4), (3, 4), (7, 2)]:
        for metrics in instances:
            metrics.set(m.RUNNING, running)
            metrics.step(1, drafted, 0)
            metrics.flush(sink)
    assert sink.values[m.RUNNING.name, ()] == 14
    assert sink.values[m.DRAFT_TOKENS.name, ()] == 20
    assert sink.values[m.DRAFT_LENGTH.name, ()] == 2
    instances[0].step(1, 8, 0)
    for metrics in instances:
        metrics.flush(sink)
    assert sink.values[m.DRAFT_LENGTH.name, ()] == 8, "an instance that drafted nothing since says nothing"


def test_failing_sink_is_survived_logged_once_and_made_up_for(caplog: pytest.LogCaptureFixture) -> None:
    metrics, sink = m.Metrics(), Sink()
    sink.broken = True
    for _ in range(3):
        metrics.add(m.PROMPT_TOKENS, 2)
        metrics.flush(sink)
    sink.broken = False
    metrics.flush(sink)
    assert sink.values[m.PROMPT_TOKENS.name, ()] == 6
    assert caplog.text.count("metrics cannot be reported") == 1


def test_counters_start_at_zero_where_they_mean_something() -> None:
    for speculates in (True, False):
        sink = Sink()
        m.Metrics(m.ALWAYS + (m.SPECULATION if speculates else ())).flush(sink)
        assert set(sink.values.values()) == {0}
        names = {name for name, _ in sink.values}
        assert m.GENERATION_TOKENS.name in names
        assert any("spec_decode" in name for name in names) == speculates


def test_a_histogram_is_its_prometheus_series() -> None:
    metrics, sink = m.Metrics(), Sink()
    for value, times in [(0.001, 1), (0.02, 3), (99.0, 1)]:
        metrics.observe(m.INTER_TOKEN, value, times)
        metrics.flush(sink)
        metrics.flush(sink)
    name = m.INTER_TOKEN.name
    buckets = [
        sink.values.get((f"{name}_bucket", (("le", le),)), 0) for le in ("0.005", "0.01", "0.025", "60", "+Inf")
    ]
    assert buckets == [1, 1, 4, 4, 5], "cumulative"
    assert sink.values[f"{name}_count", ()] == 5
    assert sink.values[f"{name}_sum", ()] == pytest.approx(99.061)
