"""The inputs and outputs of an Engine, besides records and slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from attrs import define, field, frozen

from window_consumer.engine.commits.delivery_guarantee import DeliveryMode
from window_consumer.engine.commits.lost_partitions import PartitionOutcomes
from window_consumer.engine.guards.breaker_state import BreakerNews, BreakerRules
from window_consumer.engine.guards.crash_history import UncleanExits
from window_consumer.engine.guards.stuck_calls import AbandonedReturned, Stalled, StallRules
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.output import Production
from window_consumer.engine.retry.policy import RetryRules
from window_consumer.engine.scheduling.batching import BatchRules
from window_consumer.engine.scheduling.concurrency.adaptive_concurrency import LimitNews, LimitRules
from window_consumer.engine.scheduling.fetch_demand import EnoughRules
from window_consumer.engine.scheduling.rate_limit import RateRules
from window_consumer.engine.scheduling.shares.share_classes import FairRules
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import WorkerStoppedError
from window_consumer.model.protocols import Commit
from window_consumer.model.record import TopicPartition

OrderingName = Literal["unordered", "key", "partition"]


@frozen
class EngineRules:
    """One worker's configuration as its Engine needs it; in bytes and seconds."""

    slots: int
    """The most slots that may be busy."""
    delivery: DeliveryMode = DeliveryMode.AT_LEAST_ONCE
    limit: LimitRules | None = None
    """Set if the number of busy slots adapts to throughput."""
    rate: RateRules | None = None
    fair: FairRules | None = None
    """Set if classes of records share the slots."""
    ordering: OrderingName = "unordered"
    retry: RetryRules = field(factory=RetryRules)
    breaker: BreakerRules = field(factory=lambda: BreakerRules(enabled=False))
    stall: StallRules = field(factory=StallRules)
    batch: BatchRules | None = None
    """Set if a handler gets lists of records."""
    window_cells: int = 32
    cell_records: int = 500
    window_bytes: int = 192 * 2**20
    """The part of ``memory`` that the client's prefetch leaves."""
    batch_records: int = field()
    """The most records in one batch from the Source, and in one slice."""
    enough: EnoughRules = field(factory=EnoughRules)
    """How many records of a partition are held, in partition order, while another one waits for
    records."""
    commit_interval_s: float = 0.5
    hover_s: float = 30.0

    @batch_records.default
    def _measured_batch_records(self) -> int:
        # More has no measurable benefit; fewer means more hand-overs. The more keys are in
        # progress, the more records find their key busy and wait in line.
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
    """Offset and metadata that the broker already holds; None makes a commit due at once."""
    opened: bool = True
    """The commit that the broker holds marks the partition as in use: a crash is an unclean end."""
    unclean: UncleanExits | None = None
    """Unclean ends that make records suspects."""
    partitions: int = 0
    """How many partitions the topic has now; 0 if unknown."""
    kept: PartitionOutcomes | None = None
    """What this member had finished when it lost the partition, if still valid. ``finished`` is the
    part of it beyond next_offset."""
    topic_id: str | None = None
    """The topic's id, hashed in ``topic_hash``; None if the cluster does not report it."""


@frozen
class HeadOfLineBlocked:
    """A partition's start cell makes no progress."""

    name: TopicPartition
    offset: int
    attempt: int
    age_s: float


@frozen
class Outlived:
    """A call was still running when its partition was released; its result changes nothing."""

    name: TopicPartition
    offset: int
    key: bytes | None
    counts: bool = False
    """It is a copy's call, and only its source partition was released: its result belongs to a
    partition that is still ours."""
    abandoned: bool = False
    """It was abandoned before, and its record's outcome was decided then."""
    hangs: bool = False
    """It was known to hang; many such calls are reported together."""


@frozen
class OwnerAway:
    """Copies wait because another member owns the partition of their source."""

    name: TopicPartition
    home: TopicPartition
    copies: int
    seconds: float


@frozen
class OutOfOrderRecords:
    """Records arrived after later ones of their partition. They are not handled."""

    name: TopicPartition
    offsets: range
    """The range from the first to the last of them."""


@define
class Decisions:
    """What the runtime must do, in this order."""

    dispatch: list[Slice] = field(factory=list)
    publish: list[FailedRecord] = field(factory=list)
    """Records that leave; ``Engine.copy_of`` makes the copy of each."""
    produce: list[Production] = field(factory=list)
    """Calls whose results must be sent."""
    commit: list[Commit] = field(factory=list)
    pause: list[TopicPartition] = field(factory=list)
    resume: list[tuple[TopicPartition, int]] = field(factory=list)
    """With the offset to resume from."""
    failed: list[FailedRecord] = field(factory=list)
    """Calls that failed since the last tick."""
    hovering: list[HeadOfLineBlocked] = field(factory=list)
    away: list[OwnerAway] = field(factory=list)
    breaker: list[BreakerNews] = field(factory=list)
    limit: LimitNews | None = None
    passed_over: list[OutOfOrderRecords] = field(factory=list)
    stalled: list[Stalled] = field(factory=list)
    """Calls to inspect; ``Engine.on_looked_at`` receives the stack of each."""
    returned: list[AbandonedReturned] = field(factory=list)
    stop: WorkerStoppedError | None = None
    """Why the worker must stop; None if it need not. The runtime raises it."""
