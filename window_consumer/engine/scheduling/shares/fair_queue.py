"""Which class gets the next free slot: the one that is furthest behind its share, or the first.

``shares``: the class with the lowest virtual time. ``strict``: the class with the highest weight;
while others wait, too, these get their floor of the slot time. No class gets a slot beyond what it
may hold.
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


class FairQueue:
    """A ``StartQueue`` with a backlog for each class of a partition. Owner: poll thread."""

    def __init__(self, shares: ShareClasses, slots: Callable[[], int]):
        self._shares = shares
        self._slots = slots
        self._backlogs: dict[ShareClass, dict[ClassRecords, None]] = {}
        """The partition that is next of each class is in front."""
        self._paced: dict[Partition, None] = {}
        """Partitions of which only records are left that have waited for their rate."""
        self._heaps: dict[float, list[Entry]] = {}
        """By weight: classes with their virtual times; entries that are replaced stay for a while.
        """
        self._valid: dict[ShareClass, int] = {}
        """The number of the entry that counts of each class."""
        self._numbers = count()
        self._aside: list[ShareClass] = []
        """Classes that are not next in this round."""
        self._passed: set[ClassRecords] = set()
        self._passed_paced: set[Partition] = set()
        self._first_s = self._others_s = 0.0
        """Strict order: the slot time of the first class and of all others while both waited, each
        divided by its share."""
        self._both_wait = False
        self._first_weight = 0.0
        """That of the first class, where both wait."""
        self._size = 0
        self._partitions: dict[Partition, None] = {}
        shares.queues.append(self)

    def __iter__(self) -> Iterator[Backlog]:
        classes = sorted(self._backlogs, key=self._rank)
        for share in classes:
            for records in list(self._backlogs.get(share, ())):
                yield records.ordering.partition, records
        for partition in list(self._paced):
            yield partition, partition.ordering

    def _rank(self, share: ShareClass) -> tuple[float, float]:
        strict = self._shares.rules.order == "strict"
        return (-share.weight if strict else 0.0, share.virtual_s)

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
        of_class = self._backlogs.get(records.share, {})
        if records in of_class:
            del of_class[records]
            self._size -= 1
        if not of_class:
            self._backlogs.pop(records.share, None)
            self._valid.pop(records.share, None)
        if len(records):
            records.ordering.woken[records] = None

    def reorder(self, share: ShareClass) -> None:
        """See ``ClassQueue``."""
        if share in self._backlogs:
            number = self._valid[share] = next(self._numbers)
            entry = share.virtual_s, number, share
            heappush(self._heaps.setdefault(share.weight, []), entry)

    # ---- rounds

    def begin(self) -> None:
        """See ``StartQueue``."""
        self._passed.clear()
        self._passed_paced.clear()
        self._return()

    def _return(self) -> None:
        aside, self._aside = self._aside, []
        for share in aside:
            self.reorder(share)

    def next(self) -> Backlog | None:
        """See ``StartQueue``."""
        for partition in self._paced:
            if partition not in self._passed_paced:
                return partition, partition.ordering
        share = self._next_class()
        if share is None:
            return None
        records = next(each for each in self._backlogs[share] if each not in self._passed)
        return records.ordering.partition, records

    def _next_class(self) -> ShareClass | None:
        heads = {weight: head for weight in list(self._heaps) if (head := self._head(weight))}
        if not heads:
            return None
        if self._shares.rules.order == "shares":
            return min(heads.values(), key=_virtual_s)
        self._first_weight = max(heads)
        first = heads.pop(self._first_weight)
        floor = self._shares.rules.floor
        if not heads:
            self._both_wait = False
            return first
        if not self._both_wait:
            self._both_wait, self._others_s = True, self._first_s
        if floor and self._others_s < self._first_s:
            return min(heads.values(), key=_virtual_s)
        return first

    def _head(self, weight: float) -> ShareClass | None:
        """Return the next class of a weight that may have a slot."""
        heap = self._heaps[weight]
        while heap:
            _, number, share = heap[0]
            if self._valid.get(share) == number and self._may_start(share):
                return share
            heappop(heap)
            if self._valid.get(share) == number:
                self._aside.append(share)
        del self._heaps[weight]
        return None

    def _may_start(self, share: ShareClass) -> bool:
        rules = self._shares.rules
        if self._passed and self._passed.issuperset(self._backlogs[share]):
            return False
        if rules.most_slots is not None and share.slots >= rules.most_slots:
            return False
        if rules.most_share >= 1 or len(self._backlogs) < 2:
            return True
        return share.slots < max(1, int(rules.most_share * self._slots()))

    def served(self, backlog: Backlog) -> None:
        """See ``StartQueue``."""
        partition, records = backlog
        self._passed.clear()
        self._passed_paced.clear()
        if not isinstance(records, ClassRecords):
            self._leave_paced(partition)
            return
        share, rules = records.share, self._shares.rules
        self._shares.serve(share)
        if rules.order == "strict" and self._both_wait:
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
        self._return()

    def pass_over(self, backlog: Backlog) -> None:
        """See ``StartQueue``."""
        records = backlog[1]
        if isinstance(records, ClassRecords):
            self._passed.add(records)
        else:
            self._passed_paced.add(backlog[0])

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
