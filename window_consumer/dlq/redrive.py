"""Puts dead letters back in batches.

Each batch: select, write the copies and wait for their acks, write the resolved positions to the
state topic and wait for those acks, commit the progress. So everything that counts as resolved or
skipped was written before, and a killed process repeats at most one batch. Nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from attrs import define, field, frozen

from window_consumer.dlq.dead_letter import Position
from window_consumer.dlq.redrive_copy import (
    DeadLetterHeaders,
    Destination,
    Returning,
    ValueReference,
)
from window_consumer.dlq.redrive_state import REDRIVEN, Resolution, Resolved
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.protocols import Clock, Copy
from window_consumer.model.record import Message
from window_consumer.runtime.copy_rate import CopyRate

BATCH_RECORDS = 5_000
"""A killed run repeats at most this many. Smaller batches wait more often for acks and commits.
That costs nothing on one machine (2,500 to 20,000 were equally fast), but would over a network."""

_BATCH_BYTES = 32 * 1024**2
"""A batch with large values ends here, because its copies are held until they are acked."""

_CHUNK_RECORDS = 1_000
"""Records are read and sent in chunks of this size, which fit the processor's cache. 250 was as
fast, 4,000 a tenth slower, 10,000 a quarter slower."""

_LIMITED_BATCH_S = 0.1
"""With a rate, a batch holds the records of this time: smooth, and quick to stop."""

_REASONS_KEPT = 10
"""How many of the records that could not go back are named; others are only counted."""


class DeadLetterStream(Protocol):
    """The dead letters, from where the last run stopped."""

    def read(self, max_records: int) -> Sequence[Message]:
        """Return up to ``max_records`` of the next ones; empty at the end."""

    def check_alone(self) -> None:
        """Raise if another process commits the same progress."""


class RedriveOutlet(Protocol):
    """The destination of copies."""

    def send(self, copies: Sequence[Copy]) -> None:
        """Send copies without waiting; may be called several times per batch."""

    def acks(self) -> Mapping[int, PublishFailedError]:
        """Wait for all acks; return the indices of copies that are too large, with their errors."""


Fetch = Callable[[str, int, int], Message | None]
"""Returns the record at topic, partition and offset, None if it is gone."""


@frozen
class RedriveRules:
    """Which dead letters go back, where, and how fast."""

    to: Destination
    state_topic: str
    by: str
    """The consumer group that holds the progress."""
    topic_id: str | None = None
    """The id of the dead-letter topic."""
    max_redrives: int = 3
    """A record that was put back this often stays in the dead-letter topic."""
    rate: float | None = None
    """Records per second; None for no limit."""
    matches: Callable[[Message], bool] | None = None
    """The user's condition; None matches all."""
    batch_records: int = BATCH_RECORDS


@define
class RedriveCounts:
    """Counts of the dead letters that were read, by result."""

    read: int = 0
    redriven: int = 0
    """Put back; in a dry run, those that would be."""
    not_matching: int = 0
    resolved_before: int = 0
    """Skipped because another redrive had put them back."""
    guarded: int = 0
    """Skipped because they were put back too often."""
    unavailable: int = 0
    """Skipped because their value in the source topic is gone or was replaced."""
    refused: int = 0
    """Skipped because the broker rejects the copy as too large."""
    reasons: list[str] = field(factory=list)
    """Why the first few were unavailable or refused."""

    def add_reason(self, reason: str) -> None:
        """Keep a reason unless there are enough already."""
        if len(self.reasons) < _REASONS_KEPT:
            self.reasons.append(reason)


@define
class Redrive:
    """Puts the dead letters of one topic back. Owner: one thread."""

    rules: RedriveRules
    letters: DeadLetterStream
    outlet: RedriveOutlet | None
    """None makes a dry run: nothing is written or committed."""
    finish: Callable[[], None]
    """Commits the progress of ``letters``."""
    fetch: Fetch
    clock: Clock
    resolved: Resolved | Collection[Message] = field(factory=Resolved)
    """The dead letters that were resolved before."""
    counts: RedriveCounts = field(factory=RedriveCounts)
    _returning: Returning = field(init=False)
    _some_resolved: bool = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._returning = Returning(self.rules.to)
        self._some_resolved = len(self.resolved) > 0

    def run(self, *, stop_asked: Callable[[], bool] = lambda: False) -> bool:
        """Put all dead letters back; return True at the end, False if a stop was requested first.

        Raises WindowConsumerError on a failure. Committed progress stays, and the next run resumes
        there.
        """
        rate = CopyRate(self.rules.rate, self.clock)
        size = self.rules.batch_records
        if self.outlet is not None:
            size = rate.share(_LIMITED_BATCH_S, size)
        while not stop_asked():
            before = self.counts.redriven
            more = self._batch(size)
            if not more:
                return True
            rate.wait(self.counts.redriven - before, stop_asked)
        return False

    def _batch(self, max_records: int) -> bool:
        """Put a batch back and commit; return False at the end of the dead letters."""
        leaving: list[Position] = []
        left, size = max_records, 0
        while left > 0 and size < _BATCH_BYTES:
            chunk = self.letters.read(min(_CHUNK_RECORDS, left))
            if not chunk:
                break
            left -= len(chunk)
            size += sum(map(len, chunk))
            leaving += self._send(chunk)
        if self.outlet is None:
            self.counts.redriven += len(leaving)
        else:
            self.counts.redriven += self._remember(self.outlet, leaving)
            self.letters.check_alone()
            self.finish()
        self.counts.read += max_records - left
        return left < max_records

    def _send(self, chunk: Sequence[Message]) -> list[Position]:
        """Send the copies of the selected dead letters; return the positions of the latter."""
        leaving, copies = [], []
        for message in chunk:
            headers = self._chosen(message)
            if headers is None:
                continue
            reference = headers.value_ref
            value = message.value() if reference is None else self._fetched(message, reference)
            if reference is None or value is not None:
                leaving.append(Position(message.topic(), message.partition(), message.offset()))
                copies.append(self._returning.copy(message, headers, value))
        if self.outlet is not None:
            self.outlet.send(copies)
        return leaving

    def _chosen(self, message: Message) -> DeadLetterHeaders | None:
        """Return the headers of a dead letter that goes back; count others and return None."""
        rules, counts = self.rules, self.counts
        if rules.matches is not None and not rules.matches(message):
            counts.not_matching += 1
            return None
        if self._some_resolved and message in self.resolved:
            counts.resolved_before += 1
            return None
        headers = DeadLetterHeaders(message)
        if headers.redrives >= rules.max_redrives:
            counts.guarded += 1
            return None
        return headers

    def _remember(self, outlet: RedriveOutlet, leaving: Sequence[Position]) -> int:
        """Wait for a batch's acks, write the resolved positions, and return their number."""
        refused = outlet.acks()
        for place, failure in refused.items():
            self.counts.refused += 1
            self.counts.add_reason(f"{leaving[place]}: {failure}")
        acked = [each for place, each in enumerate(leaving) if place not in refused]
        outlet.send(self._resolution().records(self.rules.state_topic, acked))
        outlet.acks()
        return len(acked)

    def _resolution(self) -> Resolution:
        rules = self.rules
        return Resolution(REDRIVEN, self.clock.wall_ms(), rules.by, rules.to.topic, rules.topic_id)

    def _fetched(self, message: Message, text: bytes) -> bytes | None:
        """Return the value that a reference points to, None if it is unavailable."""
        reference = ValueReference.parse(text)
        if reference is None:
            problem = f"its wc-value-ref {text!r} cannot be read"
        else:
            found = self.fetch(reference.topic, reference.partition, reference.offset)
            if found is None:
                problem = f"its value is gone: {reference} is no longer in the log"
            elif reference.fits(found.value()):
                return bytes(found.value())
            else:
                problem = f"its value is gone: {reference} holds another one (SHA-256 differs)"
        self.counts.unavailable += 1
        self.counts.add_reason(f"{_name(message)}: {problem}; it is left there")
        return None


def _name(message: Message) -> str:
    return f"{message.topic()}/{message.partition()}/{message.offset()}"
