"""The copies of delayed records that wait in levels."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from window_consumer.engine.retry.copy_record import TargetOf, place_of
from window_consumer.engine.retry.retry_topics import Level
from window_consumer.model import headers as names
from window_consumer.model.copy_headers import Hop
from window_consumer.model.protocols import Copy, Headers

_KEPT: Final = names.KeptHeaders(frozenset({names.TAGS, names.SENT_AT, names.DELIVER_TO}))


@frozen
class LevelCopies:
    """Makes the copies for the levels of one service."""

    source: str
    """The service's own topic."""
    group: str
    target_of: TargetOf
    """Returns the topic of a level."""

    def copy(
        self,
        record: tuple[bytes | None, bytes | None, Headers],
        hop: Hop,
        at_ms: int,
        level: Level,
        wall_ms: float,
    ) -> Copy:
        """Return the copy of a record with this key, value and headers, which is due at ``at_ms``.

        The wait begins at ``wall_ms``; both are in milliseconds since 1970.
        """
        key, value, given = record
        headers: list[tuple[str, bytes | None]] = [
            *names.each_once(_KEPT.of(given)),
            (names.DELIVER_AT, b"%d" % at_ms),
            (names.ID, hop.record_id),
            (names.ORIGINAL_TOPIC, hop.origin.topic.encode()),
            (names.ORIGINAL_PARTITION, b"%d" % hop.origin.partition),
            (names.ORIGINAL_OFFSET, b"%d" % hop.offset),
            (names.FORMAT, names.FORMAT_VERSION),
            (names.GROUP, self.group.encode()),
            (names.LEVEL, level.name.encode()),
            (names.NOT_BEFORE, b"%d" % round(wall_ms + level.delay_s * 1000)),
        ]
        if hop.timestamp is not None:
            headers.append((names.ORIGINAL_TIMESTAMP, b"%d" % hop.timestamp))
        target = self.target_of(self.source, level)
        place = place_of(hop.origin.partition, target.partitions)
        return Copy(target.topic, place, key, value, headers)
