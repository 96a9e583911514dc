"""The parts of the framework that a simulation tests.

Tests of the simulator plant a bug in one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import frozen

from window_consumer.audit.consumer import AuditRules, WriteRows
from window_consumer.dlq.redrive import Redrive
from window_consumer.engine.commits.lost_partitions import KeptOutcomes
from window_consumer.engine.engine import Engine, MakeEngine
from window_consumer.engine.observer import Observer
from window_consumer.engine.retry.copy_record import CopyOrigin, Target, copy_of
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.retry_topics import RetryTopicLevel, is_read_on
from window_consumer.model.offset_ranges import Span
from window_consumer.model.protocols import Copy
from window_consumer.model.record import TopicPartition
from window_consumer.parking.rules import Parking
from window_consumer.parking.scans import LadderReader, LadderScans
from window_consumer.replay.copies import ReplayCopies, ReplayTarget
from window_consumer.replay.ranges import LastRun, Ranges, remaining
from window_consumer.replay.replay import Replay
from window_consumer.runtime.writing.exactly_once import TransactionOutlet

ReadsOn = Callable[[RetryTopicLevel, int | None], bool]
"""Returns whether to read a retry topic without a configured level; see ``is_read_on``."""

MakeCopy = Callable[[FailedRecord, CopyOrigin, Target, float], Copy]
MakeRedrive = Callable[..., Redrive]
MakeReplay = Callable[..., Replay]
Remaining = Callable[[LastRun, Mapping[TopicPartition, Span]], Ranges]
"""Returns the rest of an interrupted replay."""


MakeParking = Callable[..., Parking]
MakeScans = Callable[
    [LadderReader, Callable[[Callable[[], None]], None], Callable[[], float]], LadderScans
]

MakeAudit = Callable[[str, AuditRules, WriteRows, Callable[[], float]], Observer]


@frozen
class SystemUnderTest:
    """The parts that a simulation runs."""

    make_engine: MakeEngine = Engine
    make_copy: MakeCopy = copy_of
    make_redrive: MakeRedrive = Redrive
    make_replay: MakeReplay = Replay
    make_replay_copies: Callable[[ReplayTarget], ReplayCopies] = ReplayCopies
    remaining: Remaining = remaining
    reads_on: ReadsOn = is_read_on
    make_kept: Callable[[bool], KeptOutcomes] = lambda ordered: KeptOutcomes(ordered=ordered)
    make_transactions: Callable[..., TransactionOutlet] = TransactionOutlet
    make_parking: MakeParking = Parking
    make_scans: MakeScans = LadderScans
    make_audit: MakeAudit | None = None
    """None keeps no audit: searches for other bugs are faster without it."""
