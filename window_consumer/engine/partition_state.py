"""A partition's state within its assignment, and what holds it back while it is active.

========= =============================================== ==========================================
state     meaning                                         leaves
========= =============================================== ==========================================
ACTIVE    it is assigned                                  to REVOKING when its revocation begins; to
                                                          LOST when it is lost at once
REVOKING  nothing is taken in or started; running calls   to REVOKED when it is released
          may finish and are committed
REVOKED   released after that; results change nothing     never
LOST      released while active; results change nothing   never
========= =============================================== ==========================================

REVOKED and LOST differ in one point: hanging calls of a revoked partition were reported when it was
released; those of a lost one are still watched.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from window_consumer.model.errors import WindowConsumerError


class PartitionState(Enum):
    """A partition's state between its assignment and its end."""

    ACTIVE = "active"
    REVOKING = "revoking"
    REVOKED = "revoked"
    LOST = "lost"

    def to(self, state: PartitionState) -> PartitionState:
        """Return the next state; raise UnknownTransitionError if the transition is not allowed."""
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
    """A bug: a partition is about to enter a state that its own does not allow."""


class HoldReason(Enum):
    """Why a partition is held back although it is active; several may apply at once."""

    MANUAL = "manual"
    """A user has paused it, or a rule the worker, see ``pauses``."""
    NOT_OWNER = "not the owner"
    """Another member owns the lanes of its copies, see ``lane_ownership``."""
    CRASH_SUSPECTS = "crash suspects"
    """Its records are started one at a time, see ``crash_suspects``."""
    RESTING = "resting"
    """Its commit does not say yet that it is in use, see ``resting_partitions``."""
    BACKPRESSURE = "backpressure"
    """It has taken in as much as it may, so the client fetches nothing for it."""
    METADATA_FULL = "metadata nearly full"
    """The finished ranges nearly fill what a commit may carry, see ``commits``."""


STOPS_EVERYTHING = frozenset({HoldReason.MANUAL, HoldReason.NOT_OWNER})
"""Nothing starts, not even suspects."""

STOPS_STARTS = STOPS_EVERYTHING | {HoldReason.CRASH_SUSPECTS, HoldReason.RESTING}
"""Nothing starts by itself."""

STOPS_INTAKE = frozenset({HoldReason.NOT_OWNER, HoldReason.METADATA_FULL})
"""Delivered records wait in the buffer. A manually paused partition still fills its window."""


class PartitionPermissions:
    """What the state of a partition, and what holds it back, let it do. Owner: poll thread."""

    starts_while_revoked = False
    """Records left in its ordering start while it is being revoked."""

    def __init__(self) -> None:
        self.state = PartitionState.ACTIVE
        self.holds: frozenset[HoldReason] = frozenset()
        """Why it is held back; normally empty."""
        self._derive()

    @property
    def is_suspended(self) -> bool:
        """It starts nothing at all, not even suspects."""
        return not self.holds.isdisjoint(STOPS_EVERYTHING)

    def set_hold(self, reason: HoldReason, *, held: bool) -> None:
        """Set or clear a reason to hold it back."""
        if held == (reason in self.holds):
            return
        self.holds ^= {reason}
        self._derive()

    def revoke(self) -> None:
        """Take in and start nothing more: it is about to be released."""
        self._enter(PartitionState.REVOKING)

    def _enter(self, state: PartitionState) -> None:
        self.state = self.state.to(state)
        self._derive()

    def _derive(self) -> None:
        """Update the flags that follow from state and holds; they are read for each slice."""
        state, holds = self.state, self.holds
        self.is_assigned = state is PartitionState.ACTIVE
        """Its revocation has not begun, and it was not lost."""
        self.accepts_results = self.is_assigned or state is PartitionState.REVOKING
        """It has not been released: results for it count."""
        self.gives_out = self.is_assigned or (self.starts_while_revoked and self.accepts_results)
        """Its records may go to slots, and come back unstarted."""
        self.starts_calls = self.gives_out and holds.isdisjoint(STOPS_STARTS)
        """Its records start by themselves."""
        self.rests = HoldReason.RESTING in holds
        """Nothing starts before a commit says that it is in use, see ``resting_partitions``."""
        self.takes_in = self.is_assigned and holds.isdisjoint(STOPS_INTAKE)
        """Delivered records go into the window; otherwise they wait in the buffer."""
        self.is_fetched = HoldReason.BACKPRESSURE not in holds
        """The client fetches records for it, see ``backpressure``."""
