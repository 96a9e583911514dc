"""Tasks that read their share of a range themselves, and the division of a range into shares.

The client reads a partition several times as fast as Spark does through Java and Arrow, with the
worker's own properties.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.errors import RunError
from window_consumer.model.offset_ranges import Span
from window_consumer.model.record import Message, TopicPartition
from window_consumer.plan.start_timeout import LOGGER
from window_consumer.spark.backfill.messages import copies_of
from window_consumer.spark.backfill.ranges import Spans, count_of
from window_consumer.spark.backfill.task import Piece, WorkerPlan, directories, run, unpacked

if TYPE_CHECKING:
    import pyarrow as pa

Share = Mapping[int, Span]
"""The offsets of each partition that one task runs."""


class RecordsGoneError(RunError):
    """Retention has removed records of the range."""

    code = "WC182"


def shared_out(spans: Spans, tasks: int, *, may_split: bool) -> list[Share]:
    """Divide a range among at most ``tasks`` tasks, about equally.

    A partition is split only if it ``may_split``; otherwise one task calls its records in order.
    """
    most = -(-count_of(spans) // tasks) if may_split else count_of(spans)
    pieces = [
        (partition, Span(first, min(first + most, span.end)))
        for partition, span in sorted(spans.items())
        for first in range(span.first, span.end, max(1, most))
    ]
    shares: list[dict[int, Span]] = [{} for _ in range(min(tasks, len(pieces)))]
    for partition, span in sorted(pieces, key=lambda piece: -piece[1].count):
        # A task reads one piece of a partition. There are never more pieces than shares.
        free = [each for each in shares if partition not in each]
        min(free, key=count_of)[partition] = span
    return list(shares)


@frozen
class ShareTask:
    """The function that Spark calls in each task: it reads the share whose number it gets."""

    path: tuple[str, ...]
    plan: bytes = field(repr=False)
    """A pickled WorkerPlan, the consumer's properties, and all shares; see
    ``task.BackfillTask``.
    """

    @classmethod
    def of(
        cls,
        plan: WorkerPlan,
        consumer: Mapping[str, Any],
        shares: Sequence[Share],
        *,
        skip_lost: bool = False,
    ) -> ShareTask:
        """Return the task for these shares."""
        return cls(directories(), pickle.dumps((plan, dict(consumer), list(shares), skip_lost)))

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the outcome of each record of a share, in no order."""
        plan, consumer, shares, skip_lost = unpacked(self.path, self.plan)
        log = ClientLog(LOGGER.getChild("client"), plan.child_spec.mask)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with TopicReader(consumer, log) as reader:
                    records = _read(reader, plan.topic, shares[number], skip_lost=skip_lost)
                    yield from run(plan, _pieces(records, plan))


def _pieces(records: Iterator[list[Message]], plan: WorkerPlan) -> Iterator[Piece]:
    """Yield records as they come, in small pieces where the rate is limited."""
    most = None if plan.rate_per_s is None else max(1, int(plan.rate_per_s))
    for messages in records:
        for start in range(0, len(messages), most or len(messages)):
            part = messages[start : start + most] if most else messages
            yield copies_of(part, plan.topic)


def _read(
    reader: TopicReader, topic: str, share: Share, *, skip_lost: bool
) -> Iterator[list[Message]]:
    names = {TopicPartition(topic, partition): span for partition, span in share.items()}
    if not skip_lost:
        logs = reader.spans(topic)
        for name, span in names.items():
            log = logs.get(name, Span(0, 0))
            if log.first > span.first or log.end < span.end:
                raise RecordsGoneError(
                    f"{name}: offsets {span.first} to {span.end} were requested, but the log now"
                    f" has {log.first} to {log.end}: retention or a deletion has removed records;"
                    " --skip-lost continues without them"
                )
    return reader.read(names)
