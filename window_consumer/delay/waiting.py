"""Where a record waits next: in a level, in the window for its last seconds, or not at all.

A due record whose target refuses it waits in short levels, one after another, until the target
accepts it or ``delay.max`` has passed since it was due.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from attrs import field, frozen

from window_consumer.config import format_duration
from window_consumer.delay.config import DelayConfig
from window_consumer.delay.copies import LevelCopies
from window_consumer.delay.refusing_targets import RefusingTargets
from window_consumer.delay.request import (
    DelayRequest,
    DelayTooLong,
    TargetRefused,
    Targets,
    request_of,
)
from window_consumer.engine.guards.pause_rule import RuleFinding
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.retry_topics import Level
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.engine.turn import CopyTo, HoldUntil, Leave, Release, Turn, TurnRule
from window_consumer.model import headers as names
from window_consumer.model.copy_headers import Hop
from window_consumer.model.errors import NotCalled, ResultRefusedError
from window_consumer.model.fault import Failure
from window_consumer.model.header_values import text
from window_consumer.model.headers import Reason
from window_consumer.model.outcome import Outcome
from window_consumer.model.record import Message
from window_consumer.plan.ladder_topics import levels_of

_NEVER_EARLY_MS: Final = 1.0
"""Records are held this much longer because the client truncates times to milliseconds."""

_LONGEST_TRY_S: Final = 600.0
"""The longest wait before a refused record is tried again; the wait grows with the time that the
record is overdue. So a restored target gets it soon, and a day of waiting costs about 150
copies."""

MANY_HOPS: Final = 100
"""If the longest delay takes more hops, ``check`` recommends longer levels."""

LONG_LEVELS: Final = (6 * 3600.0, 86_400.0, 7 * 86_400.0)
"""The levels that ``check`` recommends, in seconds."""


@frozen
class Levels:
    """The levels of a delay service, shortest first."""

    each: tuple[Level, ...]
    precision: Literal["exact", "level"] = "exact"

    @classmethod
    def of(cls, section: DelayConfig) -> Levels:
        """Return the levels of a configuration."""
        return cls(levels_of(section.worker), section.precision)

    def next(self, left_s: float) -> Level | None:
        """Return the level for a record that is due in ``left_s`` seconds.

        None if it is due, or so soon that it waits in the window.
        """
        if self.precision == "level":
            enough = (each for each in self.each if each.delay_s >= left_s)
            return next(enough, self.each[-1]) if left_s > 0 else None
        in_time = [each for each in self.each if each.delay_s <= left_s]
        return in_time[-1] if in_time else None

    def again(self, overdue_s: float) -> Level:
        """Return the level in which a refused record waits for its next try."""
        longest_s = min(overdue_s, _LONGEST_TRY_S)
        return next(
            (each for each in reversed(self.each) if each.delay_s <= longest_s), self.each[0]
        )

    def hops(self, delay_s: float) -> int:
        """Return how many levels a record with this delay passes."""
        if self.precision == "level":
            longest = self.each[-1].delay_s
            return int(-(-delay_s // longest))
        found = 0
        for level in reversed(self.each):
            times = int(delay_s // level.delay_s)
            found += times
            delay_s -= times * level.delay_s
        return found


@frozen(eq=False)
class DelayRule(TurnRule):
    """Decides where a record waits until it is due or its target accepts it. Owner: poll thread."""

    section: DelayConfig
    targets: Targets
    copies: LevelCopies
    refusing: RefusingTargets
    levels: Levels = field(init=False)

    @levels.default
    def _levels(self) -> Levels:
        return Levels.of(self.section)

    def turns(
        self, partition: Partition, messages: Sequence[Message], now: float, wall_ms: float
    ) -> Mapping[int, Turn]:
        """See TurnRule."""
        found: dict[int, Turn] = {}
        for index, message in enumerate(messages):
            turn = self._turn(partition, message, now, wall_ms)
            if turn is not None:
                found[index] = turn
        return found

    def _turn(
        self, partition: Partition, message: Message, now: float, wall_ms: float
    ) -> Turn | None:
        hop = partition.retry_level.hop_of(message)
        try:
            request = self._request(message, hop)
            left_s = (request.at_ms - wall_ms) / 1000
            if left_s > self.section.max and not partition.retry_level.is_copy:
                raise DelayTooLong(f"due in {left_s:.0f} s; delay.max is {self.section.max:.0f} s")
        except NotCalled as error:
            return Leave(Failure.uncalled(error))
        level = self.levels.next(left_s)
        if level is not None:
            return self._moved(message, hop, request, level, wall_ms)
        why = self.refusing.why_not(request.target)
        if left_s > 0 and why is None:
            return HoldUntil(now + left_s + _NEVER_EARLY_MS / 1000)
        if left_s <= 0 and self.refusing.may_try(request.target, hop, now):
            return None
        if why is None:  # unknown, and enough other records are trying it
            level = self.levels.again(-left_s)
            return self._moved(message, hop, request, level, wall_ms)
        self.refusing.add(request.target, hop)
        return self._refused(message, hop, request, wall_ms, why)

    def refused(
        self, partition: Partition, message: Message, refusal: Failure, now: float, wall_ms: float
    ) -> CopyTo | Leave | None:
        """See TurnRule: the record waits without an attempt; records for other targets proceed."""
        hop = partition.retry_level.hop_of(message)
        request, error = self._request(message, hop), refusal.error
        of_topic = isinstance(error, ResultRefusedError) and error.of_topic
        self.refusing.refused(request.target, str(error), hop, now, of_topic=of_topic)
        return self._refused(message, hop, request, wall_ms, str(error))

    def _refused(
        self, message: Message, hop: Hop, request: DelayRequest, wall_ms: float, why: str
    ) -> CopyTo | Leave:
        overdue_s = (wall_ms - request.at_ms) / 1000
        if overdue_s > self.section.max:
            longest = format_duration(self.section.max)
            error = TargetRefused(
                f"still refused when delay.max ({longest}) had passed since it was due: {why}"
            )
            return Leave(Failure.uncalled(error))
        level = self.levels.again(overdue_s)
        return self._moved(message, hop, request, level, wall_ms)

    def _request(self, message: Message, hop: Hop) -> DelayRequest:
        return request_of(dict(message.headers() or ()), hop.timestamp, self.targets)

    def _moved(
        self, message: Message, hop: Hop, request: DelayRequest, level: Level, wall_ms: float
    ) -> CopyTo:
        record = message.key(), message.value(), message.headers() or ()
        copy = self.copies.copy(record, hop, request.at_ms, level, wall_ms)
        return CopyTo(copy, Reason.DELAYED, Outcome.DELAYED)

    def finished(
        self,
        partition: Partition,
        messages: Sequence[Message],
        outcome: Outcome,
        slice_: Slice | None,
        now: float,
    ) -> None:
        """See Observer: their targets accept records."""
        del slice_, now
        if self.refusing:
            for message in messages:
                self._over(partition, message, taken=outcome.calls_handler)

    def left(self, failed: FailedRecord, outcome: Outcome, now: float) -> None:
        """See Observer: dead letters no longer wait."""
        del now
        if self.refusing and outcome is not Outcome.DELAYED:
            self._over(failed.partition, failed.message, taken=False)

    def _over(self, partition: Partition, message: Message, *, taken: bool) -> None:
        target = text(dict(message.headers() or ()).get(names.DELIVER_TO))
        if target is not None:
            hop = partition.retry_level.hop_of(message)
            self.refusing.over(target, hop, taken=taken)

    def given_up(self, partition: Partition, now: float) -> None:
        """See Observer: its records wait elsewhere."""
        del now
        self.refusing.given_up(partition.name.partition)

    def begin(self, release: Release) -> None:
        """See TurnRule."""
        del release
        self.refusing.clear()

    def findings(self, now: float) -> Sequence[RuleFinding]:
        """See TurnRule."""
        return self.refusing.findings(now)
