"""Metrics in Prometheus' text format, and their reference page.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/ (text, version 0.0.4). Names
follow OpenTelemetry's compatibility rules: dots become underscores, the unit is appended, and so is
``_total`` for counters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Final

from window_consumer.engine.latency_histogram import BOUNDS_S, Histogram
from window_consumer.metrics.catalog import METRICS
from window_consumer.runtime.figures.measures import Measures
from window_consumer.runtime.figures.metric import Metric, MetricKind

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_UNITS: Final = {"s": "_seconds", "By": "_bytes", "1": ""}
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def prometheus_name(metric: Metric) -> str:
    """Return a metric's name in Prometheus."""
    name = metric.name.replace(".", "_")
    # A counted thing, such as {record}, is not a unit there.
    unit = _UNITS.get(metric.unit, "")
    total = "_total" if metric.kind is MetricKind.COUNTER else ""
    return f"{name}{'' if name.endswith(unit) else unit}{total}"


def exposition(
    workers: Sequence[Measures],
    metrics: Iterable[Metric] = METRICS,
    common: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return all metrics of one process's workers; metrics without a figure are omitted.

    All samples have the labels in ``common``.
    """
    lines: list[str] = []
    for metric in metrics:
        asked = workers[:1] if metric.of_process else workers
        samples = [line for worker in asked for line in _samples(metric, worker, common)]
        if samples:
            name = prometheus_name(metric)
            lines += [f"# HELP {name} {metric.meaning}", f"# TYPE {name} {metric.kind}", *samples]
    return "\n".join([*lines, ""])


def joined(texts: Iterable[str]) -> str:
    """Join expositions: the format requires all samples of a metric to be adjacent."""
    families: dict[tuple[str, ...], list[str]] = {}
    for text in texts:
        family: list[str] = []
        for line in text.splitlines():
            if line.startswith("# HELP "):
                head = line
            elif line.startswith("# TYPE "):
                family = families.setdefault((head, line), [])
            else:
                family.append(line)
    lines = [line for head, samples in families.items() for line in (*head, *samples)]
    return "\n".join([*lines, ""])


def _samples(metric: Metric, worker: Measures, common: Mapping[str, str]) -> Iterator[str]:
    name = prometheus_name(metric)
    for values, figure in metric.read(worker):
        own = zip(metric.labels, values, strict=True)
        whose = {} if metric.of_process else {"worker": worker.worker}
        labels = {**common, **whose, **dict(own)}
        if isinstance(figure, Histogram):
            yield from _histogram(name, labels, figure)
        else:
            yield f"{name}{_labels(labels)} {_number(figure)}"


def _histogram(name: str, labels: Mapping[str, str], histogram: Histogram) -> Iterator[str]:
    bounds = [*map(_number, BOUNDS_S), "+Inf"]
    for bound, count in zip(bounds, accumulate(histogram.counts), strict=True):
        yield f"{name}_bucket{_labels({**labels, 'le': bound})} {count}"
    yield f"{name}_sum{_labels(labels)} {_number(histogram.seconds)}"
    yield f"{name}_count{_labels(labels)} {histogram.calls}"


def _labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))


_INTRODUCTION: Final = """\
# Metrics

This page is generated from the list in `window_consumer/metrics/catalog.py`, and from those of
features, by `window-consumer metrics`; change it there.

`health: {listen: 0.0.0.0:8081}` answers `/metrics` in Prometheus' text format. Names and units
follow OpenTelemetry; Prometheus' names are derived from them by its rules. Every sample has the
label `worker`, except those of a whole process, and with `run --processes` the label `process`.
Labels have few values: never keys, offsets or error texts. If a poll thread does not answer within
half a second, its own figures are omitted.

| Prometheus | OpenTelemetry | kind | unit | labels | meaning |
|---|---|---|---|---|---|
"""


def metrics_page(more: Iterable[Metric] = ()) -> str:
    """Return the reference page in Markdown; ``more`` are the metrics of features."""
    return _INTRODUCTION + "".join(map(_row, (*METRICS, *more)))


def _row(metric: Metric) -> str:
    shown = [f"`{label}`" for label in metric.labels]
    labels = ", ".join([*shown, *(["no `worker`"] if metric.of_process else [])])
    names = [metric.name] if metric.convention is None else [metric.name, metric.convention.name]
    theirs = ", ".join(f"`{each}`" for each in names)
    name, unit = prometheus_name(metric), f"`{metric.unit}`"
    return f"| `{name}` | {theirs} | {metric.kind} | {unit} | {labels} | {metric.meaning} |\n"
