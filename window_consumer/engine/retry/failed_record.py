"""A record that failed at least once and has no final outcome yet."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from attrs import define, frozen

from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.policy import Spent, WhenSpent
from window_consumer.engine.retry.record_state import RecordState
from window_consumer.engine.retry.retry_topics import Level
from window_consumer.engine.scheduling.lanes import NO_HOLD, Lane, LaneHold
from window_consumer.model.copy_headers import Hop
from window_consumer.model.errors import RetryLater
from window_consumer.model.fault import Failure
from window_consumer.model.headers import Reason
from window_consumer.model.outcome import Outcome
from window_consumer.model.protocols import Copy
from window_consumer.model.record import Message


class Detail(Enum):
    """How much a copy contains; if one step is too large, the next one is tried."""

    FULL = "full"
    WITHOUT_ERROR_TEXTS = "without error texts"
    REFERENCE = "a reference to the value"


class RecordPlace(Protocol):
    """Where a record is."""

    @property
    def state(self) -> RecordState:
        """The state of all records in it."""

    def remove(self, failed: FailedRecord) -> None:
        """Remove a record, which is in it."""


@frozen
class Nowhere:
    """The place of records outside all others: before their first failure, and at the end."""

    state: RecordState

    def __len__(self) -> int:
        return 0

    def append(self, failed: FailedRecord) -> None:
        """Add a record, which is not kept."""
        failed.place = self

    def remove(self, failed: FailedRecord) -> None:
        """Remove a record."""


@frozen
class Forward:
    """A copy that is written instead of a call."""

    copy: Copy
    outcome: Outcome | None = None
    """The record's outcome once the copy is acked; None for a stray, which moves and is not counted
    (``lane_ownership``)."""


@define(eq=False)
class FailedRecord:
    """A failed record. Owner: poll thread; only ``FailedRecords`` changes its place."""

    partition: Partition
    message: Message
    seq: int
    lane: Lane | None
    attempts: int
    """Handler calls so far, since it was delivered from its current topic."""
    failure: Failure
    """The last failure."""
    first_failure: float
    last_failure: float
    """When it failed first and last, in monotonic seconds."""
    spent: Spent | None = None
    """Why and where it leaves; None while it is called again."""
    due: float = 0.0
    """When it is called or published again, if it waits for that."""
    entry: int | None = None
    """The number of its last entry in ``WaitingRecords``; None once it was removed from there."""
    place: RecordPlace = Nowhere(RecordState.NEW)
    hold: LaneHold = NO_HOLD
    """The hold on its lane, until it has its final outcome."""
    detail: Detail = Detail.FULL
    publish_failures: int = 0
    together: object | None = None
    """Failed records with the same object and the same ``due`` are called again in one batch."""
    deaths: int = 0
    """Handler calls that ended the process of their slot; the attempts include them."""
    first_called_at: float = 0.0
    called_at: float = 0.0
    """When its first and its last call began, in monotonic seconds."""
    in_batch: bool = False
    """Its last call failed for a whole batch: that is no verdict on this record."""
    alone: bool = False
    """It is called alone from now on, also by batch handlers."""
    released: bool = False
    """It leaves if it fails once more, whatever the breaker has found."""
    asked_later: int = 0
    """Handler calls that asked for a later one; the attempts include them."""
    spared: int = 0
    """Attempts that are not charged: the breaker was searching for the cause of many failures."""
    in_doubt: int = 0
    """Spared attempts that are charged after all if the breaker finds poison."""
    uncalled: int = 0
    """Attempts in which no handler was called, see ``CallAgain``."""
    forward: Forward | None = None
    """Set for a record that did not fail here but is copied elsewhere."""

    @property
    def state(self) -> RecordState:
        """Its state, which is that of its place."""
        return self.place.state

    @property
    def reason(self) -> Reason | None:
        """Why it leaves; None while it is called again."""
        return None if self.spent is None else self.spent.reason

    @property
    def level(self) -> Level | None:
        """The retry level that it moves to; None at the end of the ladder."""
        return None if self.spent is None else self.spent.level

    @property
    def end(self) -> WhenSpent:
        """What happens to it at the end of the ladder."""
        return "dead_letter" if self.spent is None else self.spent.end

    @property
    def is_dropped(self) -> bool:
        """It leaves without a copy."""
        spent = self.spent
        return spent is not None and spent.level is None and spent.end == "drop"

    @property
    def is_decided(self) -> bool:
        """False while the breaker may hold it although its attempts are spent."""
        return self.state is not RecordState.HELD_BY_BREAKER

    @property
    def asks_later(self) -> bool:
        """Its last call asked for a later one."""
        return isinstance(self.failure.error, RetryLater)

    @property
    def hop(self) -> Hop:
        """Its history before this delivery."""
        return self.partition.retry_level.hop_of(self.message)

    @property
    def calls(self) -> int:
        """Handler calls so far, over all hops."""
        return self.hop.attempts + self.attempts - self.uncalled

    @property
    def charged(self) -> int:
        """The charged attempts since it was delivered."""
        return self.attempts - self.spared - self.uncalled

    def follow(self, first: FailedRecord, now: float) -> None:
        """Take the history of an earlier record of its lane, with which it is called again."""
        self.attempts, self.failure, self.last_failure = first.attempts, first.failure, now
        self.asked_later, self.uncalled = first.asked_later, first.uncalled
        self.spared, self.in_doubt = first.spared, first.in_doubt
        self.due, self.together = first.due, first.together

    def __str__(self) -> str:
        """Return its name for messages."""
        return f"{self.partition.name}@{self.message.offset()}"
