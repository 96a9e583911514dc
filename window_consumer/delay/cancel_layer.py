"""The layer that delivers neither cancelled records nor records that are not due yet."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from attrs import frozen

from window_consumer.delay.cancellations import Cancellations, mark_of
from window_consumer.delay.request import Targets, request_in
from window_consumer.model.errors import CallAgain, Skip
from window_consumer.model.outcome import Outcome
from window_consumer.model.record import Record
from window_consumer.runtime.calls.layer import CallForm, CallSite, LayerPlace
from window_consumer.runtime.calls.steps import Called

MOST_AGE_S: Final = 1.0
"""How long before its record is due a cancellation must arrive."""

_AGAIN_S: Final = (0.05, 5.0)
"""How long records wait while their cancellations are unknown; longer while the topic is unread."""

_FIRST_S: Final = 0.25
"""How long they wait until the topic has been read once."""

_EARLY_S: Final = (0.001, 5.0)
"""The longest wait of a record that is no longer due because the clock was set back in its last
seconds. The clock may be corrected again, so the wait is short."""


class Cancelled(Skip):
    """The record's sender has cancelled it."""

    outcome = Outcome.CANCELLED


@frozen
class CancelCheck:
    """Checks the cancellations known a second ago. Any thread may use it."""

    cancellations: Cancellations
    age_s: Callable[[], float]
    """Returns how many seconds of cancellations may be unknown."""

    def wait_s(self) -> float:
        """Return how long records wait because cancellations are unknown; 0 if they are known."""
        age_s = self.age_s()
        if age_s <= MOST_AGE_S:
            return 0.0
        if age_s == inf:
            return _FIRST_S
        shortest, longest = _AGAIN_S
        return min(max(shortest, (age_s - MOST_AGE_S) / 4), longest)

    def is_cancelled(self, record_id: str, due_ms: Callable[[], int]) -> bool:
        """Return whether a record that is due at that time is cancelled."""
        if not self.cancellations:
            return False
        until = self.cancellations.due(mark_of(record_id))
        return until is not None and due_ms() <= until * 1000


@frozen
class CancelLayer:
    """Finishes cancelled records without delivering them, and lets early records wait."""

    check: CancelCheck
    targets: Targets
    place: LayerPlace = LayerPlace.EXPIRY
    in_children: None = None

    def refuse(self, form: CallForm) -> None:
        """Refuse nothing."""

    def wrap(self, call: Called, site: CallSite) -> Called:
        """See CallLayer."""
        cancellations, wall_ms = self.check.cancellations, site.tools.wall_ms

        def called(record: Record) -> object:
            self._check(record, wall_ms())
            returned = call(record)
            cancellations.delivered(record.id)
            return returned

        return called

    def _check(self, record: Record, wall_ms: float) -> None:
        """Raise CallAgain if it is early or cancellations are unknown, Cancelled if cancelled."""
        if wait_s := self.check.wait_s():
            raise CallAgain(wait_s, "the topic of cancellations has not been read to its end")
        due_ms = request_in(record, self.targets).at_ms
        if due_ms > wall_ms:
            shortest, longest = _EARLY_S
            left_s = (due_ms - wall_ms) / 1000
            raise CallAgain(min(max(shortest, left_s), longest), "the clock was set back")
        if self.check.is_cancelled(record.id, lambda: due_ms):
            raise Cancelled("the record is cancelled")
