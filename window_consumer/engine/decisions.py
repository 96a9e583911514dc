"""What goes into and comes out of an Engine, besides records and slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from attrs import define, field, frozen

from window_consumer.engine.guards.circuit_breaker import (
    BreakerNews,
    BreakerRules,
)
from window_consumer.engine.guards.crash_history import UncleanExits
from window_consumer.engine.guards.stalls import (
    AbandonedReturned,
    Stalled,
    StallRules,
)
from window_consumer.engine.lost_partitions import PartitionOutcomes
from window_consumer.engine.retry.output import Production
from window_consumer.engine.retry.policy import (
    FailedRecord,
    RetryRules,
)
from window_consumer.engine.scheduling.adaptive_concurrency import (
    LimitNews,
    LimitRules,
)
from window_consumer.engine.scheduling.batching import BatchRules
from window_consumer.engine.scheduling.fetch_demand import EnoughRules
from window_consumer.engine.scheduling.rate_limit import RateRules
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.protocols import Commit
from window_consumer.model.record import TopicPartition

OrderingName = Literal["unordered", "key", "partition"]


@frozen
class EngineRules:
    """What the configuration of one worker means to its Engine; bytes and seconds."""

    slots: int
    """The most that may be busy."""
    limit: LimitRules | None = None
    """Set where how many are busy follows from what they get done."""
    rate: RateRules | None = None
    ordering: OrderingName = "unordered"
    retry: RetryRules = field(factory=RetryRules)
    breaker: BreakerRules = field(factory=lambda: BreakerRules(enabled=False))
    stall: StallRules = field(factory=StallRules)
    batch: BatchRules | None = None
    """Set where a handler gets lists of records."""
    window_cells: int = 32
    cell_records: int = 500
    window_bytes: int = 192 * 2**20
    """What ``memory`` leaves beside the client's prefetch."""
    batch_records: int = field()
    """How many records go in one go: from the Source, and to a slot at most."""
    enough: EnoughRules = field(factory=EnoughRules)
    """How much of a partition is held in partition order, while another one waits for records."""
    commit_interval_s: float = 0.5
    hover_s: float = 30.0

    @batch_records.default
    def _measured_batch_records(self) -> int:
        # More gain nothing measurable, fewer cost a hand-over more often. The more keys are out,
        # the more records find theirs busy and have to wait in line.
        return 2000 if self.ordering == "key" else 6000


@frozen
class Assigned:
    """A partition that is ours from now on."""

    name: TopicPartition
    next_offset: int
    finished: Sequence[range] = ()
    """Offsets beyond next_offset that an earlier assignment finished."""
    topic_hash: int = 0
    known_partitions: int = 0
    """How many partitions the topic had when the group first read it."""
    committed: tuple[int, str] | None = None
    """Offset and metadata that the broker holds already; None makes a commit due at once."""
    opened: bool = True
    """What the broker holds says that the partition is in use: dying now is an unclean end."""
    unclean: UncleanExits | None = None
    """Ends that give cause to suspect a record."""
    partitions: int = 0
    """How many partitions the topic has now, 0 where nobody knows."""
    kept: PartitionOutcomes | None = None
    """What this member had finished when it lost the partition, where that still counts:
    ``finished`` is what of it lies beyond next_offset."""


@frozen
class HeadOfLineBlocked:
    """News: a partition's start cell makes no progress."""

    name: TopicPartition
    offset: int
    attempt: int
    age_s: float


@frozen
class Outlived:
    """News: a call was still running when its partition was given up; it changes nothing now."""

    name: TopicPartition
    offset: int
    key: bytes | None
    counts: bool = False
    """It is a copy's call, and only the partition of its source was given up: its result is that of
    a partition that is still ours."""
    abandoned: bool = False
    """It was given up before that, and what becomes of its record was decided then."""
    hangs: bool = False
    """It was known to hang: many of these are one piece of news."""


@frozen
class OwnerAway:
    """News: copies wait, because another member owns the partition of their source."""

    name: TopicPartition
    home: TopicPartition
    copies: int
    seconds: float


@frozen
class OutOfOrderRecords:
    """News: records came after later ones of their partition. They are not handled."""

    name: TopicPartition
    offsets: range
    """From the first to the last of them."""


@define
class Decisions:
    """What the runtime has to carry out, in this order."""

    dispatch: list[Slice] = field(factory=list)
    publish: list[FailedRecord] = field(factory=list)
    produce: list[Production] = field(factory=list)
    """Calls whose results are to be sent."""
    commit: list[Commit] = field(factory=list)
    pause: list[TopicPartition] = field(factory=list)
    resume: list[tuple[TopicPartition, int]] = field(factory=list)
    """With the offset to go on from."""
    failed: list[FailedRecord] = field(factory=list)
    """News: calls that failed since the last tick."""
    hovering: list[HeadOfLineBlocked] = field(factory=list)
    away: list[OwnerAway] = field(factory=list)
    breaker: list[BreakerNews] = field(factory=list)
    limit: LimitNews | None = None
    passed_over: list[OutOfOrderRecords] = field(factory=list)
    stalled: list[Stalled] = field(factory=list)
    """Calls to look at; ``Engine.on_looked_at`` hears where each of them stands."""
    returned: list[AbandonedReturned] = field(factory=list)
    stop: str | None = None
    """Why the worker has to stop, where it has to."""
