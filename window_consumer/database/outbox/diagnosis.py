"""The report of ``doctor`` about an outbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import frozen

from window_consumer.plan.diagnosis import CauseKind, Diagnosis, LikelyCause

RELAY_FAILED: Final = "outbox: the relay failed: "
"""The prefix of a line of ``/readyz``."""

_OUTBOX: Final = "outbox"
"""Replaces the worker's name in causes that concern the outbox."""

_WAITS_S: Final = 30.0
"""Rows are sent within a second; a row this old is stuck."""


@frozen
class OutboxBacklog:
    """The rows waiting in an outbox, whichever process relays it."""

    oldest_s: float = 0.0
    """The age of the oldest row that is due."""
    blocked: int = 0
    """Rows that Kafka refuses, while later rows of their keys wait."""
    error: str | None = None
    """Why the database could not be queried."""


def relay_failures(readiness: Sequence[str]) -> list[str]:
    """Return why relays beside workers do not run, from lines of ``/readyz``."""
    return [line.partition(RELAY_FAILED)[2] for line in readiness if RELAY_FAILED in line]


def diagnose_outbox(outbox: OutboxBacklog, failures: Sequence[str] = ()) -> Diagnosis:
    """Return the cause that holds up the rows of an outbox; None if there is none.

    ``failures`` are those of relays in the processes that were queried.
    """
    if failures:
        sentence = f"its relay failed and restarts: {failures[0]}"
    elif outbox.error is not None:
        sentence = f"its database does not respond, so nothing is sent: {outbox.error}"
    elif outbox.blocked:
        sentence = (
            f"Kafka refuses {outbox.blocked} rows, and later rows of their keys wait:"
            " `window-consumer outbox list --failed` shows why"
        )
    elif outbox.oldest_s >= _WAITS_S:
        sentence = (
            f"its oldest row has waited for {outbox.oldest_s:.0f} s: no relay runs"
            " (`outbox.relay`, `window-consumer outbox run`), or its log shows Kafka's error"
        )
    else:
        return Diagnosis((), ("outbox: no row has waited long",))
    figures = {"oldest_s": outbox.oldest_s, "blocked": outbox.blocked}
    return Diagnosis((LikelyCause(CauseKind.OUTBOX_WAITS, _OUTBOX, sentence, figures, weight=97),))
