"""Which spent records may leave: those that failed beside successes of others.

A record whose attempts are spent is poison if others succeeded while its last call failed. If
nothing succeeded in that time, there may be an outage, and the record is called once more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from enum import Enum
from math import inf

from attrs import define, frozen

from window_consumer.engine.guards.breaker_state import BreakerState

MOST = 20
"""How many records may leave without a success between them."""

BESIDE_S = 0.5
"""How long after a failed call another one may start to count as beside it."""

HOLD_S = 0.5
"""How long nothing must succeed before the breaker opens: longer than a reconnect. A record that
asked to be called later waits as long."""

SETTLE_S = 0.02
"""How long after its last attempt a spent record leaves: by then it is clear whether it was the
first of many."""

AT_ONCE = 5
"""How many spent records may leave sooner within SETTLE_S: too few for an outage."""

FEW = 3
"""How many new records in a row may fail and still count as a few bad ones."""

_STEP_S = 0.05
"""One success is kept for each interval of this length."""

_KEPT = 1200
"""How many successes are kept: those of a minute."""

_SEVERAL: Hashable = object()
"""The lane of an interval in which several lanes succeeded."""


class Departure(Enum):
    """What a spent record does next."""

    LEAVE = "leave"
    WAIT = "wait"
    CALL_AGAIN = "call again"


@frozen
class SpentCall:
    """The last call of a record whose attempts are spent."""

    lane: Hashable
    first_failed: float
    """When the first call of its record failed."""
    began: float
    ended: float
    alone: bool = True
    """False in a batch that failed as a whole: that is no verdict on its records."""
    later: bool = False
    """It asked to be called later: its record would have waited anyway."""
    last: bool = False
    """Its record cannot be called again: it waits until others succeed after it."""
    climbs: bool = False
    """Its record is a copy that moves to another retry level: it had failed before."""

    def settled_at(self, state: BreakerState) -> float:
        """Return when to decide about its record, in this state of the breaker."""
        if not state.charges:
            return float("inf")
        if self.later:
            return self.ended + HOLD_S
        return self.ended + (SETTLE_S if state is BreakerState.CLOSED else BESIDE_S)


@define
class _Successes:
    """The successful calls that started within one interval."""

    step: int
    latest: float
    """When the last one started."""
    lane: Hashable


class Departures:
    """Tracks departures between successes, and when calls succeeded. Owner: poll thread."""

    def __init__(self) -> None:
        self.since_success = 0
        """Records that left since the last success. A record that failed beside a success leaves
        even after MOST others, and counts here: an outage may begin while such calls run."""
        self.new_failed = 0
        """New records that failed since the last success."""
        self.is_refusing = False
        """A record may not leave before the next success."""
        self._successes: deque[_Successes] = deque(maxlen=_KEPT)
        """In order."""
        self._doubt_until = float("-inf")
        self._outage_until = float("-inf")
        self._at_once = 0
        self._at_once_until = 0.0

    def decide(
        self, call: SpentCall, state: BreakerState, now: float, *, in_a_hurry: bool
    ) -> Departure:
        """Decide about a spent record; ``in_a_hurry``: its partition is about to be released."""
        if call.later:
            calm = state.charges and (in_a_hurry or call.ended <= now - HOLD_S)
            return Departure.LEAVE if calm else Departure.WAIT
        if not state.charges:
            return Departure.WAIT
        if call.alone and self._is_proven(call):
            self.since_success += 1
            return Departure.LEAVE
        is_closed = state is BreakerState.CLOSED
        # Copies that fail again say little about an outage, which new records would meet as well.
        if self.is_exhausted and not (is_closed and call.climbs and self.new_failed < FEW):
            self.is_refusing = True
            return Departure.WAIT
        if is_closed:
            settled = in_a_hurry or call.ended <= now - SETTLE_S or self._may_leave_at_once(now)
            self.since_success += settled
            return Departure.LEAVE if settled else Departure.WAIT
        waits = call.alone and now < call.ended + BESIDE_S
        return Departure.WAIT if waits else Departure.CALL_AGAIN

    def _may_leave_at_once(self, now: float) -> bool:
        if now >= self._at_once_until:
            self._at_once_until = now + SETTLE_S
            self._at_once = 0
        self._at_once += 1
        return self._at_once <= AT_ONCE

    def succeeded(self) -> None:
        """Record that some call has returned."""
        self.since_success = self.new_failed = 0
        self.is_refusing = False

    def began(self, started: float, lane: Hashable) -> None:
        """Record when a returned call started; ``lane`` is None without order."""
        step = int(started / _STEP_S)
        successes = self._successes
        lane = _SEVERAL if lane is None else lane
        if not successes or step > successes[-1].step:
            successes.append(_Successes(step, started, lane))
            return
        for each in reversed(successes):
            if each.step == step:
                each.latest = max(each.latest, started)
                if each.lane != lane:
                    each.lane = _SEVERAL
                return
            if each.step < step:
                return  # a long call: others that returned sooner say as much

    def doubt(self, now: float) -> None:
        """Record that there was an outage until now: earlier failures no longer prove anything."""
        self._doubt_until = now

    def outage_ended(self, now: float) -> None:
        """Record that calls succeed again: calls that began earlier met the outage."""
        self._outage_until = now

    @property
    def is_exhausted(self) -> bool:
        """So many have left that only copies may leave before the next success."""
        return self.since_success >= MOST

    def _is_proven(self, call: SpentCall) -> bool:
        """Return whether others succeeded beside the last call of a record, or its first one."""
        if call.began < self._outage_until and not call.last:
            return False
        until = inf if call.last else call.ended + BESIDE_S
        if self._others_succeeded(call.lane, call.began, until):
            return True
        first = call.first_failed
        return first >= self._doubt_until and self._others_succeeded(
            call.lane, first, first + BESIDE_S
        )

    def _others_succeeded(self, lane: Hashable, since: float, until: float) -> bool:
        """Return whether a call of another lane began between these times and succeeded."""
        first, last = int(since / _STEP_S), until / _STEP_S
        for each in reversed(self._successes):
            if each.step < first:
                return False
            others = each.lane is _SEVERAL or lane is None or each.lane != lane
            if each.step <= last and each.latest >= since and others:
                return True
        return False
