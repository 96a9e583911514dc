"""Where a partition stands in its assignment, and what holds it back while it is active.

========= =============================================== ==========================================
state     meaning                                         left
========= =============================================== ==========================================
ACTIVE    it is assigned                                  to REVOKING when it is about to be given
                                                          up; to LOST when it is gone at once
REVOKING  nothing is taken in or started; what runs may   to REVOKED when it is given up
          finish, and is committed
REVOKED   given up after that; results change nothing     never
LOST      given up while it was active; the same          never
========= =============================================== ==========================================

REVOKED and LOST differ in one point: calls of a revoked partition that do not return were reported
when it was given up, those of a lost one are watched like any others.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from window_consumer.model.errors import WindowConsumerError


class PartitionState(Enum):
    """Where a partition stands between its assignment and its end."""

    ACTIVE = "active"
    REVOKING = "revoking"
    REVOKED = "revoked"
    LOST = "lost"

    def to(self, state: PartitionState) -> PartitionState:
        """Return the next state; UnknownTransitionError where none leads there."""
        if state not in _NEXT[self]:
            raise UnknownTransitionError(f"a partition goes from {self.value} to {state.value}")
        return state


_NEXT: Mapping[PartitionState, frozenset[PartitionState]] = {
    PartitionState.ACTIVE: frozenset({PartitionState.REVOKING, PartitionState.LOST}),
    PartitionState.REVOKING: frozenset({PartitionState.REVOKED}),
    PartitionState.REVOKED: frozenset(),
    PartitionState.LOST: frozenset(),
}


class UnknownTransitionError(WindowConsumerError):
    """A bug: a partition is about to enter a state that does not follow its own."""


class HoldReason(Enum):
    """Why a partition is held back although it is active; several may apply at once."""

    MANUAL = "manual"
    """A person has paused it, see ``manual_pause``."""
    NOT_OWNER = "not the owner"
    """Another member owns the lanes of its copies, see ``lane_ownership``."""
    CRASH_SUSPECTS = "crash suspects"
    """Its records are started one at a time, see ``crash_suspects``."""
    METADATA_FULL = "metadata nearly full"
    """The finished ranges nearly fill what a commit may carry, see ``commits``."""


STOPS_EVERYTHING = frozenset({HoldReason.MANUAL, HoldReason.NOT_OWNER})
"""Nothing starts, suspects included."""

STOPS_STARTS = STOPS_EVERYTHING | {HoldReason.CRASH_SUSPECTS}
"""Nothing starts by itself."""

STOPS_INTAKE = frozenset({HoldReason.NOT_OWNER, HoldReason.METADATA_FULL})
"""Delivered records wait in the buffer. What a person pauses still fills its window."""
