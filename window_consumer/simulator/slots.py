"""Slots without threads: they advance step by step, in any order that the seed draws."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, ClassVar, Protocol

from window_consumer.engine.guards.stuck_calls import Ending, Stalled
from window_consumer.engine.scheduling.lanes import Lane
from window_consumer.engine.scheduling.slice_results import RecordsReturned
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import Skip, StalledError
from window_consumer.model.fault import Failure, Fault
from window_consumer.model.record import Message
from window_consumer.simulator.log_history import SimulatedCall
from window_consumer.simulator.watches.calls import CallWatch, attempt_of
from window_consumer.simulator.watches.limits import check_start

_REFUSES = 4
"""One coroutine in this many ignores its cancellation."""

_LONG = "\u00e4\u4e16"
_FAULTS = (
    Fault("SimulatedError", "made to fail", "no stack", "00"),
    Fault("SimulatedError", f"made to fail {_LONG}" * 500, f"a frame {_LONG}\n" * 900, "01"),
)
"""These texts check that copies limit the texts about a failure."""


class Handler(Protocol):
    """Decides about simulated calls."""

    def steps(self, call: SimulatedCall) -> int:
        """Return how many steps a call takes beyond its first."""

    def must_end(self) -> bool:
        """Return whether long calls must end now."""

    def ending(self, call: SimulatedCall) -> Exception | None:
        """Return what a call raises; None if it returns."""

    def endings(self, calls: Sequence[SimulatedCall]) -> list[Exception | None]:
        """Return each record's error in a batch handler's call; None if it is done."""

    def returns(self, call: SimulatedCall) -> tuple[int, str]:
        """Return how many results a call returns, and why the last is refused for good."""


class SteppedSlots:
    """The pool of a simulated member. What a thread does without a pause is one step.

    ``_call_each`` follows ``call_each`` of the thread pool, with its pauses made explicit: a thread
    may be interrupted between claiming a record and calling the handler, and after the call.
    """

    ending: ClassVar[Ending] = "cancelled"

    def __init__(
        self,
        slots: int,
        handler: Handler,
        watch: CallWatch,
        now: Callable[[], float],
        *,
        ends: bool = False,
    ):
        """``ends``: calls can be ended because they are coroutines."""
        self.slots = slots
        self._handler = handler
        self._ends = ends
        self._ending: dict[Slice, Exception | None] = {}
        """Calls asked to end, and the error of their records; None leaves them open."""
        self._watch = watch
        self._now = now
        self._waiting: deque[Slice] = deque()
        self._steps: list[Iterator[None] | None] = [None] * slots
        self._slices: list[Slice | None] = [None] * slots
        self._abandoned: list[Iterator[None]] = []
        self._calls: dict[Slice, list[SimulatedCall]] = {}
        """The running calls of each slice."""
        self.dying = False
        """A call is about to end the process."""
        self.member: Any = None
        """The owner of the slots; set when the member is complete."""

    def start(self) -> None:
        """Do nothing: there are no threads to start."""

    def stop(self, timeout_s: float) -> int:  # noqa: ARG002 - nothing to wait for
        """Do nothing; return 0 threads left."""
        return 0

    @property
    def idle(self) -> bool:
        """Whether nothing is queued and nothing runs."""
        return not self._waiting and not (any(self._steps) or self._abandoned)

    def submit(self, slice_: Slice) -> None:
        """Queue a slice; the next free slot takes it."""
        check_start(self._watch.history, self.member, slice_)
        self._waiting.append(slice_)

    def step(self, rng: Random) -> None:
        """Advance one slot."""
        steps = self._steps
        index = int(rng.random() * (len(steps) + len(self._abandoned)))
        if index >= len(steps):
            self._step_abandoned(index - len(steps))
            return
        work = steps[index]
        if work is None:
            if not self._waiting:
                return
            slice_ = self._slices[index] = self._waiting.popleft()
            work = steps[index] = self._call_each(slice_, index + 1)
        try:
            self._step(work, self._slices[index], rng)
        except StopIteration:
            steps[index] = self._slices[index] = None

    def _step(self, work: Iterator[None], slice_: Slice | None, rng: Random) -> None:  # noqa: ARG002 - subclasses use them
        next(work)

    def _step_abandoned(self, index: int) -> None:
        try:
            next(self._abandoned[index])
        except StopIteration:
            del self._abandoned[index]

    def inspect(self, stalled: Stalled) -> Failure | None:
        """Report that a call still runs; abandoning it frees its slot."""
        if stalled.slice_ not in self._slices:
            return None
        index = self._slices.index(stalled.slice_)
        if stalled.end:
            self._ending.setdefault(stalled.slice_, StalledError("does not return"))
        if stalled.abandon:
            self._watch.abandoned(self.member, stalled)
            work = self._steps[index]
            if work is not None:
                self._abandoned.append(work)
            self._steps[index] = self._slices[index] = None
        return made_failure(StalledError("does not return"), stalled.offset)

    def interrupt(self, slices: Sequence[Slice]) -> bool:
        """End calls that are coroutines; a thread cannot be ended."""
        if self._ends:
            for slice_ in slices:
                if slice_ in self._slices:
                    self._ending.setdefault(slice_, None)
        return self._ends

    def _call_each(self, slice_: Slice, ident: int) -> Iterator[None]:
        watch = self._watch
        lane_of = slice_.lane_of
        held_lanes: set[Lane] = set()
        slice_.thread = ident
        slice_.started = started = self._now()
        yield
        if slice_.is_batch:
            yield from self._call_batch(slice_)
        for message in slice_.unclaimed:
            tenure = watch.claimed(self.member, slice_, message)
            yield
            if lane_of is not None and held_lanes:
                lane = lane_of(message)
                if lane is not None and lane in held_lanes:
                    slice_.deviate().held.append(message)
                    continue
            call = watch.started(tenure, message, attempt_of(slice_))
            self._calls[slice_] = [call]
            while call.record.deadly:
                self._die()
                yield
            yield from self._last(call, slice_)
            del self._calls[slice_]
            if self._conclude(slice_, message, call) and lane_of is not None:
                held_lanes.add(lane_of(message))
        slice_.elapsed = self._now() - started
        self.member.completions.put(slice_)

    def _call_batch(self, slice_: Slice) -> Iterator[None]:
        """Do what the real ``call_batch`` does: claim the whole batch, or nothing."""
        watch = self._watch
        messages = list(slice_.unclaimed)
        if not messages:
            return
        tenures = [watch.claimed(self.member, slice_, message) for message in messages]
        yield
        calls = watch.started_together(tenures[0], messages, attempt_of(slice_))
        self._calls[slice_] = calls
        while any(call.record.deadly for call in calls):
            self._die()
            yield
        yield from self._last(calls[0], slice_)
        del self._calls[slice_]
        errors = self._handler.endings(calls)
        watch.ended_together(calls, errors)
        for message, error in zip(messages, errors, strict=True):
            if isinstance(error, Skip):
                slice_.deviate().skip(message, error)
            elif error is not None:
                slice_.deviate().failed.append((message, made_failure(error, message.offset())))

    def _die(self) -> None:
        """End the process that the call runs in."""
        self.dying = True

    def _conclude(self, slice_: Slice, message: Message, call: SimulatedCall) -> bool:
        """Record how a call ends; return whether its lane waits for the record."""
        if slice_ in self._ending:
            error = self._ending.pop(slice_)
            if error is None:
                self._watch.interrupted(call)
                slice_.deviate().held.append(message)
                return False
        else:
            error = self._handler.ending(call)
        count, bad = (0, "") if error is not None else self._handler.returns(call)
        self._watch.ended(call, error, is_open=count > 0)
        if isinstance(error, Skip):
            slice_.deviate().skip(message, error)
        elif error is not None:
            slice_.deviate().failed.append((message, made_failure(error, message.offset())))
            return True
        if count:
            results = self.member.scene.results.returned(call, count, bad=bad)
            slice_.deviate().returned.append(RecordsReturned((message,), results))
        return count > 0

    def _last(self, call: SimulatedCall, slice_: Slice) -> Iterator[None]:
        """Let a call last; a call that was asked to end does so unless it ignores that."""
        handler = self._handler
        steps = handler.steps(call)
        while steps and not handler.must_end():
            if slice_ in self._ending and call.offset % _REFUSES:
                return
            steps -= 1
            yield


def made_failure(error: Exception, offset: int) -> Failure:
    """Return the failure of a record; some have long texts."""
    return Failure(error, _FAULTS[offset % len(_FAULTS)])
