"""Where a record waits next: in a level, in the window for its last seconds, or nowhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from attrs import field, frozen

from window_consumer.delay.config import DelayConfig
from window_consumer.delay.wish import DelayTooLong, Targets, Wish, wish_of
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.copy_record import Target, TargetOf, place_of
from window_consumer.engine.retry.retry_topics import Level
from window_consumer.engine.turn import CopyTo, HoldUntil, Leave, Turn, TurnRule
from window_consumer.model import headers as names
from window_consumer.model.copy_headers import Hop
from window_consumer.model.errors import NotCalled
from window_consumer.model.fault import Failure
from window_consumer.model.headers import Reason
from window_consumer.model.outcome import Outcome
from window_consumer.model.protocols import Copy
from window_consumer.model.record import Message
from window_consumer.plan.ladder_topics import levels_of

_NEVER_EARLY_MS: Final = 1.0
"""Records are held for so much longer: the times of the client are cut to milliseconds."""

MANY_HOPS: Final = 100
"""If the longest delay takes more, check advises longer levels."""

LONG_LEVELS: Final = (6 * 3600.0, 86_400.0, 7 * 86_400.0)
"""The levels that it advises, in seconds."""

_KEPT: Final = names.KeptHeaders(frozenset({names.TAGS, names.SENT_AT, names.DELIVER_TO}))


@frozen
class Levels:
    """The levels of a delay service, the shortest first."""

    each: tuple[Level, ...]
    precision: Literal["exact", "level"] = "exact"

    @classmethod
    def of(cls, section: DelayConfig) -> Levels:
        """Return the levels of a configuration."""
        return cls(levels_of(section.worker), section.precision)

    def next(self, left_s: float) -> Level | None:
        """Return the level in which a record waits that is due in ``left_s`` seconds.

        None if it is due, or so soon that it waits in the window.
        """
        if self.precision == "level":
            enough = (each for each in self.each if each.delay_s >= left_s)
            return next(enough, self.each[-1]) if left_s > 0 else None
        in_time = [each for each in self.each if each.delay_s <= left_s]
        return in_time[-1] if in_time else None

    def hops(self, delay_s: float) -> int:
        """Return how many levels a record passes that is due in ``delay_s`` seconds."""
        if self.precision == "level":
            longest = self.each[-1].delay_s
            return int(-(-delay_s // longest))
        found = 0
        for level in reversed(self.each):
            times = int(delay_s // level.delay_s)
            found += times
            delay_s -= times * level.delay_s
        return found


@frozen
class DelayRule(TurnRule):
    """Says where a record waits that is not due. Owner: poll thread."""

    section: DelayConfig
    targets: Targets
    target_of: TargetOf
    """Returns the topic of a level."""
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
        role = partition.retry_level
        hop = role.hop_of(message)
        try:
            found = dict(message.headers() or ())
            wish = wish_of(found, hop.timestamp, self.targets)
            left_s = (wish.at_ms - wall_ms) / 1000
            if left_s > self.section.max and not role.is_copy:
                raise DelayTooLong(f"due in {left_s:.0f} s; delay.max is {self.section.max:.0f} s")
        except NotCalled as error:
            return Leave(Failure.uncalled(error))
        level = self.levels.next(left_s)
        if level is not None:
            target = self.target_of(role.source, level)
            return CopyTo(
                self._copy(message, hop, wish, level, target, wall_ms),
                Reason.DELAYED,
                Outcome.DELAYED,
            )
        if left_s <= 0:
            return None
        return HoldUntil(now + left_s + _NEVER_EARLY_MS / 1000)

    def _copy(
        self, message: Message, hop: Hop, wish: Wish, level: Level, target: Target, wall_ms: float
    ) -> Copy:
        headers: list[tuple[str, bytes | None]] = [
            *names.each_once(_KEPT.of(message.headers() or ())),
            (names.DELIVER_AT, b"%d" % wish.at_ms),
            (names.ID, hop.record_id),
            (names.ORIGINAL_TOPIC, hop.origin.topic.encode()),
            (names.ORIGINAL_PARTITION, b"%d" % hop.origin.partition),
            (names.ORIGINAL_OFFSET, b"%d" % hop.offset),
            (names.FORMAT, names.FORMAT_VERSION),
            (names.GROUP, (self.section.group or self.section.topic).encode()),
            (names.LEVEL, level.name.encode()),
            (names.NOT_BEFORE, b"%d" % round(wall_ms + level.delay_s * 1000)),
        ]
        if hop.timestamp is not None:
            headers.append((names.ORIGINAL_TIMESTAMP, b"%d" % hop.timestamp))
        place = place_of(hop.origin.partition, target.partitions)
        return Copy(target.topic, place, message.key(), message.value(), headers)
