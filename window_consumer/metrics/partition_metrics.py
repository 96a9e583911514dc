"""The metrics of each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from window_consumer.engine.windows_snapshot import CellState, PartitionSnapshot
from window_consumer.runtime.figures.measures import Measures
from window_consumer.runtime.figures.metric import Metric, MetricKind, Sample


def _gauge(
    name: str, unit: str, meaning: str, of: Callable[[PartitionSnapshot], float | None]
) -> Metric:
    """Return a metric for a figure of each partition; partitions without one are omitted."""

    def read(measures: Measures) -> Iterator[Sample]:
        for each in () if measures.windows is None else measures.windows.partitions:
            value = of(each)
            if value is not None:
                yield (each.name.topic, str(each.name.partition)), value

    return Metric(
        f"window_consumer.partition.{name}",
        MetricKind.GAUGE,
        unit,
        meaning,
        read,
        ("topic", "partition"),
    )


def _cells(measures: Measures) -> Iterator[Sample]:
    for each in () if measures.windows is None else measures.windows.partitions:
        for state in CellState:
            count = sum(cell.state is state for cell in each.cells)
            yield (each.name.topic, str(each.name.partition), state.value), count


PARTITION_METRICS: Final[tuple[Metric, ...]] = (
    _gauge(
        "lag",
        "{record}",
        "Unfinished records of the log; of a retry topic those that are due.",
        lambda each: each.lag.records,
    ),
    _gauge(
        "lag.duration",
        "s",
        "Age of the oldest unfinished record that was read; in a retry topic, since it was due.",
        lambda each: each.lag.seconds,
    ),
    _gauge("unread", "{record}", "Unread records of the log.", lambda each: each.unread),
    _gauge("open", "{record}", "Unfinished records in the window.", lambda each: each.open),
    _gauge(
        "failed",
        "{record}",
        "Records that wait for their next call or for their copy's ack.",
        lambda each: each.failed,
    ),
    _gauge(
        "waits_for_rate",
        "1",
        "1 while only rate_per_process keeps it from starting something.",
        lambda each: float(each.waits_for_rate),
    ),
    _gauge(
        "longest_line",
        "{record}",
        "Records that wait behind another one of their key, for the key with the most of them.",
        lambda each: each.longest_line,
    ),
    _gauge(
        "buffered",
        "{record}",
        "Records that were read but are not in the window: it is full, or they are not due.",
        lambda each: each.buffered,
    ),
    _gauge("memory", "By", "Held payload of the partition.", lambda each: each.bytes),
    _gauge(
        "paused",
        "1",
        "1 while fetching is paused because too much is held.",
        lambda each: float(each.paused),
    ),
    _gauge(
        "halted",
        "1",
        "1 while a person has paused the partition, or its worker.",
        lambda each: float(each.halted),
    ),
    _gauge(
        "hovering",
        "s",
        "How long the window's start cell has made no progress.",
        lambda each: each.hovering_s,
    ),
    Metric(
        "window_consumer.partition.cells",
        MetricKind.GAUGE,
        "{cell}",
        "Cells of the window by state.",
        _cells,
        ("topic", "partition", "state"),
    ),
)
