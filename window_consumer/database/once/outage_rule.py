"""The report of an outage of ``once`` in ``doctor``, ``status``, the page and the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from window_consumer.database.once.outage import DatabaseUnavailable
from window_consumer.engine.guards.pause_rule import PauseRule, RuleFinding
from window_consumer.engine.partition import Partition
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.fault import Failure
from window_consumer.model.log_events import LogEvent
from window_consumer.model.outcome import Outcome
from window_consumer.model.record import Message
from window_consumer.runtime.log import own_logger

KIND: Final = "database_unavailable"
"""The name of the cause in ``doctor``; it is stable."""

QUIET_S: Final = 5.0
"""An outage is over when records are finished and no call has met it for this long."""
FORGET_S: Final = 60.0
"""After this long without a call that meets it, an outage is forgotten: this member may have no
records."""

_log = own_logger()


class DatabaseOutageRule(PauseRule):
    """Reports outages without pausing: the Engine holds calls back, and no person resumes them.

    It observes calls in all processes of the worker. Owner: poll thread.
    """

    def __init__(self, worker: str, away: str | None = None):
        """``away`` is why the start has found the database away, and has logged that; or None."""
        self._worker = worker
        self._why = away
        """Why the database is unavailable; None while it is available."""
        self._since: float | None = None
        self._until = self._seen = 0.0
        self._is_reached = False

    def held(self, failure: Failure, until: float, now: float) -> None:
        """See Observer."""
        if not isinstance(failure.error, DatabaseUnavailable):
            return
        is_new = self._why is None
        self._why = str(failure.error)
        self._begin(now)
        if is_new:
            _log.warning(
                "%s: once: the database is not available, so no call starts and no attempt is"
                " spent: %s",
                self._worker,
                self._why,
                extra={"event": LogEvent.ONCE_DATABASE_AWAY, "worker": self._worker},
            )
        self._until, self._is_reached = until, False

    def finished(
        self,
        partition: Partition,
        messages: Sequence[Message],
        outcome: Outcome,
        slice_: Slice | None,
        now: float,
    ) -> None:
        """See Observer."""
        del partition, messages, outcome, slice_
        if self._why is not None and now >= self._until:
            self._is_reached = True

    def pauses(self, now: float) -> bool:
        """Return False; check whether an outage is over."""
        self._seen = now
        if self._why is not None:
            since = self._begin(now)
            quiet_s = now - self._until
            if quiet_s >= (QUIET_S if self._is_reached else FORGET_S):
                self._why = self._since = None
                _log.info(
                    "%s: once: calls start again; the database was away for %.1f s",
                    self._worker,
                    self._until - since,
                    extra={"event": LogEvent.ONCE_DATABASE_BACK, "worker": self._worker},
                )
        return False

    def findings(self) -> Sequence[RuleFinding]:
        """Return a finding if the database is unavailable."""
        if self._why is None or self._since is None:
            return ()
        away_s = self._seen - self._since
        text = (
            f"the database of once has been unavailable for {away_s:.0f} s: no call starts, and no"
            f" attempt is spent ({self._why})"
        )
        return [
            RuleFinding(
                KIND, text, holds_all=True, ends_itself=True, figures={"away_s": round(away_s, 1)}
            )
        ]

    def _begin(self, now: float) -> float:
        """Return since when the database is away; an outage from before the start begins now."""
        if self._since is None:
            self._since = self._until = now
        return self._since

    def accept(self) -> None:
        """Keep the outage: it ends by itself."""
