"""The contents of a copy, in a retry topic or among the dead letters.

This is the wire contract of docs/wire.md as one function. Key, value and the user's own headers
stay byte for byte. Our headers are replaced, never appended, and bounded in size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256

from attrs import frozen

from window_consumer.engine.retry.failed_record import Detail, FailedRecord
from window_consumer.engine.retry.retry_topics import Level
from window_consumer.model import headers as names
from window_consumer.model.copy_headers import Hop
from window_consumer.model.errors import NotCalled
from window_consumer.model.protocols import Copy

_GOES_ALONG = names.KeptHeaders(
    (names.KEPT_ON_FOREIGN_TOPICS - {names.ID})
    | {names.HEADERS_LOST, names.REPLAY}
    | names.DELIVERY
)


@frozen
class CopyOrigin:
    """The writer of the copy."""

    group: str
    handler: str
    """The handler of failures that name none of their own."""
    app_version: str = ""
    host: str = ""
    """Where the handler ran; omitted from the copy if unknown."""


@frozen
class Target:
    """The topic that the copy goes to."""

    topic: str
    partitions: int
    source_partitions: int


TargetOf = Callable[[str, Level | None], Target]
"""Returns the topic for copies of a source topic's records: a level's, or the dead-letter topic for
None."""

MakeCopy = Callable[[FailedRecord, float], Copy]
"""Makes the copy of a record that leaves; the number turns monotonic seconds into milliseconds
since 1970."""


@frozen
class CopyMaker:
    """Makes the copies of one worker's records."""

    origin: CopyOrigin
    target_of: TargetOf

    def copy(self, failed: FailedRecord, wall_offset_ms: float) -> Copy:
        """Return the copy of a record for the topic that it leaves for."""
        if failed.forward is not None:
            return failed.forward.copy
        target = self.target_of(failed.partition.retry_level.source, failed.level)
        return copy_of(failed, self.origin, target, wall_offset_ms)


def copy_of(
    failed: FailedRecord, origin: CopyOrigin, target: Target, wall_offset_ms: float
) -> Copy:
    """Make the copy of a record that leaves for a retry topic or the dead letters.

    ``wall_offset_ms`` turns the record's monotonic times into milliseconds since 1970.
    """
    message = failed.message
    hop = failed.hop
    fault = failed.failure.fault
    texts = failed.detail is not Detail.WITHOUT_ERROR_TEXTS
    first_failure = _milliseconds(failed.first_failure, wall_offset_ms)
    if hop.first_failure is not None:
        first_failure = hop.first_failure
    ours: list[tuple[str, bytes]] = [
        (names.ID, hop.record_id),
        (names.ORIGINAL_TOPIC, hop.origin.topic.encode()),
        (names.ORIGINAL_PARTITION, _decimal(hop.origin.partition)),
        (names.ORIGINAL_OFFSET, _decimal(hop.offset)),
        *_original_timestamp(hop),
        *_original_topic_id(failed, hop),
        (names.FORMAT, names.FORMAT_VERSION),
        (names.GROUP, origin.group.encode()),
        (names.HANDLER, (failed.failure.handler or origin.handler).encode()),
        (names.APP_VERSION, origin.app_version.encode()),
        *_host(origin),
        (names.REASON, str(failed.reason).encode()),
        (names.ERROR_CLASS, fault.error_class.encode()),
        (names.ERROR_FINGERPRINT, fault.fingerprint.encode()),
        (names.ATTEMPTS, _decimal(hop.attempts + failed.attempts - failed.uncalled)),
        (names.FIRST_FAILURE, _decimal(first_failure)),
        (names.LAST_FAILURE, _decimal(_milliseconds(failed.last_failure, wall_offset_ms))),
        *_level(failed, hop, wall_offset_ms),
        *_of_error(failed),
    ]
    if texts:
        stack = cut_front(fault.stack, names.MAX_ERROR_STACK_BYTES)
        ours.append((names.ERROR_MESSAGE, cut(fault.message, names.MAX_ERROR_MESSAGE_BYTES)))
        ours.append((names.ERROR_STACK, stack))
    value = message.value()
    if failed.detail is Detail.REFERENCE and value is not None:
        ours.append((names.VALUE_REF, _reference(hop, value)))
        value = None
    return Copy(
        topic=target.topic,
        partition=place_of(hop.origin.partition, target.partitions),
        key=message.key(),
        value=value,
        headers=[*names.each_once(_GOES_ALONG.of(message.headers() or ())), *ours],
    )


def place_of(number: int | None, partitions: int) -> int | None:
    """Return the partition that a copy goes to; None lets its key decide.

    A copy keeps the number of its source partition if that exists in the target: the owner of that
    partition calls all records of its lane.
    """
    return number if number is not None and number < partitions else None


def cut(text: str, max_bytes: int) -> bytes:
    """Return the beginning of a text as at most ``max_bytes`` of UTF-8 with whole characters."""
    data = text.encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return data
    return data[:max_bytes].decode("utf-8", "ignore").encode()


def cut_front(text: str, max_bytes: int) -> bytes:
    """Return the end of a text: the innermost frames of a stack say most."""
    data = text.encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return data
    return data[len(data) - max_bytes :].decode("utf-8", "ignore").encode()


def _original_timestamp(hop: Hop) -> list[tuple[str, bytes]]:
    if hop.timestamp is None:
        return []
    return [(names.ORIGINAL_TIMESTAMP, _decimal(hop.timestamp))]


def _original_topic_id(failed: FailedRecord, hop: Hop) -> list[tuple[str, bytes]]:
    """Return the header for the topic's id; a copy without it never gets another one."""
    partition = failed.partition
    if partition.retry_level.is_copy:
        topic_id = hop.topic_id
    else:
        topic_id = (partition.topic_id or "").encode()
    return [(names.ORIGINAL_TOPIC_ID, topic_id)] if topic_id else []


def _host(origin: CopyOrigin) -> list[tuple[str, bytes]]:
    return [(names.HOST, origin.host.encode("utf-8", "replace"))] if origin.host else []


def _level(failed: FailedRecord, hop: Hop, wall_offset_ms: float) -> list[tuple[str, bytes]]:
    """Return the headers for the copy's level and due time, or for its last level."""
    if failed.level is None:
        return [] if hop.level is None else [(names.LEVEL, hop.level)]
    due = failed.last_failure + failed.level.delay_s
    return [
        (names.LEVEL, failed.level.name.encode()),
        (names.NOT_BEFORE, _decimal(_milliseconds(due, wall_offset_ms))),
    ]


def _of_error(failed: FailedRecord) -> Sequence[tuple[str, bytes]]:
    error = failed.failure.error
    return error.headers if isinstance(error, NotCalled) else ()


def _reference(hop: Hop, value: bytes) -> bytes:
    place = f"{hop.origin.topic}/{hop.origin.partition}/{hop.offset}"
    return f"{place} sha256:{sha256(value).hexdigest()}".encode()


def _decimal(number: int) -> bytes:
    return b"%d" % number


def _milliseconds(monotonic_s: float, wall_offset_ms: float) -> int:
    return round(monotonic_s * 1000 + wall_offset_ms)
