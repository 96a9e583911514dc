"""Simulates slots that are processes and die: the work of their parent, step by step.

Follows ``runtime/pools/processes``, with deaths at any pause: finished records count, those not
begun are dispatched again, and the record or batch in progress fails.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from random import Random
from typing import Any

from window_consumer.engine.scheduling.slice_results import Deviations
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import ProcessDiedError
from window_consumer.model.record import Message
from window_consumer.simulator.log_history import SimulatedCall
from window_consumer.simulator.slots import Handler, SteppedSlots, made_failure
from window_consumer.simulator.watches.calls import CallWatch, attempt_of


class _DeathError(Exception):
    """The process of a slot dies at this moment."""


class FakeProcesses(SteppedSlots):
    """A pool of processes. Ending a call kills its process."""

    def __init__(
        self,
        slots: int,
        handler: Handler,
        watch: CallWatch,
        now: Callable[[], float],
        deaths: float,
    ):
        """``deaths`` is the share of steps at which a process dies for no reason."""
        super().__init__(slots, handler, watch, now, ends=True)
        self._deaths = deaths

    def _step(self, work: Iterator[None], slice_: Slice | None, rng: Random) -> None:
        if slice_ is not None and slice_.started and self._dies(slice_, rng):
            assert isinstance(work, Generator)
            work.throw(_DeathError())
        else:
            next(work)

    def _dies(self, slice_: Slice, rng: Random) -> bool:
        if slice_ in self._ending:
            return True
        return rng.random() < self._deaths and not self._handler.must_end()

    def _die(self) -> None:
        """End only the process of the slot."""
        raise _DeathError

    def _call_each(self, slice_: Slice, ident: int) -> Iterator[None]:
        try:
            yield from super()._call_each(slice_, ident)
        except _DeathError:
            self._on_death(slice_)

    def _on_death(self, slice_: Slice) -> None:
        """Process the records of the dead process."""
        self._watch.history.record(f"the process of a slot of {self.member} dies")
        claimed = slice_.claimed()
        if not claimed and slice_.messages:
            self._ending.pop(slice_, None)
            slice_.started = 0.0
            self._waiting.appendleft(slice_)
            return
        noted = slice_.deviate()
        if claimed:
            self._end(slice_, slice_.messages[0 if slice_.is_batch else claimed - 1 : claimed])
        noted.held.extend(slice_.unclaimed)
        slice_.elapsed = self._now() - slice_.started
        self.member.completions.put(slice_)

    def _end(self, slice_: Slice, messages: list[Message]) -> None:
        """Let the records in progress fail, or stay open if their partition is being released."""
        watch, noted = self._watch, slice_.deviate()
        is_ending, why = slice_ in self._ending, self._ending.pop(slice_, None)
        calls = self._calls.pop(slice_, None)
        if calls is None:
            if _is_held(slice_, noted, messages[-1]):
                noted.held.extend(messages)
                return
            calls = self._begun(slice_, messages)
        if is_ending and why is None:
            for call in calls:
                watch.interrupted(call)
            noted.held.extend(messages)
            return
        if why is not None:
            watch.ended_together(calls, [why] * len(calls))
        else:
            watch.died(calls)
        error = why or ProcessDiedError("died")
        for message in messages:
            noted.failed.append((message, made_failure(error, message.offset())))

    def _begun(self, slice_: Slice, messages: list[Message]) -> list[SimulatedCall]:
        """Begin the calls for claimed records: it is unknown whether they had begun."""
        tenure = self._watch.history.tenure_of(self.member, slice_.partition)
        attempt = attempt_of(slice_)
        if slice_.is_batch:
            return self._watch.started_together(tenure, messages, attempt)
        return [self._watch.started(tenure, messages[0], attempt)]


def _is_held(slice_: Slice, noted: Deviations, message: Message) -> bool:
    """Return whether a record would have been held behind another one of its lane."""
    lane_of: Any = slice_.lane_of
    if slice_.is_batch or lane_of is None or lane_of(message) is None:
        return False
    before = [each for each, _ in noted.failed]
    before += [each for returned in noted.returned for each in returned.messages]
    return lane_of(message) in set(map(lane_of, before))
