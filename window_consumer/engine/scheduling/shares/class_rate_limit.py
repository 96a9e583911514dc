"""Rates for each class that shares the slots, see ``rate_limit``.

Records without a token stay where they are, unlike those of a key: their class leaves the queue,
and returns when it may get a token. So it counts as waiting, and classes with tokens go ahead.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count

from window_consumer.engine.partition import Partition
from window_consumer.engine.scheduling.ordering import Ordering
from window_consumer.engine.scheduling.rate_limit import RateLimits, RateRules
from window_consumer.engine.scheduling.rate_limited_ordering import RateLimitedOrdering
from window_consumer.engine.scheduling.shares.class_ordering import ClassOrdering, ClassRecords
from window_consumer.engine.scheduling.shares.share_classes import ShareClasses
from window_consumer.model.record import Message


class ClassRates(RateLimits):
    """The buckets of one worker's classes, and the classes without tokens. Owner: poll thread.

    Each class name has its own bucket: classes beyond ``max_classes``, which share the slots as
    one, have a rate each.
    """

    def __init__(self, rules: RateRules, shares: ShareClasses):
        super().__init__(rules)
        self._name_of = shares.rules.name_of
        self._held: list[tuple[float, int, ClassRecords]] = []
        """A heap of the times when classes of a partition may get a token."""
        self._ties = count()

    def name(self, partition: Partition, message: Message | None) -> object:
        """See ``RateLimits``."""
        if message is None:
            raise ValueError("no bucket is shared by a partition's classes")
        return self._name_of(partition.retry_level.source, message)

    def refill(self, now: float) -> list[Partition]:
        """See ``RateLimits``."""
        ready = dict.fromkeys(super().refill(now))
        while self._held and self._held[0][0] <= now:
            _, _, records = heappop(self._held)
            if records.is_offered:
                records.ordering.woken[records] = None
                ready[records.ordering.partition] = None
        if self._held:
            self.next_at = min(self.next_at, self._held[0][0])
        return list(ready)

    def hold(self, records: ClassRecords, until: float) -> None:
        """Hold a class of a partition back until it may get a token."""
        records.held_until = until
        records.share.last_start = max(records.share.last_start, until)  # a rate is no starvation
        heappush(self._held, (until, next(self._ties), records))


class ClassRateOrdering(RateLimitedOrdering):
    """Checks the rate of a class before it gives its records out. Owner: poll thread."""

    def __init__(self, inner: Ordering, rates: ClassRates):
        super().__init__(inner, rates)
        self._class_rates = rates

    @property
    def startable(self) -> int:
        """An upper bound of how many records could start now; 0 means none."""
        return self._inner.startable

    @property
    def waits(self) -> bool:
        """Something waits only for its rate."""
        now = self._class_rates.now
        return any(each.held_until > now for each in self._classes.classes.values())

    @property
    def _classes(self) -> ClassOrdering:
        plain = self.plain
        assert isinstance(plain, ClassOrdering)  # config: a rate for each class needs classes
        return plain

    def _room(self) -> int:
        """Return how many records of the class that has its turn may be charged."""
        rates, records = self._class_rates, self._classes.next_class()
        if records is None or records.held_until > rates.now:
            return 0
        bucket = rates.bucket(self._whose, records.first)
        if bucket.room:
            # Behind a record without a class there may be one of a class beyond max_classes.
            return 1 if records.share.name is None else bucket.room
        rates.hold(records, rates.refused(bucket))
        return 0
