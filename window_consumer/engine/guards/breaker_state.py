"""The states of the circuit breaker, its rules, and its events in and out."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from attrs import frozen


@frozen
class BreakerRules:
    """The ``breaker`` section of a worker's configuration; durations in seconds."""

    failures: float = 0.5
    """It looks for the cause if more than this share of new records fails; at 1.0 if all fail."""
    window_s: float = 30.0
    min_calls: int = 20
    cool_down_s: float = 30.0
    """The longest time between two samples, and the longest pause."""
    max_hold_s: float = 600.0
    """How long records are held while nothing succeeds and nothing new comes."""
    enabled: bool = True


class BreakerState(StrEnum):
    """What the breaker lets through."""

    CLOSED = "closed"
    HOLDING = "holding"
    POISON = "poison"
    OVERLOAD = "overload"
    OPEN = "open"
    PAUSED = "paused"
    HALF_OPEN = "half-open"


class BreakerAnswer(StrEnum):
    """The result of a user's decision about the breaker."""

    OBEYED = "obeyed"
    NOTHING_HELD = "nothing held"
    """It is closed, so there is nothing to release."""
    SWITCHED_OFF = "switched off"
    NO_SUCH_WORKER = "no such worker"


_S = BreakerState
NEXT: Mapping[BreakerState, frozenset[BreakerState]] = {
    _S.CLOSED: frozenset({_S.HOLDING, _S.OPEN, _S.POISON}),
    _S.HOLDING: frozenset({_S.CLOSED, _S.POISON, _S.OVERLOAD, _S.OPEN, _S.PAUSED}),
    _S.POISON: frozenset({_S.CLOSED, _S.HOLDING, _S.OPEN}),
    _S.OVERLOAD: frozenset({_S.CLOSED, _S.POISON, _S.OPEN, _S.PAUSED}),
    _S.OPEN: frozenset({_S.CLOSED, _S.POISON, _S.PAUSED, _S.HALF_OPEN}),
    _S.PAUSED: frozenset({_S.HALF_OPEN, _S.OPEN, _S.POISON}),
    _S.HALF_OPEN: frozenset({_S.CLOSED, _S.POISON, _S.OVERLOAD, _S.OPEN, _S.PAUSED}),
}

FREE = frozenset({_S.CLOSED, _S.HOLDING, _S.POISON})
"""The states in which all slots may run."""

CHARGED = frozenset({_S.CLOSED, _S.POISON})
"""The states in which failed calls cost an attempt, and records may leave."""


@frozen
class BreakerNews:
    """A change of the breaker's state."""

    state: BreakerState
    why: str
    """The reason, as text."""
    worth_a_line: bool = True
    """False for a brief hold, which comes and goes with every handful of bad records."""
    pardon: bool = False
    """Records whose attempts were spent in the meantime get one more call."""
    limits: bool = False
    """From now on fewer calls run than there are slots; slices queued for slots are taken back."""


@frozen
class Outlook:
    """What a worker could call. It is used only while the breaker is not closed."""

    slots: int
    new: bool
    """New records wait, or would come if the windows had room."""
    more: bool
    """Records wait behind full windows."""
    ready: bool
    """Something could start now: a new record, or one whose retry is due."""
    failed: bool
    """Failed records will be called again, or may be."""
    held: int = 0
    """How many records have failed and have no outcome."""
    delivered: int = 0
    """How many records have been delivered so far."""
    released: bool = False
    """Records that a user has released have not been called since."""
