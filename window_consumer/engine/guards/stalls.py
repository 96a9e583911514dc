"""Stalls: calls that do not return, which of them are abandoned, and what happens to their records.

A call that runs longer than ``after`` is reported with its stack. If records may overtake each
other it is also *abandoned*: its slot is replaced, its record climbs the ladder with reason
STALLED, as if its local attempts were spent, and its late result changes nothing. A thread cannot
be stopped: its lane stays busy until it has really ended, whatever happened to the record.

A coroutine or a call in its own process can be *ended*, whatever the order: the one is cancelled,
the other killed. When it has ended, its slice returns and the record has failed, with reason
STALLED if it leaves for that; with ``retry`` it is first called again here, as after any other
failure. A call that does not end in time is abandoned like a thread, and its record leaves.

A slot can be a *lease*, for a program that asks for records. Its call ends when the lease ends,
unless the slot renews it, and for no other reason. The record has failed then, but that says
nothing about handlers, so the breaker does not count it.

The runtime inspects a call in between, because only it can read stacks and see whether the call has
returned by now::

    due (returns a Stalled) -> the runtime reads the stack -> on_inspected -> ... -> has_returned
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from window_consumer.engine.counters import Counters
from window_consumer.engine.guards.circuit_breaker import CircuitBreaker
from window_consumer.engine.guards.head_of_line import HeadOfLineRelease
from window_consumer.engine.guards.stuck_calls import AbandonedReturned, Stalled, StallRules
from window_consumer.engine.partition import Partition
from window_consumer.engine.partition_state import PartitionState
from window_consumer.engine.retry.completion import Completion
from window_consumer.engine.scheduling.dispatcher import Dispatcher
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.fault import Failure
from window_consumer.model.record import TopicPartition

LOOKS = 20
"""How many checks fall into ``after``: a stall is detected at most a twentieth late."""

CHECK_S = 0.5
"""The longest interval between checks."""

ENDING_S = 5.0
"""How long a call may take to end, to roll back transactions and close connections. At most
``after``."""


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
        self._moves = may_move and rules.action != "report"
        self._ends = rules.ends and rules.action != "report"
        self._leases = rules.leases
        self._ending: dict[Slice, float] = {}
        """When calls that have not returned were asked to end."""
        self._ending_s = min(ENDING_S, rules.after_s)
        self._relief = HeadOfLineRelease()
        self._interval_s = min(CHECK_S, rules.after_s / LOOKS)
        self._look_at = 0.0
        self._not_before = float("-inf")
        self._reported: dict[Slice, float] = {}
        self._returned: list[AbandonedReturned] = []
        self.stop: str | None = None
        """Why the worker must stop, once too many calls hang."""

    # ---- events

    def due(self, partitions: Mapping[TopicPartition, Partition], now: float) -> list[Stalled]:
        """Return the calls to inspect now."""
        if now < self._look_at:
            return []
        self._look_at = now + self._interval_s
        due = [
            slice_
            for slice_ in self._dispatcher.out
            if slice_.started and _is_watched(slice_) and self._is_due(slice_, now)
        ]
        if self._leases:
            expired = (self._about(each, now, abandon=False, end=True) for each in due)
            return [each for each in expired if each is not None]
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
        """Process a call's stack; ``failure`` is None if the call has returned by now."""
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
        if slice_.partition.accepts_results:
            self._breaker.failed(
                now,
                f"a call that has not returned for {stalled.seconds:.0f} s",
                slice_,
                is_new=slice_.is_new,
                lane=self._completion.lane_of_running(slice_),
            )
            self._completion.abandon(slice_, failure, now)
        else:
            self._dispatcher.abandon(slice_)
        self._breaker.over(slice_)

    def has_returned(self, slice_: Slice, now: float) -> bool:
        """Record that a slot has finished a slice; return whether its call had been abandoned."""
        self._reported.pop(slice_, None)
        self._ending.pop(slice_, None)
        if slice_ not in self._dispatcher.abandoned:
            return False
        self.record_return(slice_, slice_.messages[0].offset(), now)
        self._dispatcher.back(slice_)
        if slice_.partition.accepts_results:
            self._completion.release(slice_, now)
        return True

    def record_return(self, slice_: Slice, offset: int, now: float) -> None:
        """Record that the call of a record has ended whose result does not count any more."""
        self._counters.late += 1
        name = slice_.partition.name
        self._returned.append(AbandonedReturned(name, offset, now - slice_.started))

    def hangs(self, slice_: Slice, now: float) -> bool:
        """Return whether a call is known to hang and has not been asked to end."""
        if slice_ in self._ending or self._leases:
            return False
        is_late = bool(slice_.started) and now - self._since(slice_) >= self._rules.after_s
        return is_late or slice_ in self._reported

    def stood_still(self, now: float) -> None:
        """Record that the process was frozen: no call could proceed in that time."""
        self._not_before = now

    def take_returned(self) -> list[AbandonedReturned]:
        """Return the abandoned calls that have ended since the last time this was called."""
        returned, self._returned = self._returned, []
        return returned

    # ---- rules

    @property
    def _room(self) -> int:
        """How many more calls may be abandoned."""
        return self._rules.max_abandoned - len(self._dispatcher.abandoned)

    def _since(self, slice_: Slice) -> float:
        """Return the earliest time at which the running call may have started."""
        return max(slice_.started, slice_.progress_at, self._not_before)

    def _is_due(self, slice_: Slice, now: float) -> bool:
        if self._leases:
            # Events that arrived while the process was frozen are read first.
            return now >= max(slice_.lease_until, self._not_before + CHECK_S)
        if now - self._since(slice_) < self._rules.after_s:
            return False
        reported = self._reported.get(slice_)
        return reported is None or now - reported >= self._rules.after_s

    def _refuses_to_end(self, slice_: Slice, now: float) -> bool:
        """Return whether a call was asked to end so long ago that it must be handled again."""
        if not _is_watched(slice_):
            return False
        return now - max(self._ending[slice_], self._not_before) >= self._ending_s and (
            self._moves or self._is_due(slice_, now)
        )

    def _to_end(self, slice_: Slice, now: float, *, is_relief: bool = False) -> Stalled | None:
        """Return a call to end; None if that was tried or it has returned.

        Its slot's unstarted records are taken back, so that they proceed without the call.
        """
        if slice_ in self._ending:
            return None
        message = slice_.running()
        if slice_.partition.accepts_results:
            self._completion.take_back(slice_, now)
        if message is None or slice_.running() is not message:
            return None
        return self._about(slice_, now, abandon=False, is_relief=is_relief, end=True)

    def _stalled(self, slice_: Slice, now: float, due: int) -> Stalled | None:
        if self._moves and self._room < due:
            hanging = len(self._dispatcher.abandoned) + due
            why = "they ignore cancellation" if self._ends else "threads cannot be stopped"
            self.stop = (
                f"{hanging} handler calls have not returned for {self._rules.after_s:g} s, and"
                f" stall.max_abandoned is {self._rules.max_abandoned}: {why}; restart the process,"
                " and give the handler's calls timeouts"
            )
            return self._about(slice_, now, abandon=False)
        return self._about(slice_, now, abandon=self._moves)

    def _heads(self, partitions: Collection[Partition], now: float) -> list[Stalled]:
        """While tokens last, return calls that block a window in which everything else is done."""
        self._relief.earn(self._counters.processed)
        found: list[Stalled] = []
        for partition in partitions:
            if not partition.is_assigned or len(found) >= self._room:
                continue
            seq = self._relief.stuck_head(partition)
            if seq is None:
                continue
            deadline_s = self._relief.deadline_s(self._dispatcher.length.cost_s)
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
    """Return whether to watch a call: not if its partition was revoked."""
    return slice_.partition.state in (PartitionState.ACTIVE, PartitionState.LOST)
