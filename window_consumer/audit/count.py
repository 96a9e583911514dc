"""One count of an audit, and its bytes: the wire contract of ``wc.audit``.

A count is the number of records of one partition that ended in the same way, among those whose
producer's timestamp lies in one bucket of time. Counts of one kind can be added: each field is a
sum or merges like one.

On the wire counts are JSON, several of one topic and bucket in a record: ``{"format": 1, "counts":
[{...}, ...]}``. A count's keys are the field names of ``AuditCount``. Readers ignore unknown keys
and reject unknown formats.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

import attrs
from attrs import frozen

from window_consumer.model.outcome import OUTCOMES

FORMAT: Final = 1

SUB_BUCKETS: Final = 8
"""Latency buckets per power of two. A figure is at most 12.5 % too small."""


class CountTier(StrEnum):
    """What happened to the counted records; the tiers of outcomes come from their table."""

    PRODUCED = "produced"
    """Written to the topic, and acked."""
    UNKNOWN = "unknown"
    """Sent to the topic by a process that ended before the ack: written, or not."""
    FINISHED = "finished"
    RETRIED = "retried"
    """A copy is in a retry topic, where its own outcome is counted."""
    DELAYED = "delayed"
    DEAD_LETTERED = "dead_lettered"
    EXPIRED = "expired"
    FILTERED = "filtered"
    """The handler skipped the record, or no handler takes it."""

    _ignore_ = "_row"
    for _row in OUTCOMES:
        if _row.tier and _row.tier not in vars().values():
            vars()[_row.tier.upper()] = _row.tier

    REDRIVEN = "redriven"
    """A dead letter was copied back to the topic."""
    REPLAYED = "replayed"
    """A record was copied to the topic for another call."""
    GONE = "gone"
    """The group could not read the record.

    Retention or a deletion had removed it, or ``on_out_of_range: latest`` skipped it. This tier
    counts offsets, which may outnumber the records. Its bucket is the time of the discovery, as the
    records' own times are unknown.
    """

    @classmethod
    def _missing_(cls, value: object) -> CountTier | None:
        """Accept the tier of a later version, which is another way for records to leave a topic."""
        if not isinstance(value, str):
            return None
        tier = str.__new__(cls, value)
        tier._name_, tier._value_ = value.upper(), value
        return tier


WRITTEN: Final = frozenset({CountTier.PRODUCED, CountTier.REDRIVEN, CountTier.REPLAYED})
"""Tiers that came into a topic. All others left it, except ``UNKNOWN`` and ``GONE``."""

LEAVING: Final = tuple(
    str(tier) for tier in CountTier if tier not in {*WRITTEN, CountTier.UNKNOWN, CountTier.GONE}
)
"""The tiers of records that left a topic, in the order in which reports show them."""


@frozen(kw_only=True)
class AuditCount:
    """One count. Times are in milliseconds since 1970."""

    client: str
    """The counting client. With ``incarnation`` and ``sequence`` it identifies a count that was
    sent twice.
    """
    incarnation: str
    """One run of the client's process."""
    sequence: int
    tier: CountTier
    app: str
    instance: str
    """The host and the process."""
    group: str = ""
    """The group that consumed, or wrote the copies; empty for other producers."""
    topic: str
    """Where the records are or were written: a source, a retry topic, a topic of results."""
    partition: int = -1
    """-1 if unknown."""
    topic_hash: int = 0
    """Hash of the topic's id, 0 if unknown. It distinguishes a recreated topic, whose offsets start
    over.
    """
    origin: str = ""
    """The source topic of the first delivery; empty if it is ``topic``."""
    bucket_ms: int
    """The start of the bucket, by the producer's timestamp; 0 for records without one."""
    length_ms: int
    """The bucket's length. The end is exclusive."""
    epoch_ms: int = 0
    """When the partition was assigned to the client, 0 for written records. The latest epoch's
    count of an offset replaces earlier ones.
    """
    offsets: tuple[tuple[int, int], ...] = ()
    """Consumed offsets that were counted together, as (start, end) with an exclusive end. Counts
    that were created together have the same ranges.
    """
    count: int
    bytes: int = 0
    """The size of the values."""
    without_timestamp: int = 0
    """Records without a producer's timestamp."""
    skewed: int = 0
    """Records whose timestamp shows a skewed clock: their latency is unknown."""
    id_xor: int | None = None
    """Xor of the hashes of the records' ids, as a signed 64-bit number; None if ids are off."""
    id_sum: int | None = None
    """The sum of the hashes, in 64 bits."""
    latency: Mapping[int, int] = attrs.field(factory=dict, hash=False)
    """Records by the bucket of their latency, from the producer's timestamp to their outcome here,
    see ``latency_bucket``.
    """
    ids: tuple[str, ...] = ()
    """The known ids of records whose send has an unknown result."""
    lost: int = 0
    """Records counted before this count whose counts could not be written."""
    final: bool = False
    """Whether it is the last count of an incarnation that ended properly."""

    @property
    def audit_id(self) -> tuple[str, str, int]:
        """The identity of a count, equal when it was sent twice."""
        return self.client, self.incarnation, self.sequence

    @property
    def key(self) -> str:
        """The key of its record in Kafka."""
        return f"{self.topic}|{self.bucket_ms}"


def latency_bucket(milliseconds: int) -> int:
    """Return the bucket of a latency of 0 ms or more.

    The number is ``8 * s + (ms >> s)`` with ``s = max(0, bits(ms) - 4)``: one bucket per
    millisecond below 16, then eight per power of two.
    """
    shift = max(0, milliseconds.bit_length() - 4)
    return SUB_BUCKETS * shift + (milliseconds >> shift)


def latency_bounds(bucket: int) -> tuple[int, int]:
    """Return where a bucket begins and ends (exclusive), in milliseconds."""
    shift = max(0, bucket // SUB_BUCKETS - 1)
    mantissa = bucket - SUB_BUCKETS * shift
    return mantissa << shift, mantissa + 1 << shift


def signed64(number: int) -> int:
    """Return the low 64 bits of a number as a signed number, like Spark's long."""
    number &= 0xFFFF_FFFF_FFFF_FFFF
    return number - (1 << 64) if number >> 63 else number


def to_plain(count: AuditCount) -> dict[str, Any]:
    """Return a count as JSON types, without fields that have their default."""
    plain: dict[str, Any] = {}
    for name, default in _FIELDS:
        value = getattr(count, name)
        if value != default or default is attrs.NOTHING:
            plain[name] = value
    if not count.latency:
        plain.pop("latency", None)
    return plain


def from_plain(plain: Mapping[str, Any]) -> AuditCount:
    """Return the count of such a dict; ValueError if it is not one."""
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
    """Return the counts that ``encode`` wrote; ValueError for other bytes or formats."""
    plain = json.loads(data)
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        found = plain.get("format") if isinstance(plain, dict) else None
        raise ValueError(f"not counts of an audit in format {FORMAT}, but {found!r}")
    counts = plain.get("counts")
    if not isinstance(counts, list):
        raise ValueError("counts of an audit without a list of counts")  # noqa: TRY004 - bad data
    return [from_plain(each) for each in counts]


_FIELDS: Final = tuple((field.name, field.default) for field in attrs.fields(AuditCount))
