"""The contents of a copy, in a retry topic or among the dead letters.

This is the wire contract of docs/wire.md as one function. Key, value and the user's own headers
stay byte for byte. Our headers are replaced, never appended, and bounded in size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256

from attrs import field, frozen

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
    """The handler of failures that name none."""
    app_version: str = ""
    host: str = ""
    """Where the handler ran; omitted from the copy if unknown."""
    _writer: tuple[tuple[str, bytes], ...] = field(init=False, eq=False, repr=False)
    """The headers about a copy's writer that come before the handler's."""
    _version_and_host: tuple[tuple[str, bytes], ...] = field(init=False, eq=False, repr=False)
    """Those that come after it."""

    @_writer.default
    def _encode_writer(self) -> tuple[tuple[str, bytes], ...]:
        return (names.FORMAT, names.FORMAT_VERSION), (names.GROUP, self.group.encode())

    @_version_and_host.default
    def _encode_version_and_host(self) -> tuple[tuple[str, bytes], ...]:
        host = [(names.HOST, self.host.encode("utf-8", "replace"))] if self.host else []
        return (names.APP_VERSION, self.app_version.encode()), *host

    def headers(self, handler: str | None) -> Sequence[tuple[str, bytes]]:
        """Return the headers about a copy's writer, with the record's handler if it is known."""
        name = (names.HANDLER, (handler or self.handler).encode())
        return *self._writer, name, *self._version_and_host


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
        """Return the copy of a record for its target topic."""
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
    message, partition = failed.message, failed.partition
    hop = partition.retry_level.hop_of(message)
    place = hop.origin
    fault = failed.failure.fault
    texts = failed.detail is not Detail.WITHOUT_ERROR_TEXTS
    first_failure = hop.first_failure
    if first_failure is None:
        first_failure = round(failed.first_failure * 1000 + wall_offset_ms)
    last_failure = round(failed.last_failure * 1000 + wall_offset_ms)
    ours: list[tuple[str, bytes | None]] = [
        (names.ID, hop.record_id),
        (names.ORIGINAL_TOPIC, place.topic.encode()),
        (names.ORIGINAL_PARTITION, b"%d" % place.partition),
        (names.ORIGINAL_OFFSET, b"%d" % hop.offset),
    ]
    if hop.timestamp is not None:
        ours.append((names.ORIGINAL_TIMESTAMP, b"%d" % hop.timestamp))
    # A copy without the topic's id never gets one later.
    is_copy = partition.retry_level.is_copy
    if topic_id := hop.topic_id if is_copy else (partition.topic_id or "").encode():
        ours.append((names.ORIGINAL_TOPIC_ID, topic_id))
    ours += origin.headers(failed.failure.handler)
    ours += (
        (names.REASON, str(failed.reason).encode()),
        (names.ERROR_CLASS, fault.error_class.encode()),
        (names.ERROR_FINGERPRINT, fault.fingerprint.encode()),
        (names.ATTEMPTS, b"%d" % (hop.attempts + failed.attempts - failed.uncalled)),
        (names.FIRST_FAILURE, b"%d" % first_failure),
        (names.LAST_FAILURE, b"%d" % last_failure),
    )
    if failed.level is not None:
        due = round((failed.last_failure + failed.level.delay_s) * 1000 + wall_offset_ms)
        ours.append((names.LEVEL, failed.level.name.encode()))
        ours.append((names.NOT_BEFORE, b"%d" % due))
    elif hop.level is not None:
        ours.append((names.LEVEL, hop.level))
    if isinstance(failed.failure.error, NotCalled):
        ours += failed.failure.error.headers
    if texts:
        stack = cut_front(fault.stack, names.MAX_ERROR_STACK_BYTES)
        ours.append((names.ERROR_MESSAGE, cut(fault.message, names.MAX_ERROR_MESSAGE_BYTES)))
        ours.append((names.ERROR_STACK, stack))
    value = message.value()
    if failed.detail is Detail.REFERENCE and value is not None:
        ours.append((names.VALUE_REF, _reference(hop, value)))
        value = None
    theirs = message.headers()
    if theirs:
        ours[:0] = names.each_once(_GOES_ALONG.of(theirs))
    return Copy(
        target.topic, place_of(place.partition, target.partitions), message.key(), value, ours
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


def _reference(hop: Hop, value: bytes) -> bytes:
    place = f"{hop.origin.topic}/{hop.origin.partition}/{hop.offset}"
    return f"{place} sha256:{sha256(value).hexdigest()}".encode()
