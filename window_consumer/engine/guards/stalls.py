"""Stalls: calls that do not return, which of them are given up, and what becomes of their records.

A call that runs for longer than ``after`` is reported with its stack. Where records may overtake
each other it is *abandoned* as well: its slot is replaced, its record climbs the ladder with reason
STALLED, as if its attempts at this place were spent, and its late result changes nothing. A thread
cannot be stopped: its lane stays busy until it has really ended, whatever became of the record.

A coroutine can be *ended*, whatever the order, and so can a call that has a process of its own: one
is cancelled, the other killed. When it has ended its slice comes back and the record has failed,
with reason STALLED where it leaves for that. One that has not ended some time after is abandoned
like a thread.

The runtime looks at a call in between, because only it can see stacks and knows whether the call
has returned by now::

    look (a Stalled goes out) -> the runtime: where does it stand? -> looked_at -> ... -> returned
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from attrs import frozen

from window_consumer.engine.counters import Counters
from window_consumer.engine.guards.circuit_breaker import CircuitBreaker
from window_consumer.engine.guards.head_of_line import HeadOfLineRelease
from window_consumer.engine.partition import Partition
from window_consumer.engine.partition_state import PartitionState
from window_consumer.engine.retry.completion import Completion
from window_consumer.engine.scheduling.dispatcher import Dispatcher
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.fault import Failure
from window_consumer.model.record import TopicPartition

LOOKS = 20
"""A call is noticed at most a twentieth of ``after`` later than it is due ..."""

CHECK_S = 0.5
"""... and no later than this."""

ENDING_S = 5.0
"""How long a call may take to end: transactions are rolled back, connections closed. At most
``after``."""


Ending = Literal["cancelled", "killed"]
"""What becomes of a call that is ended: as a coroutine, or with its process."""


@frozen
class StallRules:
    """The ``stall`` section of a worker's configuration; seconds."""

    after_s: float = float("inf")
    action: Literal["move", "report"] = "move"
    max_abandoned: int = 4
    ends: bool = False
    """The runtime can end a call from outside: it is a coroutine, or has a process of its own."""


@frozen(eq=False)
class Stalled:
    """A call that has been running for long; the runtime says where it stands."""

    slice_: Slice
    name: TopicPartition
    offset: int
    key: bytes | None
    attempt: int
    seconds: float
    abandon: bool
    """It is given up if it is still running; else it is only reported."""
    is_relief: bool = False
    """It is not stalled yet, but it holds up a window in which all else is done."""
    end: bool = False
    """It is ended if it is still running, and comes back as failed."""


@frozen
class AbandonedReturned:
    """News: an abandoned call has ended; its result was ignored."""

    name: TopicPartition
    offset: int
    seconds: float


class Stalls:
    """Watches the running calls of one worker. Owner: poll thread."""

    def __init__(
        self,
        rules: StallRules,
        dispatcher: Dispatcher,
        completion: Completion,
        breaker: CircuitBreaker,
        counters: Counters,
        *,
        may_move: bool,
    ):
        self._rules = rules
        self._dispatcher = dispatcher
        self._completion = completion
        self._breaker = breaker
        self._counters = counters
        self._moves = may_move and rules.action == "move"
        self._ends = rules.ends and rules.action == "move"
        self._ending: dict[Slice, float] = {}
        """Since when calls have been told to end that have not come back."""
        self._ending_s = min(ENDING_S, rules.after_s)
        self._relief = HeadOfLineRelease()
        self._interval_s = min(CHECK_S, rules.after_s / LOOKS)
        self._look_at = 0.0
        self._not_before = float("-inf")
        self._reported: dict[Slice, float] = {}
        self._returned: list[AbandonedReturned] = []
        self.stop: str | None = None
        """Why the worker has to stop, once too many calls hang."""

    # ---- what happens

    def due(self, partitions: Mapping[TopicPartition, Partition], now: float) -> list[Stalled]:
        """Return the calls that have to be looked at now."""
        if now < self._look_at:
            return []
        self._look_at = now + self._interval_s
        due = [
            slice_
            for slice_ in self._dispatcher.out
            if slice_.started and _is_watched(slice_) and self._is_due(slice_, now)
        ]
        if self._ends:
            found = [each for slice_ in due if (each := self._to_end(slice_, now)) is not None]
            due = [each for each in self._ending if self._refuses_to_end(each, now)]
        else:
            found = []
        found += [each for slice_ in due if (each := self._stalled(slice_, now, len(due)))]
        if self._moves and not found and self._room > 0:
            found.extend(self._heads(partitions.values(), now))
        return found

    def on_inspected(self, stalled: Stalled, failure: Failure | None, now: float) -> None:
        """Hear where a call stands; None where it has returned by now."""
        slice_ = stalled.slice_
        if failure is None:
            self._reported.pop(slice_, None)
            return
        if not stalled.is_relief:
            self._counters.stalled += self._reported.get(slice_) is None
            self._reported[slice_] = now
        if stalled.end:
            self._ending[slice_] = now
        if not stalled.abandon:
            return
        self._reported.pop(slice_, None)
        self._ending.pop(slice_, None)
        self._counters.abandoned += 1
        slice_.call.cancelled = True
        if slice_.partition.owned:
            self._breaker.failed(
                now,
                f"a call that has not returned for {stalled.seconds:.0f} s",
                slice_,
                is_new=slice_.is_new,
            )
            self._completion.abandon(slice_, failure, now)
        else:
            self._dispatcher.abandon(slice_)
        self._breaker.probe_is_back(slice_)

    def has_returned(self, slice_: Slice, now: float) -> bool:
        """Hear that a slot is through with a slice; tell whether its call had been abandoned."""
        self._reported.pop(slice_, None)
        self._ending.pop(slice_, None)
        if slice_ not in self._dispatcher.abandoned:
            return False
        self._counters.late += 1
        message = slice_.messages[0]
        self._returned.append(
            AbandonedReturned(slice_.partition.name, message.offset(), now - slice_.started)
        )
        self._dispatcher.back(slice_)
        if slice_.partition.owned:
            self._completion.release(slice_, now)
        return True

    def hangs(self, slice_: Slice, now: float) -> bool:
        """Tell whether a call is known to hang, and nobody has told it to end."""
        if slice_ in self._ending:
            return False
        is_late = bool(slice_.started) and now - self._since(slice_) >= self._rules.after_s
        return is_late or slice_ in self._reported

    def stood_still(self, now: float) -> None:
        """Hear that the process was frozen: no call could go on meanwhile."""
        self._not_before = now

    def take_returned(self) -> list[AbandonedReturned]:
        """Return the abandoned calls that have ended since this was asked last."""
        returned, self._returned = self._returned, []
        return returned

    # ---- the rules

    @property
    def _room(self) -> int:
        """How many more calls may be abandoned."""
        return self._rules.max_abandoned - len(self._dispatcher.abandoned)

    def _since(self, slice_: Slice) -> float:
        """Return since when the call that runs has been running, at the earliest."""
        return max(slice_.started, slice_.progress_at, self._not_before)

    def _is_due(self, slice_: Slice, now: float) -> bool:
        if now - self._since(slice_) < self._rules.after_s:
            return False
        reported = self._reported.get(slice_)
        return reported is None or now - reported >= self._rules.after_s

    def _refuses_to_end(self, slice_: Slice, now: float) -> bool:
        """Tell whether a call has been told to end for long, and has to be dealt with again."""
        if not _is_watched(slice_):
            return False
        return now - max(self._ending[slice_], self._not_before) >= self._ending_s and (
            self._moves or self._is_due(slice_, now)
        )

    def _to_end(self, slice_: Slice, now: float, *, is_relief: bool = False) -> Stalled | None:
        """Return a call that is to be ended, None where that was tried or it has returned.

        What its slot has not started is taken back: it goes on although the call is given up.
        """
        if slice_ in self._ending:
            return None
        message = slice_.running()
        if slice_.partition.owned:
            self._completion.take_back(slice_, now)
        if message is None or slice_.running() is not message:
            return None
        return self._about(slice_, now, abandon=False, is_relief=is_relief, end=True)

    def _stalled(self, slice_: Slice, now: float, due: int) -> Stalled | None:
        if self._moves and self._room < due:
            hanging = len(self._dispatcher.abandoned) + due
            why = (
                "they have been cancelled and go on" if self._ends else "a thread cannot be stopped"
            )
            self.stop = (
                f"{hanging} handler calls have not returned for {self._rules.after_s:g} s, and"
                f" stall.max_abandoned is {self._rules.max_abandoned}: {why}, a new process can"
                " go on; give the handler's calls timeouts"
            )
            return self._about(slice_, now, abandon=False)
        return self._about(slice_, now, abandon=self._moves)

    def _heads(self, partitions: Collection[Partition], now: float) -> list[Stalled]:
        """Return calls that hold up a window in which all else is done, while tokens last."""
        self._relief.earn(self._counters.processed)
        found: list[Stalled] = []
        for partition in partitions:
            if not partition.is_active or len(found) >= self._room:
                continue
            seq = self._relief.stuck_head(partition)
            if seq is None:
                continue
            deadline_s = self._relief.deadline_s(self._dispatcher.cost_s)
            for slice_ in self._dispatcher.slices_of(partition):
                is_head = slice_.running_seq() == seq and slice_ in self._dispatcher.out
                is_new = slice_ not in self._ending
                is_slow = now - self._since(slice_) > deadline_s
                if is_head and is_new and is_slow and self._relief.spend():
                    stalled = self._head(slice_, now)
                    found += [stalled] if stalled is not None else []
        return found

    def _head(self, slice_: Slice, now: float) -> Stalled | None:
        if self._ends:
            return self._to_end(slice_, now, is_relief=True)
        return self._about(slice_, now, abandon=True, is_relief=True)

    def _about(
        self,
        slice_: Slice,
        now: float,
        *,
        abandon: bool,
        is_relief: bool = False,
        end: bool = False,
    ) -> Stalled | None:
        message = slice_.running()
        if message is None:
            return None
        return Stalled(
            slice_,
            slice_.partition.name,
            message.offset(),
            message.key(),
            slice_.call.number_of(message),
            now - self._since(slice_),
            abandon,
            is_relief,
            end,
        )


def _is_watched(slice_: Slice) -> bool:
    """Tell whether a call that does not return is dealt with: not where it was revoked."""
    return slice_.partition.state in (PartitionState.ACTIVE, PartitionState.LOST)
