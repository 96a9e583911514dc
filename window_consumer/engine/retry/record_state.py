"""The states of a record that has left the normal path, from its first failure to its outcome.

================= ======================================== =========================================
state             meaning                                  leaves
================= ======================================== =========================================
NEW               its first failure is being recorded      to any state in which it waits
WAITING           until a time: for its next call, or to   to READY or LEAVING at that time
                  send a refused copy again
READY             its next call is due                     to RUNNING when a slice takes it
HELD_BY_RATE      as READY, but its rate allows no call    to READY when it may
HELD_BY_PARTITION as READY, but its partition starts       to READY when it does; to CHOSEN as a
                  nothing: paused, not ours, under         suspect
                  suspicion, revoking
HELD_BY_RULE      before its first call, until a rule      to READY when it does
                  releases it; its lane is free
CHOSEN            taken to be called, not yet in a slice:  to RUNNING; to READY if it is put back
                  a suspect, or half of a batch on which
                  its process died
RUNNING           in a slice                               where its result leads; to READY if it
                                                           did not start
PRODUCING         its call returned results, not acked     to GONE; as after RUNNING if refused
HELD_BY_BREAKER   its attempts are spent, and the breaker  to LEAVING; to WAITING or READY for
                  has not decided                          another call
LEAVING           its copy is to be written                to UNACKED when it is sent; to GONE if it
                                                           is dropped instead
UNACKED           its copy is on its way to the broker     to GONE when it is acked; to WAITING,
                                                           LEAVING or STOPPING if refused
STOPPING          a rule stops the worker because of it    never
GONE              it has its outcome, or its partition is  never
                  released
================= ======================================== =========================================

From every state a record is GONE when its partition is released; only unacked copies stay until the
broker answers. If the breaker finds poison, calls are charged afterwards: a record in a state of
``MAY_BE_CHARGED`` may then leave. A user may skip or dead-letter a record in any state of
``AT_REST``. An abandoned call belongs to its slice: its record leaves while the call still runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NoReturn

from window_consumer.model.errors import WindowConsumerError


class RecordState(Enum):
    """The state of a failed record between its first failure and its outcome."""

    NEW = "new"
    WAITING = "waiting"
    READY = "ready"
    HELD_BY_RATE = "held by its rate"
    HELD_BY_PARTITION = "held by its partition"
    HELD_BY_RULE = "held by a rule"
    CHOSEN = "chosen"
    RUNNING = "running"
    PRODUCING = "producing"
    HELD_BY_BREAKER = "held by the breaker"
    LEAVING = "leaving"
    UNACKED = "unacked"
    STOPPING = "stopping"
    GONE = "gone"

    __hash__ = object.__hash__
    """Enum's own hash is written in Python, and each step of a record needs one."""

    following: frozenset[RecordState]
    """The states that a record may enter from this one."""

    def to(self, state: RecordState) -> RecordState:
        """Return the next state; raise UnknownRecordStepError if it does not follow this one."""
        if state not in self.following:
            self.refuse(state)
        return state

    def refuse(self, state: RecordState) -> NoReturn:
        """Raise UnknownRecordStepError: that state does not follow this one."""
        raise UnknownRecordStepError(f"a record goes from {self.value} to {state.value}")


class UnknownRecordStepError(WindowConsumerError):
    """A bug: a failed record is about to enter a state that its own does not allow."""


_S = RecordState

AT_REST = frozenset(
    {
        _S.WAITING,
        _S.READY,
        _S.HELD_BY_RATE,
        _S.HELD_BY_PARTITION,
        _S.HELD_BY_RULE,
        _S.HELD_BY_BREAKER,
        _S.LEAVING,
    }
)
"""The states in which neither a slot nor the broker has the record."""

MAY_BE_CHARGED = frozenset({_S.WAITING, _S.READY, _S.HELD_BY_RATE})
"""The states of records that wait for a call, but leave if they turn out to have no attempt
left."""

_CHARGED = frozenset({_S.HELD_BY_BREAKER, _S.LEAVING, _S.STOPPING})

_AFTER_A_CALL = _CHARGED | {_S.WAITING}

_NEXT: Mapping[RecordState, frozenset[RecordState]] = {
    _S.NEW: _AFTER_A_CALL | {_S.HELD_BY_RULE},
    _S.WAITING: _CHARGED | {_S.READY, _S.GONE},
    _S.READY: _CHARGED | {_S.RUNNING, _S.HELD_BY_RATE, _S.HELD_BY_PARTITION, _S.GONE},
    _S.HELD_BY_RATE: _CHARGED | {_S.READY, _S.GONE},
    _S.HELD_BY_PARTITION: frozenset({_S.READY, _S.CHOSEN, _S.LEAVING, _S.GONE}),
    _S.HELD_BY_RULE: frozenset({_S.READY, _S.LEAVING, _S.GONE}),
    _S.CHOSEN: frozenset({_S.RUNNING, _S.READY, _S.GONE}),
    _S.RUNNING: _AFTER_A_CALL | {_S.READY, _S.CHOSEN, _S.PRODUCING, _S.GONE},
    _S.PRODUCING: _AFTER_A_CALL | {_S.GONE},
    _S.HELD_BY_BREAKER: frozenset({_S.LEAVING, _S.WAITING, _S.READY, _S.GONE}),
    _S.LEAVING: frozenset({_S.LEAVING, _S.UNACKED, _S.GONE}),
    _S.UNACKED: frozenset({_S.GONE, _S.WAITING, _S.LEAVING, _S.STOPPING}),
    _S.STOPPING: frozenset({_S.GONE}),
    _S.GONE: frozenset(),
}

for _state, _following in _NEXT.items():
    _state.following = _following
