"""An ordering that asks the rules about each record at its turn, see ``engine/turn``.

Records that are not called leave here. Later records of their lane wait in line again until the
lane is free.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from window_consumer.engine.partition import Partition
from window_consumer.engine.scheduling.lanes import Lane, LaneHold
from window_consumer.engine.scheduling.ordering import DelegatingOrdering, Ordering, Taken
from window_consumer.engine.scheduling.record_queue import Place, RecordRun
from window_consumer.engine.turn import DecidedRecord, Finish, HoldUntilReleased, Turns
from window_consumer.model.record import Message


class TurnOrdering(DelegatingOrdering):
    """Gives out only records that are called. Owner: poll thread."""

    def __init__(self, inner: Ordering, turns: Turns, partition: Partition):
        super().__init__(inner)
        self._turns = turns
        self._partition = partition

    def take(self, count: int) -> Taken | None:
        return self._called(lambda: self._inner.take(count))

    def take_at(self, place: Place, but: Callable[[Lane], bool]) -> Taken | None:
        return self._called(lambda: self._inner.take_at(place, but))

    def take_more(self, count: int, hold: LaneHold) -> RecordRun | None:
        own = set(hold.lanes)
        run = self._inner.take_more(count, hold)
        return None if run is None else self._ask(run, hold, own)

    def _called(self, take: Callable[[], Taken | None]) -> Taken | None:
        while self._turns.has_room(self._partition):
            taken = take()
            if taken is None:
                return None
            run = self._ask(*taken, ())
            if run is not None:
                return run, taken[1]
        self._turns.left.append(self._partition)
        return None

    def _ask(self, run: RecordRun, hold: LaneHold, own: Collection[Lane]) -> RecordRun | None:
        """Return the records that are called; None if there are none.

        ``own`` are lanes of earlier records, which the hold covers, too.
        """
        turns = self._turns.of(self._partition, run.messages)
        if not turns:
            return run
        called: list[int] = []
        waiting: list[int] = []
        running: set[Lane | None] = set(own)
        closed: dict[Lane | None, None] = {}  # a set's order differs between processes
        for index, message in enumerate(run.messages):
            lane = None if self.lane_of is None else self.lane_of(message)
            turn = turns.get(index)
            if lane in closed:
                waiting.append(index)
            elif turn is None:
                called.append(index)
                running.add(lane)
            elif lane is not None and lane in running:
                waiting.append(index)  # its turn comes after that of a record in front of it
                closed[lane] = None
            else:
                decided = DecidedRecord(self._partition, message, run.seqs[index], lane, turn)
                self._turns.decided.append(decided)
                if lane is not None and not isinstance(turn, Finish | HoldUntilReleased):
                    closed[lane] = None
        if waiting:
            self._inner.put_back(*_some_of(run, waiting))
        self._turns.holds.append(hold.part([lane for lane in closed if lane not in running]))
        hold.keep(running)
        return RecordRun.of(*_some_of(run, called)) if called else None


def _some_of(run: RecordRun, indices: Sequence[int]) -> tuple[list[Message], list[int]]:
    return [run.messages[index] for index in indices], [run.seqs[index] for index in indices]
