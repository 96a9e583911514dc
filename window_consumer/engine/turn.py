"""The turn of a delivered record: what happens to it before its first call.

A record's turn comes when its lane is free and it would start. Unless a rule decides otherwise, it
is called. A rule may hold it until a time or until it is released, have it copied elsewhere, let it
leave, or finish it. None of these costs an attempt or a slot, or counts for the breaker. Until it
has its outcome, the later records of its lane wait as usual, unless it is held until released. If
all records of a full window are held until released, the first ones may be copied, too.

Rules are asked about a record at its turn in each topic that delivers it. They are asked again if
it is put back before it starts, or is a copy that a rule holds when its source partition is
released. A record that failed here, or was held, is called without asking again, unless another
record of its lane runs when it is released.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from attrs import define, field, frozen

from window_consumer.engine.guards.pause_rule import RuleFinding
from window_consumer.engine.observer import Observer
from window_consumer.engine.scheduling.lanes import Lane, LaneHold
from window_consumer.engine.windows_snapshot import ParkedKeys
from window_consumer.model.fault import Failure
from window_consumer.model.headers import Reason
from window_consumer.model.outcome import Outcome
from window_consumer.model.protocols import Copy
from window_consumer.model.record import Message, TopicPartition

if TYPE_CHECKING:
    from window_consumer.engine.partition import Partition


@frozen
class HoldUntil:
    """The record is called at a time, in monotonic seconds."""

    due: float


@frozen
class HoldUntilReleased:
    """The record waits until ``Engine.on_released`` names it; its lane is free until then.

    Earlier records of its lane may be in sibling partitions, and would wait for it.
    """


@frozen
class CopyTo:
    """A copy is written; its ack is the record's outcome."""

    copy: Copy
    reason: Reason
    outcome: Outcome


@frozen
class Leave:
    """The record leaves as if a layer had raised this ``NotCalled`` during its call."""

    failure: Failure


@frozen
class Finish:
    """The record has this outcome."""

    outcome: Outcome


MAX_DECIDED: Final = 1000
"""The most records decided about in one tick, and the most copies that may wait to be written: a
decision costs some 10 us, and a copy three times the memory of its record. For copies in levels the
limit is twice as high, so that they do not wait for a backlog of new records."""

Turn = HoldUntil | HoldUntilReleased | CopyTo | Leave | Finish


Release = Callable[[TopicPartition, int, Leave | None], bool]
"""Lets a record that is held until released be called or leave: ``Engine.on_released``."""


class TurnRule(Observer):
    """Decides which records are not called at their turn. Owner: poll thread.

    It is asked about each run of records that would start. Some of these are then put back, so it
    must not conclude from a question that anything happens. It observes what happened, before all
    observers. It decides, so its exceptions stop the worker.
    """

    @abstractmethod
    def turns(
        self, partition: Partition, messages: Sequence[Message], now: float, wall_ms: float
    ) -> Mapping[int, Turn]:
        """Return what happens to the records that are not called, by index.

        The records are of one partition, in the order of their delivery; no rule with precedence
        has decided about them. ``now`` is in monotonic seconds, ``wall_ms`` the same moment in
        milliseconds since 1970.
        """

    def tick(self, now: float) -> None:
        """Called in each tick, before records are asked about; it may release held ones."""

    def rotated(
        self, partition: Partition, held: Iterable[Message], now: float
    ) -> Sequence[tuple[int, CopyTo]]:
        """Return copies of records that make room in a full window, with their offsets.

        Called in each tick while all of the window's records are held until released. ``held``
        yields those at its start, in order; reading the first one sorts the window.
        """
        del partition, held, now
        return ()

    def refused(
        self, partition: Partition, message: Message, refusal: Failure, now: float, wall_ms: float
    ) -> CopyTo | Leave | None:
        """Return what follows when a result of a record was refused; None for the ladder.

        The answer is carried out at once; the call then costs no attempt and does not count for the
        breaker.
        """
        del partition, message, refusal, now, wall_ms
        return None

    def findings(self, now: float) -> Sequence[RuleFinding]:
        """Return findings to display; they pause nothing and end by themselves."""
        del now
        return ()

    def begin(self, release: Release) -> None:
        """Take the function that releases held records, from an Engine without partitions yet."""

    def parked(self, now: float) -> ParkedKeys | None:
        """Return the keys whose records wait for an earlier one, for display; None without any.

        Called for each snapshot, so it must be cheap.
        """
        del now
        return None


@frozen
class DecidedRecord:
    """A record that leaves the normal path at its turn."""

    partition: Partition
    message: Message
    seq: int
    lane: Lane | None
    turn: Turn


@define
class Turns:
    """The rules of a worker, and what they have decided in this tick. Owner: poll thread."""

    rules: list[TurnRule]
    """Earlier rules have precedence: later ones are not asked about records already decided."""
    now: float = 0.0
    wall_ms: float = 0.0
    """The same moment in milliseconds since 1970."""
    decided: list[DecidedRecord] = field(factory=list)
    holds: list[LaneHold] = field(factory=list)
    """The lanes of decided records, released when the decisions are carried out."""
    left: list[Partition] = field(factory=list)
    """Partitions whose further records are asked about in the next tick."""
    was_full: bool = False
    """In the last tick there were such partitions, and others whose records were decided about."""
    leaving: int = 0
    """How many copies waited to be written when the tick began."""

    def begin_tick(self, now: float, wall_ms: float, leaving: int) -> None:
        """Let records be asked about again."""
        self.now, self.wall_ms, self.was_full = now, wall_ms, False
        self.leaving = leaving
        for rule in self.rules:
            rule.tick(now)

    def has_room(self, partition: Partition) -> bool:
        """Return whether another record of a partition may be decided about in this tick."""
        most = 2 * MAX_DECIDED if partition.retry_level.is_copy else MAX_DECIDED
        return self.leaving + len(self.decided) < most

    def of(self, partition: Partition, messages: Sequence[Message]) -> Mapping[int, Turn]:
        """Return the turns of the records that are not called, by index."""
        found: dict[int, Turn] = {}
        for rule in self.rules:
            if not found:
                found.update(rule.turns(partition, messages, self.now, self.wall_ms))
            elif open_ := [index for index in range(len(messages)) if index not in found]:
                asked = [messages[index] for index in open_]
                turns = rule.turns(partition, asked, self.now, self.wall_ms)
                found.update((open_[index], turn) for index, turn in turns.items())
        return found

    def rotated(
        self, partition: Partition, held: Iterable[Message]
    ) -> Iterable[tuple[int, CopyTo]]:
        """Return copies that make room in a full window, see ``TurnRule``."""
        found = (rule.rotated(partition, held, self.now) for rule in self.rules)
        return next((each for each in found if each), ())

    def refused(
        self, partition: Partition, message: Message, refusal: Failure, now: float
    ) -> CopyTo | Leave | None:
        """Return the decision of the first rule that has one about a refusal."""
        wall_ms = self.wall_ms + (now - self.now) * 1000
        found = (each.refused(partition, message, refusal, now, wall_ms) for each in self.rules)
        return next((each for each in found if each is not None), None)

    def findings(self, now: float) -> Iterator[RuleFinding]:
        """Yield the findings of the rules."""
        for rule in self.rules:
            yield from rule.findings(now)

    def parked(self, now: float) -> ParkedKeys | None:
        """Return the display of the rule that parks; None if no rule does."""
        found = (rule.parked(now) for rule in self.rules)
        return next((each for each in found if each is not None), None)
