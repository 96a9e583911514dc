"""The section ``opentelemetry``: what is exported. The OTEL_* variables say where."""

from __future__ import annotations

from attrs import field, frozen

from window_consumer.config import kinds
from window_consumer.config.options import about


@frozen(kw_only=True)
class OpenTelemetryConfig:
    """What goes to OpenTelemetry, if its OTEL_* variables request it."""

    metrics: bool = field(
        default=True,
        metadata=about(
            "Whether the metrics go there, too.",
            kind=kinds.boolean(),
            reason="who sets OTEL_METRICS_EXPORTER or an endpoint wants them",
        ),
    )
    spans: bool = field(
        default=True,
        metadata=about(
            "Whether there are spans: of each slice, with links to the producers' spans, and of "
            "each record whose producer's trace is sampled.",
            kind=kinds.boolean(),
            reason="who sets OTEL_TRACES_EXPORTER or an endpoint wants them",
        ),
    )
    records: float = field(
        default=0.0,
        metadata=about(
            "The share of the other records that have a span of their own, too. All calls of a "
            "record, on its way through the retry topics, are chosen alike.",
            kind=kinds.percent(0.0, 1.0),
            reason="which traces are worth recording is decided where they begin",
        ),
    )
    spans_per_second: int = field(
        default=200,
        metadata=about(
            "The most spans a second, of each worker's slices and of its records each (with pool: "
            "processes, of each process's records). What is beyond is left out and counted.",
            kind=kinds.whole_number(1, 1_000_000),
            reason="a span takes 0.1 to 0.2 ms of a processor, its export included",
        ),
    )
