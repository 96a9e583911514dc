"""Copies a range in batches, by these rules.

For each batch: read, write the copies and wait for their acks, commit the progress. So all
committed records were written before, and a killed process repeats at most one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from attrs import define, field, frozen

from window_consumer.model.errors import PublishFailedError, RunError
from window_consumer.model.offset_ranges import Span
from window_consumer.model.protocols import Clock, Copy
from window_consumer.model.record import Message
from window_consumer.model.record_identity import RecordOrigin
from window_consumer.runtime.copy_rate import CopyRate

BATCH_RECORDS = 5_000
"""A killed run repeats at most this many records, like a redrive."""

_BATCH_BYTES = 32 * 1024**2
"""A batch of large values ends at this size, because its copies are held until they are acked."""

_CHUNK_RECORDS = 1_000
"""Records are read and sent in chunks of this size, which fit the processor's cache."""

_LIMITED_BATCH_S = 0.5
"""With a rate, a batch holds the records due in this time: few commits, and few records twice."""

_LIMITED_CHUNK_S = 0.02
"""With a rate, copies are sent at this interval, each time those that have become due."""

_ASK_S = 1.0
"""The shortest time between two queries of the log's beginning while offsets are missing."""

_REASONS_KEPT = 10
"""How many records that could not be copied are named; further ones are only counted."""


class RecordStream(Protocol):
    """The records of the range from where the last run stopped."""

    def read(self, max_records: int) -> Sequence[Message]:
        """Return up to ``max_records`` of the next records; empty at the end."""

    def check_alone(self) -> None:
        """Raise if another process commits progress of the same replay."""


class ReplayOutlet(Protocol):
    """The destination of copies."""

    def send(self, copies: Sequence[Copy]) -> None:
        """Send copies without waiting; may be called several times per batch."""

    def acks(self) -> Mapping[int, PublishFailedError]:
        """Wait for all acks; return the indices of copies that are too large, with their errors."""


@frozen
class ReplayRules:
    """Which records are copied, and how fast."""

    spans: Mapping[int, Span]
    """The offsets left to copy, by partition."""
    copy: Callable[[Message], Copy]
    matches: Callable[[Message], bool] | None = None
    """None copies all records of the range."""
    rate: float | None = None
    """Records per second; None for no limit."""
    batch_records: int = BATCH_RECORDS


@define
class ReplayCounts:
    """Counts of the records that were read, by result."""

    read: int = 0
    replayed: int = 0
    """Copied; in a dry run, those that would be."""
    not_matching: int = 0
    refused: int = 0
    """Skipped because the broker rejected the copy as too large."""
    reasons: list[str] = field(factory=list)
    """Why the first few were refused."""


@define
class Replay:
    """Copies the range of one topic. Owner: one thread."""

    rules: ReplayRules
    records: RecordStream
    outlet: ReplayOutlet | None
    """None makes a dry run: nothing is written or committed."""
    finish: Callable[[], None]
    """Commits the progress of ``records``."""
    conclude: Callable[[], None]
    """Commits that the range is copied to its end: the same replay then starts over."""
    log_firsts: Callable[[], Mapping[int, int]]
    """Queries the first offset that each partition's log still has."""
    clock: Clock
    counts: ReplayCounts = field(factory=ReplayCounts)
    deleted: dict[int, list[Span]] = field(factory=dict)
    """The offsets that retention has deleted while this ran, by partition."""
    _expected: dict[int, int] = field(init=False)
    """The offset after the last record of each partition."""
    _gaps: list[tuple[int, Span]] = field(init=False, factory=list)
    _asked_at: float = field(init=False, default=float("-inf"))

    def __attrs_post_init__(self) -> None:
        self._expected = {number: span.first for number, span in self.rules.spans.items()}

    def run(self, *, stop_asked: Callable[[], bool] = lambda: False) -> bool:
        """Copy all records; return True at the end, False if a stop was requested first.

        Raises WindowConsumerError on a failure. Committed progress stays, and the next run resumes
        there.
        """
        rate = CopyRate(None if self.outlet is None else self.rules.rate, self.clock)
        while not stop_asked():
            if not self._batch(rate, stop_asked):
                self._name_deleted(self._rest())
                self.conclude()
                return True
        return False

    def _batch(self, rate: CopyRate, stop_asked: Callable[[], bool]) -> bool:
        """Copy a batch and commit; return False at the end of the range."""
        most = self.rules.batch_records
        left = rate.share(_LIMITED_BATCH_S, most)
        chunk_records = rate.share(_LIMITED_CHUNK_S, _CHUNK_RECORDS)
        sent: list[Message] = []
        size, read, is_over = 0, 0, False
        while left > 0 and read < most and size < _BATCH_BYTES and not stop_asked():
            chunk = self.records.read(min(chunk_records, left, most - read))
            if not chunk:
                is_over = True
                break
            read += len(chunk)
            size += sum(map(len, chunk))
            chosen = self._chosen(chunk)
            left -= len(chosen)  # the rate applies to copies: many records may be read for one
            sent += chosen
            if self.outlet is not None:
                self.outlet.send(list(map(self.rules.copy, chosen)))
            rate.wait(len(chosen), stop_asked)
        refused = 0
        if self.outlet is not None:
            refused = self._refused(self.outlet, sent)
            self.records.check_alone()
            self.finish()
        self.counts.read += read
        self.counts.replayed += len(sent) - refused
        if self._gaps and self.clock.now() - self._asked_at >= _ASK_S:
            self._name_deleted(self._gaps)
        return not is_over

    def _chosen(self, chunk: Sequence[Message]) -> Sequence[Message]:
        """Return the selected records, and search for missing offsets."""
        expected, matches = self._expected, self.rules.matches
        for message in chunk:
            number, offset = message.partition(), message.offset()
            if offset != expected[number]:
                self._found_gap(message.topic(), number, offset)
            expected[number] = offset + 1
        chosen = chunk if matches is None else list(filter(matches, chunk))
        self.counts.not_matching += len(chunk) - len(chosen)
        return chosen

    def _found_gap(self, topic: str, number: int, offset: int) -> None:
        expected = self._expected[number]
        if offset < expected:
            raise RunError(
                f"{topic}/{number}: offset {offset} came after {expected - 1}: the topic was"
                " recreated, or its log was truncated; the copies stay; start over with"
                " --restart"
            )
        self._gaps.append((number, Span(expected, offset)))

    def _rest(self) -> list[tuple[int, Span]]:
        ends = self.rules.spans.items()
        left = [(number, Span(self._expected[number], span.end)) for number, span in ends]
        return [*self._gaps, *left]

    def _name_deleted(self, gaps: Sequence[tuple[int, Span]]) -> None:
        """Record the gaps before the log's beginning; others come from compaction and markers."""
        if any(span.count for _, span in gaps):
            firsts = self.log_firsts()
            self._asked_at = self.clock.now()
            for number, span in gaps:
                lost = Span(span.first, min(span.end, firsts.get(number, 0)))
                if lost.count:
                    self.deleted.setdefault(number, []).append(lost)
        self._gaps.clear()

    def _refused(self, outlet: ReplayOutlet, sent: Sequence[Message]) -> int:
        """Wait for a batch's acks; return how many copies were refused, and name some of them."""
        refused, counts = outlet.acks(), self.counts
        counts.refused += len(refused)
        for index, failure in refused.items():
            if len(counts.reasons) < _REASONS_KEPT:
                each = sent[index]
                place = RecordOrigin(each.topic(), each.partition(), each.offset())
                counts.reasons.append(f"{place}: {failure}")
        return len(refused)
