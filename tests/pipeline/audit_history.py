"""A topic, its writers and readers, as their audits count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from attrs import define, field

from window_consumer.audit.count import AuditCount, CountTier, encode, signed64
from window_consumer.audit.spark import counts as audit
from window_consumer.audit.sums import id_hash
from window_consumer.spark import tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MINUTE_MS = 60_000
NOON_MS = 1_767_355_200_000
"""The first bucket."""


@define
class Story:
    """Counts of one topic, in the order of what happens. Owner: a test."""

    topic: str
    with_ids: bool = True
    written: list[tuple[float, AuditCount]] = field(factory=list)
    """The counts, and how many milliseconds after the first bucket they came to Kafka."""
    sequences: defaultdict[tuple[str, str], int] = field(factory=lambda: defaultdict(int))
    ends: defaultdict[int, int] = field(factory=lambda: defaultdict(int))
    held: list[tuple[Any, ...]] = field(factory=list)
    """The group's unfinished records, as ``audit_places.HELD``."""

    @property
    def group(self) -> str:
        """The consumer group."""
        return f"readers-of-{self.topic}"

    def produce(
        self,
        bucket: int,
        ids: Sequence[str],
        *,
        partition: int = 0,
        counted: bool = True,
        **more: Any,
    ) -> range:
        """Write records, and count them; return their offsets."""
        first = self.ends[partition]
        self.ends[partition] += len(ids)
        if counted:
            self.count(
                CountTier.PRODUCED, bucket, ids, partition=partition, **{"client": "web", **more}
            )
        return range(first, self.ends[partition])

    def consume(
        self, bucket: int, ids: Sequence[str], offsets: range, *, partition: int = 0, **more: Any
    ) -> None:
        """Count records that were read."""
        of_reader = {"group": self.group, "client": "worker", "epoch_ms": 1}
        given = {"tier": CountTier.FINISHED, **of_reader, **more}
        given["offsets"] = ((offsets.start, offsets.stop),)
        self.count(given.pop("tier"), bucket, ids, partition=partition, **given)

    def through(self, bucket: int, ids: Sequence[str], *, partition: int = 0, **more: Any) -> None:
        """Write records, and read them."""
        self.consume(
            bucket, ids, self.produce(bucket, ids, partition=partition), partition=partition, **more
        )

    def hold(self, offsets: range, *, partition: int = 0, anytime: bool = False) -> None:
        """Make the group's commits list these as unfinished."""
        place = self.group, self.topic, partition
        self.held.append((*place, Decimal(0), offsets.start, offsets.stop, anytime))

    def end(self) -> None:
        """Count nothing more: the last count of a worker that ends in order."""
        self.count(CountTier.FINISHED, 0, (), client="worker", topic="", final=True)

    def count(
        self,
        tier: CountTier,
        bucket: int,
        records: Iterable[str],
        *,
        at: float | None = None,
        **more: Any,
    ) -> None:
        """Count records, by their ids; the count comes when its bucket ends, or ``at`` a minute."""
        hashes = [id_hash(each.encode()) for each in records]
        xor = 0
        for each in hashes:
            xor ^= each
        given: dict[str, Any] = {"incarnation": "1", "topic": self.topic, **more}
        given["client"] += f"-of-{self.topic}"
        who = given["client"], given["incarnation"]
        self.sequences[who] += 1
        length_ms = given.pop("length_ms", MINUTE_MS)
        start_ms = NOON_MS + bucket * MINUTE_MS
        count = AuditCount(
            sequence=self.sequences[who],
            tier=tier,
            app="shop",
            instance=f"{given['client']}-host:1",
            bucket_ms=start_ms - start_ms % length_ms,
            length_ms=length_ms,
            count=given.pop("count", len(hashes)),
            id_xor=signed64(xor) if self.with_ids else None,
            id_sum=signed64(sum(hashes)) if self.with_ids else None,
            **given,
        )
        arrived = bucket + 1 if at is None else at
        self.written.append((arrived * MINUTE_MS + 1000, count))


def counted(spark: SparkSession, stories: Iterable[Story]) -> DataFrame:
    """Return the stories' counts as the pipeline's table has them."""
    rows = [
        (encode([count]), datetime.fromtimestamp((NOON_MS + after_ms) / 1000, UTC))
        for story in stories
        for after_ms, count in story.written
    ]
    records = spark.createDataFrame(rows, "value binary, timestamp timestamp")
    return audit.counts(tables.readable(audit.read(records)))
