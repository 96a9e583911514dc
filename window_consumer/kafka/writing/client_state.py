"""The life cycle of the sending client: when it is replaced and emptied, and when the next begins.

No client, thread or clock: the driver of the client reports events, with the time.

    phase      event           next
    WAITING    on_made         OPEN       there is no client; a new one must wait for its time
    OPEN       on_failed       EMPTYING   its records are taken back
    OPEN       on_lost         EMPTYING
    EMPTYING   on_failed       EMPTYING   its first fatal error
    EMPTYING   on_emptied      WAITING    with a pause after a fatal error
    any        on_close        CLOSED     a remaining client gives its records back at once
    CLOSED     any             CLOSED

If a new client need not wait for the old one to be empty, EMPTYING is left at once. Errors of a
client that is being replaced anyway change nothing. Any other event is a bug and raises.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Generic, TypeVar

from attrs import frozen

Fatal = TypeVar("Fatal")
"""The type of a client's fatal error for its user."""

KEEPING_PAUSES_S: Final = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0)
"""Pauses of users that resend records: they wait only after a repeated failure."""

REPORTING_PAUSES_S: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 10.0)
"""Pauses of users whose records fail: the sender retries by itself."""

DRAIN_S: Final = 5.0
"""How long a client that is being replaced waits for its in-flight records."""

_CALM_S: Final = 60.0
"""A client that worked this long did not fail for the same reason as the previous one."""


class ClientPhase(Enum):
    """Whether a client accepts records."""

    WAITING = "no client"
    OPEN = "a client takes records"
    EMPTYING = "a client gives its records back"
    CLOSED = "closed"


class Emptying(Enum):
    """How a client gives its records back."""

    WAIT = "for delivery reports"
    PURGE_QUEUED = "fail what is not in flight"
    PURGE_ALL = "fail everything"


@frozen
class ReplacementRules:
    """How a user replaces its client."""

    waits_for_old: bool
    """Whether a new client sends only once the old one is empty, to keep the order of keys."""
    drain_s: float
    """How long in-flight records of a replaced client may take."""
    pauses_s: tuple[float, ...]
    """Before the client after a first, second, ... fatal error in a row."""


KEEPING: Final = ReplacementRules(waits_for_old=True, drain_s=DRAIN_S, pauses_s=KEEPING_PAUSES_S)
"""For records that are sent again, in order."""

REPORTING: Final = ReplacementRules(waits_for_old=False, drain_s=0.0, pauses_s=REPORTING_PAUSES_S)
"""For records whose failure is reported."""


class UnexpectedEventError(Exception):
    """An event that cannot happen in this phase: a bug of the driver."""


class ClientState(Generic[Fatal]):
    """Decides about one user's client. Owner: the thread that drives the client.

    ``on_failed`` and ``on_lost`` may be called by any thread.
    """

    def __init__(self, rules: ReplacementRules):
        self._rules = rules
        self.phase = ClientPhase.WAITING
        self.failure: Fatal | None = None
        """The fatal error of the last client, until a later client has worked."""
        self.is_failed = False
        """Whether the client that is being replaced had a fatal error."""
        self._due = 0.0
        self._failed_at = 0.0
        self._failures = 0

    def pause_s(self, now: float) -> float:
        """Return how long the next client must wait."""
        return max(0.0, self._due - now)

    def may_make(self, now: float) -> bool:
        """Return whether it is time for a new client."""
        return self.phase is ClientPhase.WAITING and now >= self._due

    def on_made(self) -> None:
        """Record that a new client accepts records."""
        if self._may_be(ClientPhase.WAITING):
            self.phase, self.is_failed = ClientPhase.OPEN, False

    def on_worked(self) -> None:
        """Record an acknowledgement: the last fatal error is over."""
        self.failure, self._failures, self._due = None, 0, 0.0

    def on_failed(self, failure: Fatal, now: float) -> bool:
        """Record a fatal error of the client; return whether that is new."""
        if self.phase is ClientPhase.OPEN:
            self._leave(now)
        elif self.phase is not ClientPhase.EMPTYING or self.is_failed:
            return False
        self.failure, self.is_failed = failure, True
        if not self._rules.waits_for_old:
            self._pause(now)
        return True

    def on_lost(self, now: float) -> bool:
        """Record that the client must be replaced for another reason; return whether it will be."""
        if self.phase is not ClientPhase.OPEN:
            return False
        self._leave(now)
        return True

    def _leave(self, now: float) -> None:
        waits = self._rules.waits_for_old
        self.phase = ClientPhase.EMPTYING if waits else ClientPhase.WAITING
        self._due = now

    def _pause(self, now: float) -> None:
        if now - self._failed_at > _CALM_S:
            self._failures = 0
        pauses_s = self._rules.pauses_s
        self._due = now + pauses_s[min(self._failures, len(pauses_s) - 1)]
        self._failures += 1
        self._failed_at = self._due

    def emptying(self, elapsed_s: float, *, is_failed: bool) -> Emptying:
        """Return how a replaced client gives its records back, given the time since."""
        if self.phase is ClientPhase.CLOSED or elapsed_s >= self._rules.drain_s:
            return Emptying.PURGE_ALL
        return Emptying.PURGE_QUEUED if is_failed else Emptying.WAIT

    def on_emptied(self, now: float, *, is_explained: bool = False) -> bool:
        """Record that the client has no records; return whether to report its failure.

        ``is_explained`` says that a refused record caused the fatal error: then there is no pause.
        """
        if not self._may_be(ClientPhase.EMPTYING):
            return False
        self.phase = ClientPhase.WAITING
        if is_explained or not self.is_failed:
            return False
        self._pause(now)
        return True

    def _may_be(self, expected: ClientPhase) -> bool:
        """Return whether it is this phase, False if closed; raises for any other phase."""
        if self.phase not in (expected, ClientPhase.CLOSED):
            raise UnexpectedEventError(f"in phase {self.phase.name}, not {expected.name}")
        return self.phase is expected

    def on_close(self) -> None:
        """Record that nothing more is sent."""
        self.phase = ClientPhase.CLOSED
