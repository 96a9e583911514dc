"""Watches lanes: their calls begin in order and one at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from window_consumer.engine.decisions import Outlived
from window_consumer.model.record import TopicPartition
from window_consumer.simulator.history import SimulationHistory
from window_consumer.simulator.log_history import Lane, Member, SimulatedCall, Tenure
from window_consumer.testing.events import OutlivedLogged


class LaneWatch:
    """Knows the running calls of all members, by lane. Owner: one thread."""

    def __init__(self, history: SimulationHistory):
        self._history = history
        self._running: dict[tuple[TopicPartition, Lane], list[SimulatedCall]] = {}
        """By source partition and lane: its records may be in several topics."""
        self._outlived: set[tuple[Member, TopicPartition, int]] = set()

    def begins(self, call: SimulatedCall, together: Collection[int] = ()) -> None:
        """Check a call that begins, in one batch with these offsets."""
        if call.lane is None:
            return
        tenure, place = call.tenure, f"{call.tenure.name}@{call.offset} of lane {call.lane!r}"
        first = self._first(call, call.lane, together)
        in_line = call.offset not in tenure.abandoned and not call.record.reborn
        # A record that leaves at its turn does not wait for one that is held until released.
        in_line &= not (call.at_turn and self._history.plan.parks)
        if tenure.current and first != call.offset and in_line:
            self._history.violate(f"{place} is called although {first} is not over")
        running = self._calls_of(call, call.lane)
        for other in running:
            if call.batch is not None and call.batch == other.batch:
                continue
            is_known = other.tenure.member is tenure.member
            if is_known or not (self._may_overlap(other) or self._may_overlap(call)):
                self._history.violate(
                    f"{place} is called on {tenure.member} while {other.offset} runs on"
                    f" {other.tenure.member}"
                )
        running.append(call)

    def ends(self, call: SimulatedCall) -> None:
        """Record that a call has ended."""
        if call.lane is not None:
            self._calls_of(call, call.lane).remove(call)

    def reported(self, member: Member, calls: Iterable[Outlived]) -> None:
        """Record the calls that a member logged as outlived."""
        history = self._history
        for call in calls:
            self._outlived.add((member, call.name, call.offset))
            history.record(f"{member} reports {call.name}@{call.offset} as outlived")
            tenure = history.latest(member, call.name)
            if tenure is not None and call.offset in tenure.delivered:
                self._log(tenure, call.offset)

    def gone(self, member: Member) -> None:
        """Record that a member's process has ended, and its calls with it."""
        for running in self._running.values():
            running[:] = [call for call in running if call.tenure.member is not member]

    def _first(self, call: SimulatedCall, lane: Lane, together: Collection[int]) -> int:
        """Return the lane's offset that may be called, or the first of those called together."""
        tenure, is_over = call.tenure, self._history.is_over
        line = tenure.lines.get(lane)
        while line and is_over(tenure, line[0]):
            line.popleft()
        if not line:
            return call.offset
        if not together:
            return line[0]
        # Earlier records of the lane are in the batch, or were and are leaving.
        others = {*together, *(tenure.leaving if call.attempt > 1 else ())}
        return next(
            (o for o in line if o >= call.offset or not (o in others or is_over(tenure, o))),
            call.offset,
        )

    def _calls_of(self, call: SimulatedCall, lane: Lane) -> list[SimulatedCall]:
        return self._running.setdefault((call.record.hop.origin, lane), [])

    def _may_overlap(self, call: SimulatedCall) -> bool:
        """Return whether a call was abandoned and logged, or its member cannot know it yet."""
        tenure = call.tenure
        if (tenure.member, tenure.name, call.offset) in self._outlived:
            return True
        if self._history.is_member(tenure.member):
            return False
        self._log(tenure, call.offset)
        return True

    def _log(self, tenure: Tenure, offset: int) -> None:
        """Record for the guarantees that a call was logged as outlived."""
        topic = self._history.topic_of(tenure.delivered[offset].ledger)
        self._history.events.append(OutlivedLogged(topic, tenure.name.partition, offset))
