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
            "Whether metrics are exported.",
            kind=kinds.boolean(),
            reason="a process with OTEL_METRICS_EXPORTER or an endpoint wants them",
        ),
    )
    spans: bool = field(
        default=True,
        metadata=about(
            "Whether spans are exported: of each slice, with links to the producers' spans, and "
            "of each record whose producer's trace is sampled.",
            kind=kinds.boolean(),
            reason="a process with OTEL_TRACES_EXPORTER or an endpoint wants them",
        ),
    )
    records: float = field(
        default=0.0,
        metadata=about(
            "The share of the other records that also get spans of their own. The choice is the "
            "same for all calls of a record, on its way through the retry topics.",
            kind=kinds.percent(0.0, 1.0),
            reason="where a trace begins decides whether it is worth recording",
        ),
    )
    spans_per_second: int = field(
        default=200,
        metadata=about(
            "The most spans per second, separately for each worker's slices and its records (with "
            "pool: processes, for each process's records). Further spans are dropped and counted.",
            kind=kinds.whole_number(1, 1_000_000),
            reason="a span takes 0.1 to 0.2 ms of a processor, including its export",
        ),
    )
