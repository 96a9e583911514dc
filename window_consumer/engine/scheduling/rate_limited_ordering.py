"""An ordering whose records start no faster than their rate allows.

With a rate for a worker or a partition, the ordering gives out only as many records as there are
tokens. With a rate for each key, records of keys without a token are set aside so that others
proceed: they have left the inner ordering, keep their lanes busy, and start when their key has a
token. At most one record of a lane is set aside, because slices then hold only one record of a
lane.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, count
from typing import TYPE_CHECKING

from window_consumer.engine.scheduling.lanes import NO_HOLD, Lane, LaneHold
from window_consumer.engine.scheduling.ordering import DelegatingOrdering, Ordering, Taken
from window_consumer.engine.scheduling.rate_limit import RateLimits
from window_consumer.engine.scheduling.record_queue import Place, RecordRun
from window_consumer.model.record import Message

if TYPE_CHECKING:
    from window_consumer.engine.partition import Partition

_Aside = tuple[Message, int, Lane | None]
"""A record that waits for its key's token, with its sequence number and lane."""


class RateLimitedOrdering(DelegatingOrdering):
    """Checks the rates before it gives records out. Owner: poll thread."""

    def __init__(self, inner: Ordering, rates: RateLimits):
        super().__init__(inner)
        self._rates = rates
        self._partition: Partition | None = None
        self._by_key = rates.rules.per == "key"
        inner.singly = self._by_key
        self._aside: dict[Lane | None, deque[_Aside]] = {}
        """Records that are set aside, by key."""
        self._due: list[tuple[float, int, Lane | None]] = []
        """A heap of the times when these keys may have a token."""
        self._held = NO_HOLD
        """The lanes of records that are set aside."""
        self._ties = count()

    def belongs_to(self, partition: Partition) -> None:
        """Set the partition of these records, before the first one arrives."""
        self._partition = partition

    @property
    def _whose(self) -> Partition:
        assert self._partition is not None  # set before the first record arrives
        return self._partition

    @property
    def unpaced(self) -> Ordering:
        return self._inner

    @property
    def singly(self) -> bool:
        """No record follows another of its lane in a slice."""
        return self._inner.singly

    @singly.setter
    def singly(self, value: bool) -> None:
        self._inner.singly = value or self._by_key

    @property
    def oldest(self) -> Message | None:
        waiting = [line[0][0] for line in self._aside.values() if line]
        first = self._inner.oldest
        if first is not None:
            waiting.append(first)
        return min(waiting, key=lambda message: int(message.offset()), default=None)

    def waiting(self) -> Iterator[tuple[int, Message]]:
        aside = ((seq, message) for line in self._aside.values() for message, seq, _ in line)
        return chain(self._inner.waiting(), aside)

    @property
    def startable(self) -> int:
        """An upper bound of how many records could start now; 0 means none.

        If only the rate prevents a start, the partition is woken when it no longer does.
        """
        startable = self._inner.startable
        if not self._by_key:
            return startable if startable and self._room() else 0
        if self._due:
            until = self._due[0][0]
            if until <= self._rates.now:
                startable += 1
            elif not startable:
                self._rates.wait(self._whose, until)
        return startable

    @property
    def waits(self) -> bool:
        """Something waits only for its rate."""
        return bool(self._aside) or self._rates.is_waiting(self._whose)

    def take(self, count: int) -> Taken | None:
        if self._by_key:
            return self._take_by_key(count)
        room = min(count, self._room())
        taken = self._inner.take(room) if room else None
        if taken is not None:
            self._rates.charge(self._whose, taken[0].messages)
        return taken

    def take_at(self, place: Place, but: Callable[[Lane], bool]) -> Taken | None:
        if self._by_key:
            return self._take_by_key(1)
        taken = self._inner.take_at(place, but) if self._room() else None
        if taken is not None:
            self._rates.charge(self._whose, taken[0].messages)
        return taken

    def take_more(self, count: int, hold: LaneHold) -> RecordRun | None:
        if self._by_key:
            return None  # one record of a lane at a time
        room = min(count, self._room())
        run = self._inner.take_more(room, hold) if room else None
        if run is not None:
            self._rates.charge(self._whose, run.messages)
        return run

    def clear(self) -> None:
        self._inner.clear()
        self._aside.clear()
        self._due.clear()

    # ---- a rate for a worker or a partition

    def _room(self) -> int:
        """Return how many records may be charged; if none, wait for a token."""
        rates = self._rates
        bucket = rates.shared_bucket(self._whose)
        if bucket.room:
            return bucket.room
        rates.wait(self._whose, rates.refused(bucket))
        return 0

    # ---- a rate for each key

    def _take_by_key(self, count: int) -> Taken | None:
        taken = self._take_due(count)
        while not taken:
            found = self._inner.take(count)
            if found is None:
                if self._due:
                    self._rates.wait(self._whose, self._due[0][0])
                return None
            run, hold = found
            if self._held.lanes:
                self._held.merge(hold)
            else:
                self._held.release()
                self._held = hold
            lane_of = self.lane_of
            for message, seq in zip(run.messages, run.seqs, strict=True):
                lane = None if lane_of is None else lane_of(message)
                self._take_or_set_aside((message, seq, lane), taken)
        run = RecordRun.of([message for message, _, _ in taken], [seq for _, seq, _ in taken])
        return run, self._held.part(lane for _, _, lane in taken)

    def _take_or_set_aside(self, record: _Aside, taken: list[_Aside]) -> None:
        key = record[0].key()
        line = self._aside.get(key)
        if line is not None:
            line.append(record)
            return
        bucket = self._rates.bucket(self._whose, record[0])
        if bucket.room:
            bucket.charge(1)
            taken.append(record)
            return
        self._aside[key] = deque([record])
        heapq.heappush(self._due, (self._rates.refused(bucket), next(self._ties), key))

    def _take_due(self, count: int) -> list[_Aside]:
        """Take records whose key has a token by now."""
        taken: list[_Aside] = []
        while self._due and self._due[0][0] <= self._rates.now and len(taken) < count:
            _, _, key = heapq.heappop(self._due)
            line = self._aside[key]
            bucket = self._rates.bucket(self._whose, line[0][0])
            while line and bucket.room and len(taken) < count:
                bucket.charge(1)
                taken.append(line.popleft())
            if line:
                heapq.heappush(self._due, (self._rates.refused(bucket), next(self._ties), key))
            else:
                del self._aside[key]
        return taken
