"""The copy of a record that a replay writes: as if its group had put it into its own ladder."""

from __future__ import annotations

from attrs import define, field, frozen

from window_consumer.engine.retry.copy_record import place_of
from window_consumer.model import headers as names
from window_consumer.model.protocols import Copy
from window_consumer.model.record import TIMESTAMP_NOT_AVAILABLE, Message
from window_consumer.model.record_identity import RecordOrigin, given_id

_KEPT = names.KeptHeaders(frozenset({names.TAGS, names.SENT_AT, names.HEADERS_LOST}))


@frozen
class ReplayTarget:
    """Where copies go, and what they say of their run."""

    source: str
    topic_id: str
    """The id of the source topic; empty if the cluster does not tell it."""
    entry: str
    partitions: int
    """Of the entry topic."""
    group: str
    run: str
    new_ids: bool = False
    """Copies are records of their own for ``once``, and for handlers that keep ids."""


@define
class ReplayCopies:
    """Builds copies. Owner: one thread."""

    _target: ReplayTarget
    _of_partition: dict[int, list[tuple[str, bytes | None]]] = field(init=False, factory=dict)
    """The headers that all copies of a partition have."""

    def copy(self, message: Message) -> Copy:
        """Return the copy of a record: key, value and the user's headers stay as they are.

        Its history starts over: no attempts, no redrives.
        """
        target = self._target
        partition, offset = message.partition(), message.offset()
        pairs = message.headers() or ()
        record_id = given_id(pairs)
        if record_id is None:
            record_id = str(RecordOrigin(target.source, partition, offset)).encode()
        if target.new_ids:
            record_id = b"%s#%s" % (record_id, target.run.encode())
        kind, milliseconds = message.timestamp()
        headers = [*names.each_once(_KEPT.of(pairs)), (names.ID, record_id)]
        headers += self._of_partition.get(partition) or self._add(partition)
        headers.append((names.ORIGINAL_OFFSET, b"%d" % offset))
        if kind != TIMESTAMP_NOT_AVAILABLE:
            headers.append((names.ORIGINAL_TIMESTAMP, b"%d" % milliseconds))
        place = place_of(partition, target.partitions)
        return Copy(target.entry, place, message.key(), message.value(), headers)

    def _add(self, partition: int) -> list[tuple[str, bytes | None]]:
        target = self._target
        headers: list[tuple[str, bytes | None]] = [
            (names.ORIGINAL_TOPIC, target.source.encode()),
            (names.ORIGINAL_PARTITION, b"%d" % partition),
            (names.FORMAT, names.FORMAT_VERSION),
            (names.GROUP, target.group.encode()),
            (names.REPLAY, target.run.encode()),
        ]
        # With `once`, the topic's id is part of the record's id, also where `by=` says the rest.
        parts = [target.topic_id, *([target.run] if target.new_ids else [])]
        if topic_id := "#".join(filter(None, parts)):
            headers.append((names.ORIGINAL_TOPIC_ID, topic_id.encode()))
        self._of_partition[partition] = headers
        return headers
