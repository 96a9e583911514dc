"""What an audit counts: the shape of one count, and its bytes. The wire contract of ``wc.audit``.

A count says how many records of one partition became what, of those whose producer's timestamp
lies in one bucket of time. Counts of the same kind are added up: everything in them is a sum, or
can be merged like one.

On the wire counts travel as JSON, several of one topic and bucket in a record:
``{"format": 1, "counts": [{...}, ...]}``, the keys of a count are the names of the fields of
``AuditCount``. Who reads ignores keys that it does not know; a format that is not known is not
read at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

import attrs
from attrs import frozen

FORMAT: Final = 1

SUB_BUCKETS: Final = 8
"""Buckets of latency from one power of two to the next: a figure is at most 12.5 % too small."""


class CountTier(StrEnum):
    """What became of the counted records."""

    PRODUCED = "produced"
    """Written to the topic, and acked."""
    UNKNOWN = "unknown"
    """Sent to the topic by a process that ended before it knew more: written, or not."""
    FINISHED = "finished"
    RETRIED = "retried"
    """A copy lies in a retry topic; there it is counted again, by what becomes of it."""
    DELAYED = "delayed"
    DEAD_LETTERED = "dead_lettered"
    EXPIRED = "expired"
    FILTERED = "filtered"
    """Its handler skipped it, or it is for none of the handlers."""
    DEDUPLICATED = "deduplicated"
    DROPPED = "dropped"
    REDRIVEN = "redriven"
    """A dead letter was put back, as a copy in the topic."""
    GONE = "gone"
    """The group could not read it: retention, or who cuts the log, had taken it, or
    ``on_out_of_range: latest`` passed over it. Offsets are counted, which may be more than there
    were records, in the bucket of the time when that was noticed: nobody knows the records' own."""


WRITTEN: Final = frozenset({CountTier.PRODUCED, CountTier.REDRIVEN})
"""Tiers of what came into a topic; all others but ``UNKNOWN`` and ``GONE`` are of what left it."""


@frozen(kw_only=True)
class AuditCount:
    """One count. Times are in milliseconds since 1970."""

    client: str
    """Who counted: with ``incarnation`` and ``sequence`` it tells a count that was sent again."""
    incarnation: str
    """Which life of its process."""
    sequence: int
    tier: CountTier
    app: str
    instance: str
    """The host and the process."""
    group: str = ""
    """Who consumed, or wrote the copies; empty for other producers."""
    topic: str
    """Where the records lay, or were written to: a source, a retry topic, a topic of results."""
    partition: int = -1
    """-1 where it is not known."""
    topic_hash: int = 0
    """Of the topic's id, 0 where it is not known: a topic that was made anew has the same offsets
    again."""
    origin: str = ""
    """The source topic that the records were first delivered from; ``topic`` where it is that."""
    bucket_ms: int
    """The start of the bucket, by the producer's timestamp; 0 for records without one."""
    length_ms: int
    """The bucket reaches from its start to just before start and length."""
    epoch_ms: int = 0
    """When the partition was assigned to who counted, 0 for what was written. The later epoch's
    count of an offset replaces an earlier one's."""
    offsets: tuple[tuple[int, int], ...] = ()
    """Of what was consumed: which offsets were counted together, each range up to its second number
    (exclusive). Several counts that were made together have the same."""
    count: int
    bytes: int = 0
    """The size of the values."""
    without_timestamp: int = 0
    """So many had no timestamp of their producer's."""
    skewed: int = 0
    """So many came at a time that their producer's clock cannot have told: no latency is known."""
    id_xor: int | None = None
    """All hashes of the records' ids, as signed 64-bit numbers, xor; None where ids are off."""
    id_sum: int | None = None
    """Their sum, in 64 bits."""
    latency: Mapping[int, int] = attrs.field(factory=dict, hash=False)
    """From the producer's timestamp to the end of the record's way here: how many by bucket, see
    ``latency_bucket``."""
    ids: tuple[str, ...] = ()
    """Of what is unknown: the records' ids, as far as they are known."""
    lost: int = 0
    """So many records were counted before this count, and their counts could not be written."""
    final: bool = False
    """The last count of its incarnation, which ended in order."""

    @property
    def audit_id(self) -> tuple[str, str, int]:
        """What tells a count that was sent again."""
        return self.client, self.incarnation, self.sequence

    @property
    def key(self) -> str:
        """The key of its record in Kafka."""
        return f"{self.topic}|{self.bucket_ms}"


def latency_bucket(milliseconds: int) -> int:
    """Return the bucket of a latency of 0 ms or more.

    Its number is ``8 * s + (ms >> s)`` with ``s = max(0, bits(ms) - 4)``: each millisecond below 16
    has one, and then each power of two has eight.
    """
    shift = max(0, milliseconds.bit_length() - 4)
    return SUB_BUCKETS * shift + (milliseconds >> shift)


def latency_bounds(bucket: int) -> tuple[int, int]:
    """Return the milliseconds where a bucket begins, and where it ends (exclusive)."""
    shift = max(0, bucket // SUB_BUCKETS - 1)
    mantissa = bucket - SUB_BUCKETS * shift
    return mantissa << shift, mantissa + 1 << shift


def signed64(number: int) -> int:
    """Return the low 64 bits of a number as a signed number, the way that Spark holds it."""
    number &= 0xFFFF_FFFF_FFFF_FFFF
    return number - (1 << 64) if number >> 63 else number


def to_plain(count: AuditCount) -> dict[str, Any]:
    """Return a count as what JSON knows; what says nothing is left out."""
    plain: dict[str, Any] = {}
    for name, default in _FIELDS:
        value = getattr(count, name)
        if value != default or default is attrs.NOTHING:
            plain[name] = value
    if not count.latency:
        plain.pop("latency", None)
    return plain


def from_plain(plain: Mapping[str, Any]) -> AuditCount:
    """Read a count back; ValueError for what is none."""
    try:
        known = {name: plain[name] for name, _ in _FIELDS if name in plain}
        known["tier"] = CountTier(plain["tier"])
        known["offsets"] = tuple((int(a), int(b)) for a, b in plain.get("offsets", ()))
        known["latency"] = {int(k): int(v) for k, v in plain.get("latency", {}).items()}
        known["ids"] = tuple(map(str, plain.get("ids", ())))
        return AuditCount(**known)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not a count of an audit: {error}") from error


def encode(counts: Iterable[AuditCount]) -> bytes:
    """Return counts as the value of one record, or one line of a log."""
    plain = {"format": FORMAT, "counts": [to_plain(count) for count in counts]}
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode()


def decode(data: bytes) -> list[AuditCount]:
    """Read what ``encode`` wrote; ValueError for anything else, and for other formats."""
    plain = json.loads(data)
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        found = plain.get("format") if isinstance(plain, dict) else None
        raise ValueError(f"not counts of an audit in format {FORMAT}, but {found!r}")
    counts = plain.get("counts")
    if not isinstance(counts, list):
        raise ValueError("counts of an audit without a list of counts")  # noqa: TRY004 - what was read is wrong, not its type in Python
    return [from_plain(each) for each in counts]


_FIELDS: Final = tuple((field.name, field.default) for field in attrs.fields(AuditCount))
