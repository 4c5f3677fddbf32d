"""A replica whose costs are known, and the figures that its pod would tell."""

from dataclasses import dataclass

from tandem.api.types import ServiceSpec
from tandem.metrics.telemetry.figures import Figures, Histogram, PodFigures

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, float("inf"))


@dataclass(frozen=True)
class Truth:
    """Seconds of a step by T(b, k) = k (d0 + d1 b) + v0 + v1 b (k + 1)."""

    d0: float = 0.006
    d1: float = 0.00015
    v0: float = 0.036
    v1: float = 0.00015

    def seconds(self, rows: float, k: float) -> float:
        return k * (self.d0 + self.d1 * rows) + self.v0 + self.v1 * rows * (k + 1)

    def itl(self, rows: float, k: int, acceptance: float) -> float:
        return self.seconds(rows, k) / tau(acceptance, k)

    def pod(
        self,
        rows: float,
        k: int,
        acceptance: float = 0.8,
        *,
        seconds: float = 60.0,
        waiting: float = 0.0,
        ttft: float = 0.1,
        output: float = 600.0,
        told: bool = True,
        probes: int = 0,
    ) -> PodFigures:
        """A window with so many sequences at once; `told`: whether the engine tells of drafts. `probes`: how many
        sequences ran without a draft beside."""
        rounds = rows * seconds / self.seconds(rows, k)
        tokens = rounds * tau(acceptance, k)
        drafted = k > 0
        alone = probes * output
        return PodFigures(
            seconds=seconds,
            running=rows,
            waiting=waiting,
            generation_tokens=tokens,
            rounds=rounds if drafted else 0.0,
            draft_tokens=(rounds * k if drafted else 0.0) if told else None,
            accepted_tokens=tokens - rounds,
            accepted_per_position=tuple(rounds * acceptance**i for i in range(1, k + 1)) if told else (),
            time_to_first_token=histogram(ttft, tokens / output),
            inter_token_latency=histogram(
                (rows * seconds + alone * self.seconds(rows, 0)) / (tokens + alone), tokens + alone
            )
            if rows
            else None,
            request_latency=histogram(10.0, tokens / output),
            probe_latency=histogram(self.seconds(rows, 0), alone) if probes else None,
            probe_sequences=float(probes) if probes else None,
        )


def tau(acceptance: float, k: int) -> float:
    return sum(acceptance**i for i in range(k + 1))


def histogram(value: float, count: float) -> Histogram:
    """So many observations of one value."""
    bucket = next(i for i, bound in enumerate(BOUNDS) if value <= bound)
    return Histogram(BOUNDS, tuple(count if i == bucket else 0.0 for i in range(len(BOUNDS))), value * count)


def figures(at: float, *pods: PodFigures, unknown: int = 0) -> Figures:
    return Figures(at, pods, unknown)


def spec(
    k: int = 6,
    *,
    mode: str = "BLS",
    kind: str = "DraftTarget",
    adaptive: bool = True,
    places: int = 32,
    most: int = 10,
    ttft: str | None = "1s",
    itl: str | None = "50ms",
    queue: int | None = 4,
    scaling: bool = True,
    **speculation: object,
) -> ServiceSpec:
    objectives = {"timeToFirstToken": ttft, "interTokenLatency": itl, "queueLength": queue}
    return ServiceSpec.model_validate(
        {
            "runtime": {"mode": mode, "profile": "reference"},
            "target": {"model": {"uri": "hf://example/target"}},
            "speculation": {
                "decodingType": kind,
                "maxDraftLen": k,
                "adaptive": {"enabled": adaptive},
                **speculation,
            },
            "serving": {"maxBatchSize": places},
            "autoscaling": {"maxReplicas": most, "objectives": {n: v for n, v in objectives.items() if v is not None}}
            if scaling
            else None,
        }
    )
