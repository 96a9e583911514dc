"""Putting dead letters back: the rules, batch by batch.

Of each batch: choose, write the copies and wait for their acks, remember the dead letters as
resolved and wait for those acks, commit the progress. So what counts as resolved or passed over was
written before, and a process that is killed repeats one batch at most. Nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from attrs import define, field, frozen

from window_consumer.messaging.returning import (
    Destination,
    ValueReference,
    redrives_of,
    reference_of,
    returned,
)
from window_consumer.messaging.state import REDRIVEN, Resolution, Resolved
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.protocols import Clock, Copy
from window_consumer.model.record import Message

BATCH_RECORDS = 10_000
"""Measured with 100 B values: 2,000 records a batch are a fifth slower, 50,000 no faster."""

_A_SECOND_IN = 10
"""With a rate a batch holds what is due in a tenth of a second: evenly enough, and stops soon."""

_CATCH_UP_S = 1.0
"""What was slower than the rate is made up for as far as this goes back, no more."""

_LOOK_S = 0.2
"""A stop is noticed within this time."""

_REASONS_KEPT = 10
"""So many records that could not go back are named; the others are counted."""


class Letters(Protocol):
    """The dead letters, from where the last run stood."""

    def read(self, max_records: int) -> Sequence[Message]:
        """Return the next ones, at most so many, none at the end."""

    def check_alone(self) -> None:
        """Raise where somebody else commits the same progress."""


class Outlet(Protocol):
    """Where copies go."""

    def put(self, copies: Sequence[Copy]) -> Mapping[int, PublishFailedError]:
        """Write them, wait for all acks; return the places of those that are too large."""


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
class Counts:
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

    def say(self, reason: str) -> None:
        """Keep a reason while there are few."""
        if len(self.reasons) < _REASONS_KEPT:
            self.reasons.append(reason)


@define
class Redrive:
    """Puts the dead letters of one topic back. Owner: one thread."""

    rules: RedriveRules
    letters: Letters
    outlet: Outlet | None
    """None makes a dry run: nothing is written or committed."""
    finish: Callable[[], None]
    """Commits the progress of ``letters``."""
    fetch: Fetch
    clock: Clock
    resolved: Resolved | Collection[Message] = field(factory=Resolved)
    """The dead letters that were dealt with before."""
    counts: Counts = field(factory=Counts)

    def run(self, *, stop_asked: Callable[[], bool] = lambda: False) -> bool:
        """Put back what is there; True when the end was reached, False when a stop was asked for.

        Raises a WindowConsumerError when something fails: what was committed by then stays done,
        and the next run goes on there.
        """
        size = self._batch_size()
        due = self.clock.now()
        while not stop_asked():
            batch = self.letters.read(size)
            self.counts.read += len(batch)
            chosen = self._chosen(batch)
            done = self._put(chosen)
            self.counts.redriven += done
            if self.outlet is not None:
                self.letters.check_alone()
                self.finish()
            if not batch:
                return True
            if self.rules.rate:
                due = max(due, self.clock.now() - _CATCH_UP_S) + done / self.rules.rate
                self._wait(due, stop_asked)
        return False

    def _wait(self, until: float, stop_asked: Callable[[], bool]) -> None:
        while (left := until - self.clock.now()) > 0 and not stop_asked():
            self.clock.sleep(min(_LOOK_S, left))

    def _batch_size(self) -> int:
        rules = self.rules
        if rules.rate is None or self.outlet is None:
            return rules.batch_records
        return max(1, min(rules.batch_records, round(rules.rate / _A_SECOND_IN)))

    def _chosen(self, batch: Sequence[Message]) -> list[Message]:
        """Return the dead letters that are to go back; the others are counted."""
        rules, counts = self.rules, self.counts
        chosen = []
        for message in batch:
            if rules.matches is not None and not rules.matches(message):
                counts.not_matching += 1
            elif message in self.resolved:
                counts.resolved_before += 1
            elif redrives_of(message) >= rules.max_redrives:
                counts.guarded += 1
            else:
                chosen.append(message)
        return chosen

    def _put(self, chosen: Sequence[Message]) -> int:
        """Write copies and memory of what was chosen; return of how many."""
        leaving, copies = [], []
        for message in chosen:
            reference = reference_of(message)
            value = message.value() if reference is None else self._fetched(message, reference)
            if reference is None or value is not None:
                leaving.append(message)
                copies.append(returned(message, value, self.rules.to))
        if self.outlet is None or not copies:
            return len(copies)
        refused = self.outlet.put(copies)
        for place, failure in refused.items():
            self.counts.refused += 1
            self.counts.say(f"{_name(leaving[place])}: {failure}")
        acked = [each for place, each in enumerate(leaving) if place not in refused]
        self.outlet.put(self._resolution().records(self.rules.state_topic, acked))
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
        self.counts.say(f"{_name(message)}: {problem}; it is left where it is")
        return None


def _name(message: Message) -> str:
    return f"{message.topic()}/{message.partition()}/{message.offset()}"
