"""What a dead-letter copy looks like: the wire contract of facts in docs/wire.md, as one function.

Key, value and the user's own headers stay as they were, byte for byte. Our headers are replaced,
never appended, and bounded in size.
"""

from __future__ import annotations

from hashlib import sha256

from attrs import frozen

from window_consumer.core.ladder import Detail, FailedRecord
from window_consumer.model import headers as names
from window_consumer.model.protocols import Copy
from window_consumer.model.record import TIMESTAMP_NOT_AVAILABLE, Message


@frozen
class Origin:
    """Who writes the copy."""

    group: str
    handler: str
    """Stands for failures that name no handler of their own."""
    app_version: str = ""


@frozen
class Target:
    """The topic that the copy goes to."""

    topic: str
    partitions: int
    source_partitions: int


def dead_letter(
    failed: FailedRecord, origin: Origin, target: Target, wall_offset_ms: float
) -> Copy:
    """Make the copy of a record that leaves for the dead-letter topic.

    ``wall_offset_ms`` turns the record's monotonic times into milliseconds since 1970.
    """
    message = failed.message
    fault = failed.failure.fault
    texts = failed.detail is not Detail.WITHOUT_ERROR_TEXTS
    ours: list[tuple[str, bytes]] = [
        (names.ID, record_id(message)),
        (names.ORIGINAL_TOPIC, message.topic().encode()),
        (names.ORIGINAL_PARTITION, _decimal(message.partition())),
        (names.ORIGINAL_OFFSET, _decimal(message.offset())),
        *_original_timestamp(message),
        (names.FORMAT, names.FORMAT_VERSION),
        (names.GROUP, origin.group.encode()),
        (names.HANDLER, (failed.failure.handler or origin.handler).encode()),
        (names.APP_VERSION, origin.app_version.encode()),
        (names.REASON, str(failed.reason).encode()),
        (names.ERROR_CLASS, fault.error_class.encode()),
        (names.ERROR_FINGERPRINT, fault.fingerprint.encode()),
        (names.ATTEMPTS, _decimal(failed.attempts)),
        (names.FIRST_FAILURE, _wall(failed.first_failure, wall_offset_ms)),
        (names.LAST_FAILURE, _wall(failed.last_failure, wall_offset_ms)),
    ]
    if texts:
        stack = cut_front(fault.stack, names.MAX_ERROR_STACK_BYTES)
        ours.append((names.ERROR_MESSAGE, cut(fault.message, names.MAX_ERROR_MESSAGE_BYTES)))
        ours.append((names.ERROR_STACK, stack))
    value = message.value()
    if failed.detail is Detail.REFERENCE and value is not None:
        ours.append((names.VALUE_REF, _reference(message, value)))
        value = None
    partition = message.partition() if target.partitions == target.source_partitions else None
    if partition is not None and partition >= target.partitions:
        # The source got partitions since its dead-letter topic was looked at.
        partition = None
    return Copy(
        topic=target.topic,
        partition=partition,
        key=message.key(),
        value=value,
        headers=[*_users_own(message), *ours],
    )


def record_id(message: Message) -> bytes:
    """Return the record's id: the producer's, or where it was delivered first."""
    for name, value in message.headers() or ():
        if name == names.ID and value:
            return bytes(value)
    return f"{message.topic()}/{message.partition()}/{message.offset()}".encode()


def cut(text: str, max_bytes: int) -> bytes:
    """Return the beginning of a text as UTF-8, at most so long, no character torn."""
    data = text.encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return data
    return data[:max_bytes].decode("utf-8", "ignore").encode()


def cut_front(text: str, max_bytes: int) -> bytes:
    """Return the end of a text: of a stack, the innermost frames say most."""
    data = text.encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return data
    return data[len(data) - max_bytes :].decode("utf-8", "ignore").encode()


def _users_own(message: Message) -> list[tuple[str, bytes | None]]:
    return [
        (name, value)
        for name, value in message.headers() or ()
        if not name.startswith(names.PREFIX)
        or (name in names.KEPT_ON_FOREIGN_TOPICS and name != names.ID)
    ]


def _original_timestamp(message: Message) -> list[tuple[str, bytes]]:
    kind, milliseconds = message.timestamp()
    if kind == TIMESTAMP_NOT_AVAILABLE:
        return []
    return [(names.ORIGINAL_TIMESTAMP, _decimal(milliseconds))]


def _reference(message: Message, value: bytes) -> bytes:
    place = f"{message.topic()}/{message.partition()}/{message.offset()}"
    return f"{place} sha256:{sha256(value).hexdigest()}".encode()


def _decimal(number: int) -> bytes:
    return b"%d" % number


def _wall(monotonic_s: float, wall_offset_ms: float) -> bytes:
    return _decimal(round(monotonic_s * 1000 + wall_offset_ms))
