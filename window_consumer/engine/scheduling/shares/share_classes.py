"""Classes of records that share the slots: the slot time each has used, holds and waits for.

Fairness is over slot time: a class with slow calls uses up its share by few of them. It is start-
time fair queuing (Goyal, Vin, Cheng 1996): each class has a virtual time, the slot time that it has
used divided by its weight, and the one that is furthest behind is next. A class that was idle
continues at the present virtual time: it saves nothing up. When a slice goes out, it is charged its
class's usual time; when it ends, the difference.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Literal, Protocol

from attrs import define, field, frozen

from window_consumer.engine.latency_histogram import BOUNDS_S, LatencyHistograms
from window_consumer.engine.partition import Partition
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.record import Message

Order = Literal["shares", "strict"]

NameOf = Callable[[str, Message], str | None]
"""Returns the class of a record, given the topic of its first delivery; None if it has none."""

DEFAULT = "default"
"""The key in the weights for classes that have no weight themselves."""

_LATEST = 0.2
"""The weight of the latest slice in the mean cost of a class's records."""


@frozen
class FairRules:
    """The ``fair`` section of a worker's configuration."""

    name_of: NameOf
    weights: Mapping[str, float] = field(factory=dict)
    order: Order = "shares"
    floor: float = 0.05
    """In strict order: the share of slot time for all classes but the first one."""
    most_share: float = 1.0
    """The share of all slots that one class may hold while others wait."""
    most_slots: int | None = None
    """The most slots that one class may hold, whether others wait or not."""
    max_classes: int = 10_000
    of_keys: bool = False
    """The classes are keys of records: there are many, and they may have to stay hidden.
    """

    @property
    def leaves_slots(self) -> bool:
        """Slots may be idle although records wait, because no class may hold all slots."""
        return self.most_share < 1 or self.most_slots is not None

    @property
    def highest_weight(self) -> float:
        """The weight of the class that is first in strict order."""
        return max([self.weight_of(None), *self.weights.values()])

    def weight_of(self, name: str | None) -> float:
        """Return the weight of a class."""
        default = self.weights.get(DEFAULT, 1.0)
        return default if name is None else self.weights.get(name, default)


@define(eq=False)
class ShareClass:
    """One class of a worker's records. Owner: poll thread."""

    name: str | None
    """None for records that have no class, and for classes beyond ``max_classes``."""
    weight: float
    virtual_s: float = 0.0
    """The slot time that it has used, divided by its weight."""
    used_s: float = 0.0
    cost_s: float = 0.0
    """The seconds that one of its records usually takes."""
    waiting: int = 0
    """How many of its records are in windows and have not started."""
    slots: int = 0
    """How many of its slices are in progress."""
    last_start: float = 0.0
    """When its last record started, or when a record began to wait after it was idle."""
    waits: LatencyHistograms = field(factory=LatencyHistograms)
    """How long its records waited in windows for their first call."""

    @property
    def is_idle(self) -> bool:
        """Nothing of it waits or runs."""
        return not (self.waiting or self.slots)


class ClassQueue(Protocol):
    """Keeps classes in the order of their virtual times."""

    def reorder(self, share: ShareClass) -> None:
        """Record that a class's virtual time has changed."""


class ShareClasses:
    """One worker's classes, and a ledger of the slot time they use. Owner: poll thread."""

    def __init__(self, rules: FairRules):
        self.rules = rules
        self.now = 0.0
        self.last_sent = float("-inf")
        """When the last slice went out."""
        self.held_until = float("inf")
        """When a record held in this turn may start; infinity if none was held."""
        self.overflow = 0
        """How many records were counted as having no class because there were too many classes."""
        self.queues: list[ClassQueue] = []
        self._default = ShareClass(None, rules.weight_of(None))
        self._named: dict[str, ShareClass] = {}
        self._idle: OrderedDict[str, None] = OrderedDict()
        """Names of classes that may be dropped, least recently used first."""
        self._present_s = 0.0
        """The virtual time of the class that was served last."""
        self._cost_s = 0.0
        """The seconds that a record usually takes."""
        self._out: dict[Slice, tuple[ShareClass, float]] = {}
        """The slices in progress, with their class and the virtual time that they were charged."""

    def begin_turn(self, now: float) -> None:
        """Set the time of the poll thread's turn."""
        self.now = now
        self.held_until = float("inf")

    # ---- classes

    def of(self, partition: Partition, message: Message, *, arrives: bool = False) -> ShareClass:
        """Return a record's class; it is counted if it arrives and there are too many classes."""
        name = self.rules.name_of(partition.retry_level.source, message)
        if name is None:
            return self._default
        found = self._named.get(name)
        return self._new(name, arrives=arrives) if found is None else found

    def _new(self, name: str, *, arrives: bool) -> ShareClass:
        if len(self._named) >= self.rules.max_classes:
            if not self._idle:
                self.overflow += arrives
                return self._default
            del self._named[self._idle.popitem(last=False)[0]]
        found = self._named[name] = ShareClass(name, self.rules.weight_of(name))
        self._idle[name] = None
        return found

    def classes(self) -> list[ShareClass]:
        """Return all classes; first the class of records without one."""
        return [self._default, *self._named.values()]

    def arrived(self, share: ShareClass) -> None:
        """Record that a record of a class waits."""
        if share.is_idle:
            self._awake(share)
            share.last_start = self.now
        share.waiting += 1

    def gone(self, share: ShareClass, records: int = 1) -> None:
        """Record that records of a class no longer wait."""
        share.waiting -= records
        self._rest(share)

    def waited(self, share: ShareClass, since: float) -> None:
        """Record that a record that has waited since a time starts."""
        waited_s = max(0.0, self.now - since)
        share.waits.counts[bisect_left(BOUNDS_S, waited_s)] += 1
        share.waits.seconds += waited_s
        share.last_start = self.now

    def _awake(self, share: ShareClass) -> None:
        share.virtual_s = max(share.virtual_s, self._present_s)
        if share.name is not None:
            self._idle.pop(share.name, None)

    def _rest(self, share: ShareClass) -> None:
        if share.name is not None and share.is_idle:
            self._idle[share.name] = None

    # ---- slot time

    def serve(self, share: ShareClass) -> None:
        """Record whose turn it is: classes that wake up later begin at its virtual time."""
        self._present_s = max(self._present_s, share.virtual_s)

    def sent(self, slice_: Slice) -> None:
        """See ``SlotTimeLedger``. Retries count towards the class of the slice's first record."""
        share = self.of(slice_.partition, slice_.messages[0])
        self.last_sent = self.now
        if share.is_idle:
            self._awake(share)
        share.slots += 1
        charged = self.usual_s(share, len(slice_.messages)) / share.weight
        self._out[slice_] = share, charged
        self._charge(share, charged)

    def over(self, slice_: Slice) -> None:
        """See ``SlotTimeLedger``."""
        share, charged = self._out.pop(slice_)
        records = slice_.settled + len(slice_.messages)
        elapsed = slice_.elapsed or max(0.0, self.now - slice_.sent)
        if records and slice_.elapsed:
            cost_s = elapsed / records
            share.cost_s += (_LATEST if share.cost_s else 1.0) * (cost_s - share.cost_s)
            self._cost_s += (_LATEST if self._cost_s else 1.0) * (cost_s - self._cost_s)
        share.slots -= 1
        share.used_s += elapsed
        self._charge(share, elapsed / share.weight - charged)
        self._rest(share)

    @property
    def mean_s(self) -> float:
        """The seconds that a record of any class usually takes; 0 while unknown."""
        return self._cost_s

    def usual_s(self, share: ShareClass, records: int) -> float:
        """Return the seconds that a class's records usually take."""
        return (share.cost_s or self._cost_s) * records

    def _charge(self, share: ShareClass, virtual_s: float) -> None:
        share.virtual_s += virtual_s
        for queue in self.queues:
            queue.reorder(share)
