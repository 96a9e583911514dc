"""Counts a producer's records: acked, or unknown if its process ended too early.

It serves ``TracedProducer``, and workers' copies and results. The timestamps must be those of the
records, so that producer and consumer count in the same bucket.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from attrs import define, field

from window_consumer.audit.count import CountTier
from window_consumer.audit.journal import CountJournal
from window_consumer.audit.sends import Send, Sends
from window_consumer.audit.sums import Sums, id_hash

MOST_IDS: Final = 1_000
"""The most ids in one count of unknown sends; more ids need more counts."""


@define(eq=False)
class _Written:
    sums: Sums = field(factory=Sums)
    has_ids: bool = True
    """The ids of all records are known."""
    ids: list[str] = field(factory=list)


class ProducerAudit:
    """Counts for one producer. ``flush`` has an owner; other methods may run on any thread.

    The sender sees no error: records that cannot be tracked are counted in ``untracked``.
    """

    def __init__(  # noqa: PLR0913 - the parts of a counter, and its rules
        self,
        sends: Sends,
        journal: CountJournal,
        *,
        bucket_ms: int,
        ids: bool,
        group: str = "",
        origins: Callable[[str], str] = lambda _topic: "",
        tier: CountTier = CountTier.PRODUCED,
    ):
        """``origins`` returns the source of a retry or dead-letter topic, else "".

        ``tier`` is the tier of an acked record.
        """
        self._tier = tier
        self._sends = sends
        self._journal = journal
        self._rules = (bucket_ms, ids)
        self._group = group
        self._origins = origins
        self._acks: deque[int] = deque()
        self._doubts: deque[int] = deque()
        self.untracked = 0
        """Records sent while the table had no room: nobody counts them."""
        self._reported = 0

    def sent(
        self,
        topic: str,
        key: bytes | None,  # noqa: ARG002 - as declared
        size: int,
        timestamp_ms: int,
        record_id: bytes,
    ) -> int | None:
        """Track a record that is about to be sent; return a token for ``acked`` and ``failed``."""
        try:
            row = self._sends.sent(topic, size, timestamp_ms, record_id)
        except Exception as error:
            self._fails(error)
            return None
        if row is None:
            self.untracked += 1
        return row

    def _fails(self, error: Exception) -> None:
        # The record is sent anyway, and the next flush reports the error.
        self._sends.trouble = str(error) or type(error).__name__
        self.untracked += 1

    def acked(self, token: int | None, partition: int, offset: int) -> None:
        """Count a record that was acked, at the next flush."""
        if token is None:
            return
        try:
            self._sends.acked(token, partition, offset)
            self._acks.append(token)
        except Exception as error:
            self._fails(error)

    def failed(self, token: int | None, error: object) -> None:
        """Count a record that was not acked as unknown, unless it was refused.

        A record whose ack is late may have been written.
        """
        if token is None:
            return
        try:
            if isinstance(error, BufferError) or getattr(error, "refused", False):
                self._sends.free(token)
            else:
                self._doubts.append(token)
        except Exception as trouble:
            self._fails(trouble)

    def flush(self) -> None:
        """Write the counts of records acked since the last call."""
        sequence = self._journal.sequence
        rows = [self._acks.popleft() for _ in range(len(self._acks))]
        doubts = [self._doubts.popleft() for _ in range(len(self._doubts))]
        if self.untracked > self._reported:
            why = self._sends.trouble or "too many sends are waiting for acks"
            self._journal.missed(self.untracked - self._reported, why)
            self._reported = self.untracked
        if not (rows or doubts):
            return
        written = [self._sends.counting(row, sequence) for row in rows]
        unknown = [self._sends.counting(row, sequence) for row in doubts]
        found = [*counted(written, *self._rules, self._tier), *listed(unknown, *self._rules)]
        self._journal.write([self._with_group(row) for row in found])
        for row in (*rows, *doubts):
            self._sends.free(row)

    def close(self) -> None:
        """Write the rest; sends without an ack become unknown."""
        self.flush()
        self._doubts.extend(self._sends.taken())
        self.flush()
        self._sends.close()

    def _with_group(self, row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "group": self._group, "origin": self._origins(row["topic"])}


def counted(
    sends: Iterable[Send],
    bucket_ms: int,
    ids: bool,  # noqa: FBT001 - one of two rules
    tier: CountTier = CountTier.PRODUCED,
) -> list[dict[str, Any]]:
    """Return the counts of acked records."""
    found = _summed(sends, tier, bucket_ms)
    return [_row(key, each, bucket_ms, ids=ids) for key, each in found.items()]


def listed(sends: Iterable[Send], bucket_ms: int, ids: bool) -> list[dict[str, Any]]:  # noqa: FBT001 - one of two rules
    """Return the counts of unknown sends, with the records' ids."""
    rows = []
    sends = list(sends)
    for start in range(0, len(sends), MOST_IDS):
        part = sends[start : start + MOST_IDS]
        for key, each in _summed(part, CountTier.UNKNOWN, bucket_ms).items():
            rows.append(_row(key, each, bucket_ms, ids=ids) | {"ids": tuple(each.ids)})
    return rows


_Key = tuple[CountTier, str, int, int]


def _summed(sends: Iterable[Send], tier: CountTier, bucket_ms: int) -> dict[_Key, _Written]:
    found: defaultdict[_Key, _Written] = defaultdict(_Written)
    for send in sends:
        stamp = max(0, send.timestamp_ms)
        into = found[tier, send.topic, send.partition, stamp // bucket_ms * bucket_ms]
        into.sums.count += 1
        into.sums.bytes += send.size
        into.sums.without_timestamp += not stamp
        record_id = send.record_id
        if not record_id and send.offset >= 0:
            record_id = f"{send.topic}/{send.partition}/{send.offset}".encode()
        if record_id:
            into.sums.add_hashes((send.hash or id_hash(record_id),))
        else:
            into.has_ids = False
        if tier is CountTier.UNKNOWN and record_id:
            into.ids.append(record_id.decode("utf-8", "replace"))
    return found


def _row(key: _Key, written: _Written, bucket_ms: int, *, ids: bool) -> dict[str, Any]:
    tier, topic, partition, start_ms = key
    return {
        "tier": tier,
        "topic": topic,
        "partition": partition,
        "bucket_ms": start_ms,
        "length_ms": bucket_ms,
        **written.sums.as_fields(ids=ids and written.has_ids),
    }
