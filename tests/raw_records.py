"""Writes records that no client library would: a Produce request, byte by byte."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from time import time

RawHeaders = Sequence[tuple[bytes, bytes | None]]

BROKEN_NAME = b"\xffname"
"""Invalid UTF-8, as a producer in another language may write it."""

_PRODUCE, _VERSION = 0, 7
_TIMEOUT_MS = 10_000


def write_raw(
    bootstrap: str,
    topic: str,
    value: bytes | None,
    *,
    key: bytes | None = None,
    headers: RawHeaders = ((BROKEN_NAME, b"of somebody"),),
    partition: int = 0,
) -> int:
    """Write one record to the broker at this address, which leads the partition; its offset."""
    host, _, port = bootstrap.rpartition(":")
    batch = _batch(_record(key, value, headers))
    body = (
        struct.pack(">hhih", _PRODUCE, _VERSION, 1, 3)
        + b"raw"
        + struct.pack(">hhii", -1, -1, _TIMEOUT_MS, 1)
        + _short_text(topic)
        + struct.pack(">iii", 1, partition, len(batch))
        + batch
    )
    with socket.create_connection((host, int(port)), timeout=_TIMEOUT_MS / 1000) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        answer = _exactly(connection, size)
    # correlation, topics, the topic's name, partitions; then partition, error, base offset
    at = 4 + 4 + len(_short_text(topic)) + 4
    _, error, offset = struct.unpack_from(">ihq", answer, at)
    assert error == 0, f"the broker refused the record with error {error}"
    return int(offset)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        assert piece, "the broker closed the connection"
        data += piece
    return data


def _batch(record: bytes) -> bytes:
    """Return a record batch (version 2) of one record."""
    now = int(time() * 1000)
    checked = struct.pack(">hiqqqhii", 0, 0, now, now, -1, -1, -1, 1) + record
    behind = struct.pack(">ibI", -1, 2, _crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(behind)) + behind


def _record(key: bytes | None, value: bytes | None, headers: RawHeaders) -> bytes:
    pairs = b"".join(_sized(name) + _sized(content) for name, content in headers)
    body = b"\0" + _varint(0) + _varint(0) + _sized(key) + _sized(value)
    return _sized(body + _varint(len(headers)) + pairs)


def _sized(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _varint(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    data = bytearray()
    while rest > 0x7F:
        data.append(rest & 0x7F | 0x80)
        rest >>= 7
    data.append(rest)
    return bytes(data)


def _short_text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
