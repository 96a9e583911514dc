"""The states of the circuit breaker, its rules, and its events in and out.

What leads from one state to another; a user can open it, and release what it holds, at any time:

========= ============================ ====================================================
state     meaning                      leaves
========= ============================ ====================================================
closed    normal operation             to holding when most of the last ``min_calls`` new records
                                       failed, or MOST records left without a success between them
holding   nothing leaves while it      to poison when records from one place fail while those from
          searches for the cause       another succeed, or fewer calls do not fail less; to overload
                                       when they do; to open when none succeeds; to paused when most
                                       ask to be called later
poison    everything runs; a spent     to closed when few fail for POISON_S; to holding when those
          record leaves if others      from no place succeed, or none has for a while
          succeeded beside it
overload  as many calls as succeed,    to poison when all slots run again, when fewer calls do not
          failed and new records in    fail less, or only those from some places fail; to open when
          turn; nothing leaves         none succeeds; to paused when most ask to be called later
open      only samples, one after      to half-open when a sample returns; to closed when nothing is
          another; nothing leaves      left to call; to paused when one asks to be called later
paused    nothing starts, and no       to half-open when the requested time is over, at most
          attempt is spent             ``cool_down``
half-open as many calls as succeeded   to poison when all slots run; to overload when fewer fail
          in the last round, doubled   with fewer calls; to open when none of a round succeeds; to
                                       paused when most ask to be called later
========= ============================ ====================================================
"""

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

    @property
    def charges(self) -> bool:
        """Failed calls cost an attempt, and records may leave."""
        return self in _CHARGED

    @property
    def spreads(self) -> bool:
        """New records from other places of the windows are called beside the usual ones."""
        return self in _SPREAD

    @property
    def searches_load(self) -> bool:
        """It searches for the number of calls that can run."""
        return self in _SEARCHING


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

_CHARGED = frozenset({_S.CLOSED, _S.POISON})
_SPREAD = frozenset({_S.HOLDING, _S.POISON})
_SEARCHING = frozenset({_S.HALF_OPEN, _S.OVERLOAD})


@frozen
class BreakerFinding:
    """What calls have shown: the state that follows from it, and the reason as text."""

    state: BreakerState
    why: str


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
