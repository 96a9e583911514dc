"""What a simulation knows about each record, log and assignment, independent of the Engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from enum import Enum
from typing import Protocol
from zlib import crc32

from attrs import frozen

from window_consumer.engine.commits.commit_metadata import CommitNote
from window_consumer.engine.decisions import EngineRules
from window_consumer.engine.engine import Engine
from window_consumer.engine.partition import Partition
from window_consumer.model import headers as names
from window_consumer.model.copy_headers import Hop
from window_consumer.model.header_values import count
from window_consumer.model.protocols import Commit
from window_consumer.model.record import TopicPartition
from window_consumer.testing.fakes.log import FakeLog, FakeMessage
from window_consumer.testing.fakes.source import FakeSource

Lane = Hashable


class Member(Protocol):
    """The view that watches have of a simulated member. It is hashed by identity."""

    dead: bool
    slices_out: int
    """After its last turn."""

    @property
    def engine(self) -> Engine:
        """Its Engine."""

    @property
    def rules(self) -> EngineRules:
        """The rules of the configuration that it started with."""

    @property
    def source(self) -> FakeSource:
        """Its Source."""

    @property
    def largest_batch(self) -> int:
        """The most bytes that one poll has returned."""


class KnownRecord:
    """A record that was produced."""

    __slots__ = (
        "called",
        "deadly",
        "excused",
        "first",
        "handled",
        "hop",
        "ledger",
        "message",
        "named_ends",
        "poison",
        "reborn",
        "redrives",
        "written_ms",
    )

    def __init__(
        self,
        ledger: LogLedger,
        message: FakeMessage,
        hop: Hop,
        written_ms: float,
        *,
        poison: bool,
        copy_of: KnownRecord | None = None,
    ):
        self.ledger = ledger
        self.message = message
        self.hop = hop
        """Its origin and its earlier failures."""
        self.first: KnownRecord = self if copy_of is None else copy_of.first
        """The record of the source topic that this is a copy of, over all hops."""
        self.redrives: int = _redrives(message) if copy_of is None else copy_of.redrives
        """How often it was redriven."""
        self.written_ms = written_ms
        self.poison = poison
        """Every call for it fails."""
        self.deadly = False
        """Every call for it ends the process."""
        self.named_ends = 0
        """How often a commit named it as started alone when its partition ended uncleanly."""
        self.called = False
        """A call for it has begun."""
        self.handled = False
        """An assignment has given it a final outcome."""
        self.reborn = message.offset() < ledger.excused_below
        """Its offset was another record's before the log was cut, and the two look the same."""
        self.excused = self.reborn
        """It need not be handled: the log lost it, or a rule or an administrator skipped it."""


class LogLedger:
    """Everything about one log."""

    __slots__ = ("doubtful", "durable", "entry", "excused_below", "log", "records")

    def __init__(self, log: FakeLog):
        self.log = log
        self.records: dict[int, KnownRecord] = {}
        self.durable: set[int] = set()
        """Offsets that are finished according to the group's committed offset and metadata."""
        self.doubtful: set[int] = set()
        """Formerly durable offsets: the log was cut below the end of their ranges."""
        self.entry: Commit | None = None
        """The last commit."""
        self.excused_below = 0
        """Offsets below this were reused after the log was cut."""

    def check_ranges(self, note: CommitNote) -> None:
        """Set whether an assignment that begins now uses the committed ranges.

        While the log ends below them, it is unknown which records they mean. If nothing else is
        committed until the log has grown beyond them, they are valid again.
        """
        if note.finished[-1].stop > self.log.end:
            self.doubtful |= {o for o in self.durable if o >= note.next_offset}
            self.durable -= self.doubtful
            return
        ranges = note.finished
        self.durable |= {o for o in self.doubtful if any(o in each for each in ranges)}
        self.doubtful.clear()


@frozen
class LostAssignment:
    """A member's knowledge of a partition when it lost it."""

    at: float
    finished: set[int]
    """The offsets whose outcomes it had."""


class Tenure:
    """One assignment of one partition to one member, from the first record to the last commit."""

    __slots__ = (
        "abandoned",
        "attempts",
        "committed_to",
        "deaths",
        "delivered",
        "dropped",
        "durable",
        "entry",
        "excused_below",
        "final",
        "kept",
        "last_failures",
        "leaving",
        "ledger",
        "lines",
        "lost",
        "member",
        "name",
        "never_again",
        "next_offset",
        "partition",
        "restarted",
        "running",
        "sent",
        "start",
    )

    def __init__(self, member: Member, partition: Partition, ledger: LogLedger):
        self.member = member
        self.partition = partition
        """The Engine's partition: its identity is the epoch."""
        self.name: TopicPartition = partition.name
        self.ledger = ledger
        self.start = self.next_offset = self.committed_to = partition.window.next_offset
        self.restarted = False
        """It begins below the committed offset: the log was cut, or recreated."""
        self.durable = set(ledger.durable)
        """The offsets that were finished and committed when it began."""
        self.kept: set[int] = set()
        """The offsets that this member had finished when it lost the partition, if they may still
        count."""
        self.never_again: set[int] = set()
        """The offsets of ``kept`` that must not be called again."""
        self.entry = ledger.entry
        """The last commit when it began."""
        self.excused_below = ledger.excused_below
        """The log's value at that time, to detect a later cut."""
        self.sent: list[Commit] = []
        self.lost: LostAssignment | None = None
        """Set when the partition was lost."""
        self.delivered: dict[int, KnownRecord] = {}
        self.final: set[int] = set()
        """Offsets with a final outcome from this assignment."""
        self.running: set[int] = set()
        self.abandoned: set[int] = set()
        """Offsets whose call was abandoned."""
        self.dropped: set[int] = set()
        """The offsets in ``final`` that may be called once more instead of being dropped."""
        self.attempts: dict[int, int] = {}
        self.deaths: dict[int, int] = {}
        """How often a slot's process died with this record alone in progress."""
        self.last_failures: dict[int, tuple[float, Exception | None, int]] = {}
        """When a record's last call failed, its error, and how many calls had not been charged."""
        self.leaving: set[int] = set()
        """Offsets whose attempts are spent: their copies may be written."""
        self.lines: dict[Lane, deque[int]] = {}
        """Delivered offsets of each lane; the first is not over."""

    @property
    def current(self) -> bool:
        """Whether the member still has it."""
        member = self.member
        return not member.dead and member.engine.partitions.get(self.name) is self.partition

    def is_over(self, offset: int) -> bool:
        """Return whether nothing more happens to a record in this assignment."""
        return offset in self.final or offset in self.durable or offset in self.kept

    def spared(self, offset: int) -> int:
        """Return how many calls of a record the breaker spared; 0 if the record is over."""
        partition = self.partition
        records = self.member.engine.failed_records.of(partition)
        failed = records.get(partition.window.offsets.seq_of(offset))
        return 0 if failed is None else failed.spared


HOLD_MS = 300.0


class TurnKind(Enum):
    """What happens to a record at its turn, the same wherever it is delivered."""

    HOLD = "hold"
    LEAVE = "leave"
    DROP = "drop"
    FINISH = "finish"


def kind_of(hop: Hop, share: float) -> TurnKind | None:
    """Return a record's kind; None for those that are called as usual."""
    number = crc32(f"{hop.origin}@{hop.offset}".encode())
    if number / 2**32 >= share:
        return None
    return list(TurnKind)[number % len(TurnKind)]


def due_ms(record: KnownRecord) -> float:
    """Return until when a record is held; None if it is not."""
    return record.written_ms + HOLD_MS


class SimulatedCall:
    """A running handler call."""

    __slots__ = ("at_turn", "attempt", "batch", "lane", "offset", "record", "tenure")

    def __init__(self, tenure: Tenure, record: KnownRecord, lane: Lane | None, attempt: int):
        self.tenure = tenure
        self.record = record
        self.offset = record.message.offset()
        self.lane = lane
        self.attempt = attempt
        self.batch: str | None = None
        """The batch's number, if a batch handler is called."""
        self.at_turn = False
        """No handler is called: a rule ends the record at its turn."""


def _redrives(message: FakeMessage) -> int:
    """Return how often a source record's header says that it was redriven."""
    return count(dict(message.headers() or ()).get(names.REDRIVES)) or 0
