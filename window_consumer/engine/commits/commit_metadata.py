"""The metadata string of a commit: which records beyond next_offset are already finished.

Layout before base64url encoding without padding, after the prefix ``wc1.``:

- 8 bytes: hash of the topic's id (0: unknown)
- varint: next_offset
- varint: flags (bit 0: the end was clean; bits 1-2: encoding of the ranges; bit 3: crashes follow;
  bit 4: records wait in a wheel)
- varint: unclean ends at this offset
- varint: suspect (0: none, else its distance from next_offset, counted from 1)
- varint: partitions that the topic had when the group first read it (0: unknown)
- if bit 3 is set, varints: how often all suspects were passed; the number of crashes; then for each
  the distance of its record from next_offset, and its count
- if bit 4 is set, varints: the last second that a wheel has fired; how many records wait in it; the
  number of delivered ranges; then for each the gap before it, counted from next_offset, and its
  length
- the ranges, either as alternating lengths of unfinished and finished offsets (varints), or as a
  bitmap (least significant bit first), whichever is shorter

A reader ignores a text with an unknown flag. Each extension of the format must use a new flag, so
that older readers do not take it for finished ranges.

Offsets are written, not cells: cell boundaries change after a restart. A byte limit cuts from the
far end; the records cut off run again, none is lost.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from attrs import evolve, frozen

from window_consumer.model.offset_ranges import Ranges

MAX_BYTES = 4095
"""The most that a broker with the default offset.metadata.max.bytes accepts; it refuses 4,096
(measured)."""

_PREFIX = "wc1."
_HASH_BYTES = 8
_CLEAN = 1
_RUNS, _BITMAP = 1 << 1, 2 << 1
_ENCODING = _RUNS | _BITMAP
_CRASHES = 1 << 3
_FIRED = 1 << 4
_KNOWN_FLAGS = _CLEAN | _ENCODING | _CRASHES | _FIRED
_BIT_OF_BYTE = bytes([ord("0")]) + bytes([ord("1")]) * 255
_LONGEST_VARINT = 10

MAX_CRASHES = 8
"""The most records of a partition whose crashes are kept. Normally there is one."""

_LONGEST_CRASH = 5
"""Bytes for a window without holes: three for the distance, two for the count."""


@frozen
class CommitNote:
    """The contents of a commit's metadata."""

    next_offset: int
    topic_hash: int = 0
    clean: bool = False
    finished: tuple[range, ...] = ()
    """Ranges of offsets at or beyond next_offset, ascending and disjoint."""
    unclean_ends: int = 0
    """How often the process ended uncleanly with this offset committed."""
    suspect: int | None = None
    """The offset of the record that is started alone, if there is one."""
    known_partitions: int = 0
    """How many partitions the topic had when the group first read it; 0 if unknown."""
    passes: int = 0
    """How often the process ended again at this offset after all suspects had passed."""
    crashes: tuple[tuple[int, int], ...] = ()
    """Offsets at or beyond next_offset, ascending, and how often the process ended on each."""
    fired: int | None = None
    """Set if ``finished`` records may still wait in a wheel: the last second, since 1970, that has
    fired. A record waits if it is due later."""
    waiting: int = 0
    """How many of them wait."""
    delivered: Ranges = ()
    """Offsets in ``finished``, at or beyond next_offset, that are due later but no longer wait."""

    @property
    def taken_until(self) -> int:
        """The first gap in ``finished``: a window begins there if these records were taken in."""
        first = next(iter(self.finished), range(0))
        return first.stop if first.start == self.next_offset else self.next_offset


def topic_hash(topic_id: str | None) -> int:
    """Return the 64-bit hash of a topic's id; 0 if the cluster reports none."""
    if not topic_id:
        return 0
    digest = blake2b(topic_id.encode(), digest_size=_HASH_BYTES).digest()
    return int.from_bytes(digest, "big") or 1


def is_of_earlier_topic(note: CommitNote, next_offset: int, now: int) -> bool:
    """Return whether a commit was made in a topic that has been recreated; ``now`` is its hash.

    If the string names another offset than the one committed, a program copied it from another
    cluster's topic and translated the offset: that offset counts, and the string does not.
    """
    return note.next_offset == next_offset and 0 != note.topic_hash != now != 0


def encode(note: CommitNote, max_bytes: int = MAX_BYTES) -> tuple[str, bool]:
    """Return the note as text of at most ``max_bytes``, and whether all its ranges fit."""
    room = (max_bytes - len(_PREFIX)) * 3 // 4
    note = _with_crashes_that_fit(note, room)
    note = _with_delivered_that_fit(note, room // 2)
    if not note.finished:
        return _text(_head(note, 0)), True
    head_size = len(_head(note, _BITMAP))
    left = max(0, room - head_size)
    runs, in_runs = _runs(note, left)
    bits, in_bits = _bitmap(note, left)
    if (in_bits, -len(bits)) > (in_runs, -len(runs)):
        return _text(_head(note, _BITMAP) + bits), in_bits == len(note.finished)
    return _text(_head(note, _RUNS) + runs), in_runs == len(note.finished)


def decode(text: str | None) -> CommitNote | None:
    """Decode a note; return None for text that ``encode`` did not write."""
    if not text or not text.startswith(_PREFIX):
        return None
    body = text[len(_PREFIX) :]
    try:
        data = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        return _read(data)
    except (binascii.Error, ValueError, IndexError):
        return None


def worst_case_bytes(records: int) -> int:
    """Return the most bytes that a window of ``records`` records without holes can need."""
    varints = 5 * _LONGEST_VARINT + 2 + MAX_CRASHES * _LONGEST_CRASH
    return len(_PREFIX) + -(-(_HASH_BYTES + varints + -(-records // 8)) * 4 // 3)


def _head(note: CommitNote, encoding: int) -> bytes:
    out = bytearray(note.topic_hash.to_bytes(_HASH_BYTES, "big"))
    suspect = 0 if note.suspect is None else note.suspect - note.next_offset + 1
    has_crashes = bool(note.passes or note.crashes)
    flags = encoding | (_CLEAN if note.clean else 0) | (_CRASHES if has_crashes else 0)
    flags |= 0 if note.fired is None else _FIRED
    for number in (note.next_offset, flags, note.unclean_ends, suspect, note.known_partitions):
        _put_varint(out, number)
    if has_crashes:
        _put_varint(out, note.passes)
        _put_varint(out, len(note.crashes))
        for offset, times in note.crashes:
            _put_varint(out, offset - note.next_offset)
            _put_varint(out, times)
    if note.fired is not None:
        _put_varint(out, note.fired)
        _put_varint(out, note.waiting)
        _put_varint(out, len(note.delivered))
        out += _delivered(note)
    return bytes(out)


def _delivered(note: CommitNote) -> bytes:
    out, position = bytearray(), note.next_offset
    for start, stop in note.delivered:
        _put_varint(out, start - position)
        _put_varint(out, stop - start)
        position = stop
    return bytes(out)


def _with_delivered_that_fit(note: CommitNote, room: int) -> CommitNote:
    """Leave out the furthest delivered ranges that do not fit."""
    while note.delivered and len(_delivered(note)) > room:
        note = evolve(note, delivered=note.delivered[: len(note.delivered) // 2])
    return note


def _with_crashes_that_fit(note: CommitNote, room: int) -> CommitNote:
    """Leave out the furthest crashes that do not fit."""
    while note.crashes and (len(note.crashes) > MAX_CRASHES or len(_head(note, _ENCODING)) > room):
        note = evolve(note, crashes=note.crashes[:-1])
    return note


def _text(data: bytes) -> str:
    return _PREFIX + base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _runs(note: CommitNote, room: int) -> tuple[bytes, int]:
    """Encode as many ranges as fit; return the bytes and the number of ranges."""
    out = bytearray()
    position = note.next_offset
    written = 0
    for finished in note.finished:
        size = len(out)
        _put_varint(out, finished.start - position)
        _put_varint(out, len(finished))
        if len(out) > room:
            del out[size:]
            break
        position = finished.stop
        written += 1
    return bytes(out), written


def _bitmap(note: CommitNote, room: int) -> tuple[bytes, int]:
    """Encode as many whole ranges as fit; return the bytes and the number of ranges."""
    base = note.next_offset
    fitting: Sequence[range] = note.finished
    if fitting[-1].stop - base > room * 8:
        fitting = [finished for finished in fitting if finished.stop - base <= room * 8]
    if not fitting:
        return b"", 0
    size = -(-(fitting[-1].stop - base) // 8)
    flags = bytearray(size * 8)
    for finished in fitting:
        flags[finished.start - base : finished.stop - base] = b"\1" * len(finished)
    # A string of binary digits becomes a number in C; the highest digit comes first.
    flags.reverse()
    number = int(flags.translate(_BIT_OF_BYTE), 2)
    return number.to_bytes(size, "little"), len(fitting)


def _read(data: bytes) -> CommitNote:
    hashed = int.from_bytes(data[:_HASH_BYTES], "big")
    numbers = []
    position = _HASH_BYTES
    for _ in range(5):
        number, position = _get_varint(data, position)
        numbers.append(number)
    next_offset, flags, unclean_ends, suspect, known_partitions = numbers
    if flags & ~_KNOWN_FLAGS:
        msg = "a flag of a later version"
        raise ValueError(msg)
    passes, crashes = 0, []
    if flags & _CRASHES:
        passes, position = _get_varint(data, position)
        count, position = _get_varint(data, position)
        for _ in range(count):
            distance, position = _get_varint(data, position)
            times, position = _get_varint(data, position)
            crashes.append((next_offset + distance, times))
    fired, waiting, delivered = None, 0, []
    if flags & _FIRED:
        fired, position = _get_varint(data, position)
        waiting, position = _get_varint(data, position)
        count, position = _get_varint(data, position)
        offset = next_offset
        for _ in range(count):
            gap, position = _get_varint(data, position)
            length, position = _get_varint(data, position)
            delivered.append((offset + gap, offset + gap + length))
            offset += gap + length
    ranges: Iterable[range] = ()
    if flags & _ENCODING == _RUNS:
        ranges = _read_runs(data, position, next_offset)
    elif flags & _ENCODING == _BITMAP:
        ranges = _read_bitmap(data[position:], next_offset)
    elif flags & _ENCODING:
        msg = "unknown encoding"
        raise ValueError(msg)
    return CommitNote(
        next_offset=next_offset,
        topic_hash=hashed,
        clean=bool(flags & _CLEAN),
        finished=tuple(ranges),
        unclean_ends=unclean_ends,
        suspect=next_offset + suspect - 1 if suspect else None,
        passes=passes,
        crashes=tuple(crashes),
        known_partitions=known_partitions,
        fired=fired,
        waiting=waiting,
        delivered=tuple(delivered),
    )


def _read_runs(data: bytes, position: int, offset: int) -> Iterable[range]:
    while position < len(data):
        gap, position = _get_varint(data, position)
        length, position = _get_varint(data, position)
        start = offset + gap
        offset = start + length
        yield range(start, offset)


def _read_bitmap(data: bytes, base: int) -> Iterable[range]:
    digits = format(int.from_bytes(data, "little"), "b")[::-1]
    start = digits.find("1")
    while start >= 0:
        stop = digits.find("0", start)
        stop = len(digits) if stop < 0 else stop
        yield range(base + start, base + stop)
        start = digits.find("1", stop)


def _put_varint(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _get_varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
        if shift > 63:
            msg = "a number of more than 64 bits"
            raise ValueError(msg)
