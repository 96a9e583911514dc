"""A replay's copy of a record: as if the group had put it into its own ladder."""

from __future__ import annotations

from typing import NamedTuple

from attrs import define, field, frozen

from window_consumer.engine.retry.copy_record import place_of
from window_consumer.model import headers as names
from window_consumer.model.protocols import Copy
from window_consumer.model.record import TIMESTAMP_NOT_AVAILABLE, Message
from window_consumer.model.record_identity import RecordOrigin, given_id

_KEPT = names.KeptHeaders(
    frozenset({names.TAGS, names.SENT_AT, names.HEADERS_LOST}) | names.DELIVERY
)


@frozen
class ReplayTarget:
    """Where copies go, and the headers about their run."""

    source: str
    topic_id: str
    """The id of the source topic; empty if the cluster does not report it."""
    entry: str
    partitions: int
    """The number of partitions of the entry topic."""
    group: str
    run: str
    new_ids: bool = False
    """Copies count as new records for ``once`` and for handlers that keep ids."""


class _PartitionCopies(NamedTuple):
    """The common parts of all copies of a partition."""

    place: int | None
    id_prefix: bytes
    headers: list[tuple[str, bytes | None]]


@define
class ReplayCopies:
    """Builds copies. Owner: one thread."""

    _target: ReplayTarget
    _of_partition: dict[int, _PartitionCopies] = field(init=False, factory=dict)

    def copy(self, message: Message) -> Copy:
        """Return the copy of a record: key, value and the user's headers stay as they are.

        Its history starts over: no attempts, no redrives.
        """
        number, pairs = message.partition(), message.headers()
        common = self._of_partition.get(number) or self._add(number)
        offset = b"%d" % message.offset()
        headers: list[tuple[str, bytes | None]] = []
        record_id = None
        if pairs:
            record_id = given_id(pairs)
            headers += names.each_once(_KEPT.of(pairs))
        if record_id is None:
            record_id = common.id_prefix + offset
        if self._target.new_ids:
            record_id = b"%s#%s" % (record_id, self._target.run.encode())
        headers.append((names.ID, record_id))
        headers += common.headers
        headers.append((names.ORIGINAL_OFFSET, offset))
        kind, milliseconds = message.timestamp()
        if kind != TIMESTAMP_NOT_AVAILABLE:
            headers.append((names.ORIGINAL_TIMESTAMP, b"%d" % milliseconds))
        return Copy(self._target.entry, common.place, message.key(), message.value(), headers)

    def _add(self, number: int) -> _PartitionCopies:
        target = self._target
        headers: list[tuple[str, bytes | None]] = [
            (names.ORIGINAL_TOPIC, target.source.encode()),
            (names.ORIGINAL_PARTITION, b"%d" % number),
            (names.FORMAT, names.FORMAT_VERSION),
            (names.GROUP, target.group.encode()),
            (names.REPLAY, target.run.encode()),
        ]
        # With `once`, the topic's id is part of the record's id, even if `by=` gives the rest.
        parts = [target.topic_id, *([target.run] if target.new_ids else [])]
        if topic_id := "#".join(filter(None, parts)):
            headers.append((names.ORIGINAL_TOPIC_ID, topic_id.encode()))
        first = str(RecordOrigin(target.source, number, 0)).encode()
        common = _PartitionCopies(place_of(number, target.partitions), first[:-1], headers)
        self._of_partition[number] = common
        return common
