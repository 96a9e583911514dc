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
    """Return a metric for a figure of each partition; partitions without one are left out."""

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
        "Records of the log that are not finished; of a retry topic those that are due.",
        lambda each: each.lag.records,
    ),
    _gauge(
        "lag.duration",
        "s",
        "The age of the oldest record that was read and is not finished; of a retry topic since"
        " it was due.",
        lambda each: each.lag.seconds,
    ),
    _gauge(
        "unread", "{record}", "Records of the log that were not read.", lambda each: each.unread
    ),
    _gauge(
        "open", "{record}", "Records in the window that are not finished.", lambda each: each.open
    ),
    _gauge(
        "failed",
        "{record}",
        "Records that wait for their next call or for their copy's ack.",
        lambda each: each.failed,
    ),
    _gauge(
        "waits_for_rate",
        "1",
        "1 while it could start something but for rate_per_process.",
        lambda each: float(each.waits_for_rate),
    ),
    _gauge(
        "longest_line",
        "{record}",
        "Records that wait behind another one of their key, of the key of which most do.",
        lambda each: each.longest_line,
    ),
    _gauge(
        "buffered",
        "{record}",
        "Records that were read and are not in the window: it is full, or they are not due.",
        lambda each: each.buffered,
    ),
    _gauge("memory", "By", "Payload that is held of the partition.", lambda each: each.bytes),
    _gauge(
        "paused",
        "1",
        "1 while nothing is fetched because too much is held.",
        lambda each: float(each.paused),
    ),
    _gauge(
        "halted",
        "1",
        "1 while nothing is started because a person has paused the partition, or its worker.",
        lambda each: float(each.halted),
    ),
    _gauge(
        "hovering",
        "s",
        "For how long nothing has become of the window's start cell.",
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
