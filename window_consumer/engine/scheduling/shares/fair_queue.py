"""Which class gets the next free slot: the one that is furthest behind its share, or the first.

``shares``: the class with the lowest virtual time. ``strict``: the class with the highest weight;
while others wait, too, these get their floor of the slot time. No class gets a slot beyond what it
may hold.

In strict order, starts of classes below the highest weight are spread. Slots that begin together
keep ending together: a record of the first class would wait for nearly a whole call instead of a
call divided by the number of slots.

Cost: O(log n) for each slice with n classes, whatever waits; in each round also the classes of
partitions that are passed over, which are few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count

from window_consumer.engine.partition import Partition
from window_consumer.engine.scheduling.shares.class_ordering import ClassOrdering, ClassRecords
from window_consumer.engine.scheduling.shares.share_classes import ShareClass, ShareClasses
from window_consumer.engine.scheduling.start_queue import Backlog

Entry = tuple[float, int, ShareClass]

EVEN = 0.9
"""The least time between two starts, as a share of the time between even starts: calls differ a
little, and slots should not wait for their turn."""

LEAST_EVEN_S = 0.0003
"""If starts follow each other more closely than this, a separate turn for each would take all the
time."""

SPREAD = 0.25
"""A slot is held for this share of the time to an even start, which brings the slots' next starts
closer to even. With a larger share, slots that end together by chance stay idle; the benchmark
`fair` lost 9 % with 0.5 and 3 % with this."""

LEAST_HELD_S = 50e-6
"""A shorter wait would take longer than requested."""

MOST_HELD_S = 0.001
"""The longest time a slot is held: imperceptible if calls are long."""


class FairQueue:
    """A ``StartQueue`` with a backlog for each class of a partition. Owner: poll thread."""

    def __init__(self, shares: ShareClasses, slots: Callable[[], int]):
        self._shares = shares
        self._slots = slots
        self._slots_seen = 0
        self._strict = shares.rules.order == "strict"
        self._backlogs: dict[ShareClass, dict[ClassRecords, None]] = {}
        """For each class, the next partition is in front."""
        self._paced: dict[Partition, None] = {}
        """Partitions whose only remaining records have waited for their rate."""
        self._heaps: dict[float, list[Entry]] = {}
        """Classes with their virtual times, in strict order by weight; replaced entries stay for a
        while."""
        self._valid: dict[ShareClass, int] = {}
        """The number of each class's valid entry."""
        self._numbers = count()
        self._bounded: dict[ShareClass, None] = {}
        """Classes that hold as many slots as they may. A class returns when a slice of it ends."""
        self._aside: list[ShareClass] = []
        """Classes with nothing left in this round."""
        self._passed: set[Partition] = set()
        """Partitions that were passed over in this round."""
        self._first_s = self._others_s = 0.0
        """In strict order: the slot time of the first class and of all others while both waited,
        each divided by its share."""
        self._both_wait = False
        self._first_weight = 0.0
        """The weight of the first class that waits."""
        self._highest_weight = shares.rules.highest_weight
        self._spread_after = self._spread_until = float("-inf")
        """The last start that was considered, and until when the next one is held."""
        self._size = 0
        self._partitions: dict[Partition, None] = {}
        shares.queues.append(self)

    def __iter__(self) -> Iterator[Backlog]:
        """Yield the backlogs, including those of classes that hold as many slots as they may."""
        self._return()
        for weight in sorted(self._heaps, reverse=True):
            heap = self._heaps[weight]
            while heap:
                _, number, share = heappop(heap)
                if self._valid.get(share) == number:
                    self._aside.append(share)
                    yield from self._of_class(share)
        for share in list(self._bounded):
            yield from self._of_class(share)
        for partition in list(self._paced):
            yield partition, partition.ordering

    def _of_class(self, share: ShareClass) -> Iterator[Backlog]:
        for records in list(self._backlogs.get(share, ())):
            yield records.ordering.partition, records

    def __len__(self) -> int:
        return self._size + len(self._paced)

    @property
    def startable(self) -> int:
        """See ``StartQueue``."""
        return sum(each.ordering.startable for each in self._partitions)

    # ---- partitions

    def wake(self, partition: Partition) -> None:
        """See ``StartQueue``."""
        ordering = partition.ordering.plain
        if not isinstance(ordering, ClassOrdering):
            raise TypeError(f"{partition.name} has no classes")
        self._partitions[partition] = None
        woken, ordering.woken = ordering.woken, {}
        for records in woken:
            self._enter(records)
        if not ordering.classes and partition.ordering.startable:
            self._paced[partition] = None

    def remove(self, partition: Partition) -> None:
        """See ``StartQueue``."""
        self._paced.pop(partition, None)
        self._partitions.pop(partition, None)
        for of_class in list(self._backlogs.values()):
            for records in [each for each in of_class if each.ordering.partition is partition]:
                self._drop(records)

    def _enter(self, records: ClassRecords) -> None:
        share = records.share
        of_class = self._backlogs.get(share)
        if of_class is None:
            of_class = self._backlogs[share] = {}
            self.reorder(share)
        self._size += records not in of_class
        of_class[records] = None

    def _drop(self, records: ClassRecords) -> None:
        """Remove a backlog until its partition is woken."""
        share = records.share
        of_class = self._backlogs.get(share, {})
        if records in of_class:
            del of_class[records]
            self._size -= 1
        if not of_class:
            self._backlogs.pop(share, None)
            self._valid.pop(share, None)
            self._bounded.pop(share, None)
        if len(records) and records.held_until <= self._shares.now:
            records.ordering.woken[records] = None  # the rate wakes the records that it holds back

    def reorder(self, share: ShareClass) -> None:
        """See ``ClassQueue``."""
        if share in self._backlogs:
            self._bounded.pop(share, None)
            number = self._valid[share] = next(self._numbers)
            heap = self._heaps.setdefault(share.weight if self._strict else 0.0, [])
            heappush(heap, (share.virtual_s, number, share))

    # ---- rounds

    def begin(self) -> None:
        """See ``StartQueue``."""
        self._passed.clear()
        self._return()
        if self._slots_seen != self._slots():
            self._slots_seen = self._slots()
            self._release_bounded()

    def _return(self) -> None:
        aside, self._aside = self._aside, []
        for share in aside:
            self.reorder(share)

    def _release_bounded(self) -> None:
        for share in list(self._bounded):
            self.reorder(share)

    def next(self) -> Backlog | None:
        """See ``StartQueue``."""
        for partition in self._paced:
            if partition not in self._passed:
                return partition, partition.ordering
        share = self._next_class()
        if share is None or (self._strict and self._is_early(share)):
            return None
        records = next(each for each in self._backlogs[share] if not self._is_passed(each))
        return records.ordering.partition, records

    def _next_class(self) -> ShareClass | None:
        if self._bounded and len(self._backlogs) == 1:
            self._release_bounded()  # no other class waits
        if not self._strict:
            return self._head(0.0)
        heads = {weight: head for weight in list(self._heaps) if (head := self._head(weight))}
        if not heads:
            return None
        self._first_weight = max(heads)
        first = heads.pop(self._first_weight)
        floor = self._shares.rules.floor
        if not heads:
            self._both_wait = False
            return first
        if not self._both_wait:
            self._both_wait, self._others_s = True, self._first_s
        if floor:
            other = min(heads.values(), key=_virtual_s)
            # A slice must fit into the floor: else one would follow each record of the first class.
            if 0 < self._shares.usual_s(other, 1) / floor <= self._first_s - self._others_s:
                return other
        return first

    def _is_early(self, share: ShareClass) -> bool:
        """Return whether a class's next start is held because it is too close to the last one."""
        shares = self._shares
        if share.weight >= self._highest_weight or share.weight < self._first_weight:
            return False  # it has the highest weight, or its floor is due
        if self._spread_after != shares.last_sent:
            self._spread_after = shares.last_sent
            even_s = EVEN * shares.mean_s / max(1, self._slots_seen)
            held_s = SPREAD * (shares.last_sent + even_s - shares.now)
            is_worth_it = even_s > LEAST_EVEN_S and held_s > LEAST_HELD_S
            self._spread_until = shares.now + min(held_s, MOST_HELD_S) if is_worth_it else 0.0
        if shares.now >= self._spread_until:
            return False
        shares.held_until = self._spread_until
        return True

    def _head(self, weight: float) -> ShareClass | None:
        """Return the next class of a weight that may get a slot."""
        heap = self._heaps.get(weight)
        while heap:
            _, number, share = heap[0]
            if self._valid.get(share) == number:
                if self._holds_all(share):
                    self._bounded[share] = None
                elif self._passed and all(map(self._is_passed, self._backlogs[share])):
                    self._aside.append(share)
                else:
                    return share
            heappop(heap)
        self._heaps.pop(weight, None)
        return None

    def _is_passed(self, records: ClassRecords) -> bool:
        return records.ordering.partition in self._passed

    def _holds_all(self, share: ShareClass) -> bool:
        """Return whether a class holds as many slots as it may."""
        rules = self._shares.rules
        if rules.most_slots is not None and share.slots >= rules.most_slots:
            return True
        if rules.most_share >= 1 or len(self._backlogs) < 2:
            return False
        return share.slots >= max(1, int(rules.most_share * self._slots_seen))

    def served(self, backlog: Backlog) -> None:
        """See ``StartQueue``."""
        partition, records = backlog
        if not isinstance(records, ClassRecords):
            self._leave_paced(partition)
            return
        share, rules = records.share, self._shares.rules
        self._shares.serve(share)
        if self._both_wait:
            used_s = self._shares.usual_s(share, 1)
            if share.weight == self._first_weight:
                self._first_s += used_s / (1 - rules.floor)
            elif rules.floor:
                self._others_s += used_s / rules.floor
        of_class = self._backlogs.get(share, {})
        if not len(records):
            self._drop(records)
        elif records in of_class:
            del of_class[records]
            of_class[records] = None

    def pass_over(self, backlog: Backlog) -> None:
        """Give the turn of its partition to the others in this round."""
        self._passed.add(backlog[0])

    def leave(self, backlog: Backlog) -> None:
        """See ``StartQueue``."""
        partition, records = backlog
        if isinstance(records, ClassRecords):
            self._drop(records)
        else:
            self._paced.pop(partition, None)

    def _leave_paced(self, partition: Partition) -> None:
        if not partition.ordering.startable:
            self._paced.pop(partition, None)


def _virtual_s(share: ShareClass) -> float:
    return share.virtual_s
