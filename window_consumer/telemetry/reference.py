"""The reference page of the metrics, made from their list."""

from __future__ import annotations

from typing import Final

from window_consumer.telemetry.exposition import prometheus_name
from window_consumer.telemetry.metric import Metric
from window_consumer.telemetry.metrics import METRICS

_INTRODUCTION: Final = """\
# Metrics

This page is generated from the list in `window_consumer/telemetry/metrics.py` by
`window-consumer metrics`; change it there.

`health: {listen: 0.0.0.0:8081}` answers `/metrics` in Prometheus' text format. Names and units
follow OpenTelemetry; Prometheus' names are made of them by its rules. Every sample has the label
`worker`, but those of a whole process, and `process` with `run --processes`. Labels have few
values: never keys, offsets or texts of errors. Where a poll thread does not answer within half a
second, what only it knows is left out.

| Prometheus | OpenTelemetry | kind | unit | labels | meaning |
|---|---|---|---|---|---|
"""


def metrics_page() -> str:
    """Return the reference page, in Markdown."""
    return _INTRODUCTION + "".join(map(_row, METRICS))


def _row(metric: Metric) -> str:
    shown = [f"`{label}`" for label in metric.labels]
    labels = ", ".join([*shown, *(["no `worker`"] if metric.of_process else [])])
    names = [metric.name] if metric.convention is None else [metric.name, metric.convention.name]
    theirs = ", ".join(f"`{each}`" for each in names)
    name, unit = prometheus_name(metric), f"`{metric.unit}`"
    return f"| `{name}` | {theirs} | {metric.kind} | {unit} | {labels} | {metric.meaning} |\n"
