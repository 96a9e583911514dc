"""Putting dead letters back: the rules, batch by batch.

Of each batch: choose, write the copies and wait for their acks, remember the dead letters as
resolved and wait for those acks, commit the progress. So what counts as resolved or passed over was
written before, and a process that is killed repeats one batch at most. Nothing is deleted.
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
from window_consumer.dlq.redrive_state import (
    REDRIVEN,
    Resolution,
    Resolved,
)
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.protocols import (
    Clock,
    Copy,
)
from window_consumer.model.record import Message

BATCH_RECORDS = 5_000
"""A killed run repeats at most so many. Fewer wait more often for acks and commits, which costs
nothing on one machine (2,500 to 20,000 were equally fast), but would over a network."""

_BATCH_BYTES = 32 * 1024**2
"""A batch with large values ends here: its copies are held until they are acked."""

_CHUNK_RECORDS = 1_000
"""So many are read and sent at a time: they are in the processor's cache then. With 250 it was as
fast, with 4,000 a tenth slower, with 10,000 a quarter."""

_A_SECOND_IN = 10
"""With a rate a batch holds what is due in a tenth of a second: evenly enough, and stops soon."""

_CATCH_UP_S = 1.0
"""What was slower than the rate is made up for as far as this goes back, no more."""

_CHECK_S = 0.2
"""A stop is noticed within this time."""

_REASONS_KEPT = 10
"""So many records that could not go back are named; the others are counted."""


class DeadLetterStream(Protocol):
    """The dead letters, from where the last run stood."""

    def read(self, max_records: int) -> Sequence[Message]:
        """Return the next ones, at most so many, none at the end."""

    def check_alone(self) -> None:
        """Raise where somebody else commits the same progress."""


class RedriveOutlet(Protocol):
    """Where copies go."""

    def send(self, copies: Sequence[Copy]) -> None:
        """Send them on their way; may be called several times for a batch."""

    def acks(self) -> Mapping[int, PublishFailedError]:
        """Wait until all that was sent is acked; return the places of what is too large."""


Fetch = Callable[[str, int, int], Message | None]
"""Returns the record at topic, partition and offset, None where there is none any more."""


@frozen
class RedriveRules:
    """What goes back, where to, and how fast."""

    to: Destination
    state_topic: str
    by: str
    """The consumer group that holds the progress."""
    topic_id: str | None = None
    """Of the dead-letter topic."""
    max_redrives: int = 3
    """A record that was put back so often is left where it is."""
    rate: float | None = None
    """Records a second, None for as fast as it goes."""
    matches: Callable[[Message], bool] | None = None
    """The user's condition, None for all."""
    batch_records: int = BATCH_RECORDS


@define
class RedriveCounts:
    """What became of the dead letters that were read."""

    read: int = 0
    redriven: int = 0
    """Put back; in a dry run those that would be."""
    not_matching: int = 0
    resolved_before: int = 0
    """Left because another redrive had put them back."""
    guarded: int = 0
    """Left because they were put back too often."""
    unavailable: int = 0
    """Left because their value is gone from the source topic, or another one."""
    refused: int = 0
    """Left because the broker finds the copy too large."""
    reasons: list[str] = field(factory=list)
    """Why some were unavailable or refused, the first ones."""

    def add_reason(self, reason: str) -> None:
        """Keep a reason while there are few."""
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
    """The dead letters that were dealt with before."""
    counts: RedriveCounts = field(factory=RedriveCounts)
    _returning: Returning = field(init=False)
    _some_resolved: bool = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._returning = Returning(self.rules.to)
        self._some_resolved = len(self.resolved) > 0

    def run(self, *, stop_asked: Callable[[], bool] = lambda: False) -> bool:
        """Put back what is there; True when the end was reached, False when a stop was asked for.

        Raises a WindowConsumerError when something fails: what was committed by then stays done,
        and the next run goes on there.
        """
        size = self._batch_size()
        due = self.clock.now()
        while not stop_asked():
            before = self.counts.redriven
            more = self._batch(size)
            if not more:
                return True
            if self.rules.rate:
                done = self.counts.redriven - before
                due = max(due, self.clock.now() - _CATCH_UP_S) + done / self.rules.rate
                self._wait(due, stop_asked)
        return False

    def _batch(self, max_records: int) -> bool:
        """Put a batch back and commit; False at the end of the dead letters."""
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

    def _wait(self, until: float, stop_asked: Callable[[], bool]) -> None:
        while (left := until - self.clock.now()) > 0 and not stop_asked():
            self.clock.sleep(min(_CHECK_S, left))

    def _batch_size(self) -> int:
        rules = self.rules
        if rules.rate is None or self.outlet is None:
            return rules.batch_records
        return max(1, min(rules.batch_records, round(rules.rate / _A_SECOND_IN)))

    def _send(self, chunk: Sequence[Message]) -> list[Position]:
        """Send copies of what is to go back; return the places of those dead letters."""
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
        """Return the headers of a dead letter that is to go back; others are counted."""
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
        """Wait for the acks of a batch, write down what is resolved by it; return how many are."""
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
        """Return the value that a reference stands for, None where it cannot be had."""
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
        self.counts.add_reason(f"{_name(message)}: {problem}; it is left where it is")
        return None


def _name(message: Message) -> str:
    return f"{message.topic()}/{message.partition()}/{message.offset()}"
