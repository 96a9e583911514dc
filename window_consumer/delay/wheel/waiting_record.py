"""A waiting record as bytes in the file of its second."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple
from zlib import crc32

from window_consumer.model.protocols import Copy

_HEAD: Final = struct.Struct("<IIqqqqi")
"""Checksum of the bytes after it, length of the body, due time, offset, first offset, time,
partition."""

_BODY: Final = struct.Struct("<HiiH")
_HEADER: Final = struct.Struct("<Hi")
_CHECKSUM_BYTES: Final = 4
_NONE: Final = -1

HEAD_BYTES: Final = _HEAD.size
_CHUNK: Final = 256 * 1024


class DamagedError(Exception):
    """A file does not hold the bytes that were written to it."""

    def __str__(self) -> str:
        return "a file is damaged"


class UnknownVersionError(DamagedError):
    """A file was written by another version of this package, in another format."""

    def __init__(self, version: int | None):
        super().__init__(version)
        self.version = version
        """The version in its head; None if it has no head."""

    def __str__(self) -> str:
        found = "no version" if self.version is None else f"version {self.version}"
        return f"a file has {found} of the format, which this version does not read"


class PlaceInFile(NamedTuple):
    """A record's place in its file and its due time."""

    at: int
    length: int
    due_ms: int
    offset: int


class WaitingRecord(NamedTuple):
    """A record to deliver, and its origin; times in milliseconds since 1970."""

    due_ms: int
    offset: int
    """Its offset in the partition whose wheel it waits in."""
    copy: Copy
    """The record to deliver. Its id is the last header."""
    first_partition: int
    """Its first place in the service's own topic."""
    first_offset: int
    timestamp: int | None
    """The record's own timestamp; None if it has none."""

    @property
    def record_id(self) -> bytes:
        """The id with which it is delivered."""
        return self.copy.headers[-1][1] or b""

    @property
    def second(self) -> int:
        """The second in which it is due."""
        return self.due_ms // 1000


def encode(record: WaitingRecord) -> bytes:
    """Return the bytes of a record."""
    topic, _, key, value, headers, _ = record.copy
    name = topic.encode()
    parts = [_BODY.pack(len(name), _length(key), _length(value), len(headers)), name]
    parts += [key or b"", value or b""]
    for header, content in headers:
        text = header.encode()
        parts += [_HEADER.pack(len(text), _length(content)), text, content or b""]
    body = b"".join(parts)
    time = _NONE if record.timestamp is None else record.timestamp
    head = _HEAD.pack(
        0,
        len(body),
        record.due_ms,
        record.offset,
        record.first_offset,
        time,
        record.first_partition,
    )
    checked = head[_CHECKSUM_BYTES:] + body
    return crc32(checked).to_bytes(_CHECKSUM_BYTES, "little") + checked


def decode(data: bytes) -> WaitingRecord:
    """Return the record in these bytes; raise DamagedError for others."""
    found, length, due_ms, offset, first_offset, time, first_partition = _HEAD.unpack_from(data)
    if len(data) != HEAD_BYTES + length or crc32(data[_CHECKSUM_BYTES:]) != found:
        raise DamagedError
    name_length, key_length, value_length, count = _BODY.unpack_from(data, HEAD_BYTES)
    begin = HEAD_BYTES + _BODY.size
    at = begin + name_length
    topic = data[begin:at].decode()
    key, at = _content(data, at, key_length)
    value, at = _content(data, at, value_length)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        text_length, content_length = _HEADER.unpack_from(data, at)
        begin = at + _HEADER.size
        at = begin + text_length
        text = data[begin:at].decode()
        content, at = _content(data, at, content_length)
        headers.append((text, content))
    copy = Copy(topic, None, key, value, headers)
    timestamp = None if time == _NONE else time
    return WaitingRecord(due_ms, offset, copy, first_partition, first_offset, timestamp)


def places(
    read: Callable[[int, int], bytes], first: int, size: int, *, checked: bool
) -> Iterator[PlaceInFile]:
    """Yield the places of a file's records, from position ``first`` to its ``size`` in bytes.

    ``read`` takes a position and a length.

    Raises DamagedError at the first incomplete record and, if ``checked``, at the first changed
    one. ``decode`` checks each record in any case.
    """
    at = begin = first
    data = b""
    while at < size:
        if at - begin + HEAD_BYTES > len(data):
            begin, data = at, read(at, min(_CHUNK, size - at))
        if len(data) < HEAD_BYTES:
            raise DamagedError
        _, body, due_ms, offset, *_ = _HEAD.unpack_from(data, at - begin)
        length = HEAD_BYTES + body
        if at + length > size:
            raise DamagedError
        if checked:
            if at - begin + length > len(data):
                begin, data = at, read(at, min(max(_CHUNK, length), size - at))
            if not _is_whole(memoryview(data)[at - begin : at - begin + length]):
                raise DamagedError
        yield PlaceInFile(at, length, due_ms, offset)
        at += length


def _is_whole(data: memoryview) -> bool:
    found = int.from_bytes(data[:_CHECKSUM_BYTES], "little")
    return crc32(data[_CHECKSUM_BYTES:]) == found


def _length(content: bytes | None) -> int:
    return _NONE if content is None else len(content)


def _content(data: bytes, at: int, length: int) -> tuple[bytes | None, int]:
    return (None, at) if length == _NONE else (data[at : at + length], at + length)
