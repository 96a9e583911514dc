"""Results on their way to the broker: records that calls returned to produce, until they are acked.

A record whose handler returned results stays open, and keeps its lane busy, until all of them are
acked. So the results of a lane are produced in the order of its records, whatever is resent, and no
record is committed while its results may be lost. Waiting occupies no slot.

A permanent refusal counts as a failed call of the handler. After any other error, results are
resent from the first one that was not acked: those after it may be produced twice, in order.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import count

from attrs import define, field

from window_consumer.engine.counters import Counters
from window_consumer.engine.guards.backpressure import MemoryBudget
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.policy import PUBLISH_BACKOFF, Jitter
from window_consumer.engine.scheduling.dispatcher import SLICES_PER_SLOT
from window_consumer.engine.scheduling.lanes import Lane, LaneHold
from window_consumer.engine.scheduling.slice_results import RecordsReturned
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import PublishFailedError, ResultRefusedError
from window_consumer.model.fault import Failure, Fault, fingerprint
from window_consumer.model.produce import Produce
from window_consumer.model.record import Message

MAX_UNACKED_RESULTS = 10_000
"""The most results in flight, not counting the last call's: enough for 100,000/s if acks take 0.1
s, and a tenth of the client's queue."""

RESULTS_SHARE = 0.25
"""If unacked results exceed this share of the memory budget, nothing new starts."""

COPIES_HELD = 2
"""A result is held twice: here, to be resent, and in the client's queue."""

RECORD_BYTES = 256
"""The approximate bytes of a result in addition to its payload."""

_FORGET = 0.95
"""The decay of the usual result size: each slice without results reduces it by a twentieth."""


@define(eq=False)
class Production:
    """The results of one call, and the records that are open until they are acked."""

    partition: Partition
    messages: Sequence[Message]
    seqs: Sequence[int]
    lanes: Sequence[Lane | None]
    """The lane of each record."""
    hold: LaneHold
    """The hold on these lanes, until all results are acked."""
    results: Sequence[Produce]
    handler: str
    size: int
    """The bytes charged for the results."""
    source: Slice | None
    """The call's slice, if it is a probe of the breaker."""
    first: int = 0
    """All results before this index are acked."""
    sent: int = 0
    """How many results from ``first`` on have been sent in this attempt."""
    answers: int = 0
    """How many of these have been answered."""
    alone: bool = False
    """A result or its batch was refused for its size: results are sent one at a time."""
    error: tuple[int, PublishFailedError] | None = None
    """The lowest index that was not acked, and the error."""
    failures: int = 0
    due: float = field(default=0.0)

    @property
    def records(self) -> Iterator[tuple[Partition, Message, int, Lane | None]]:
        """Its records: partition, message, seq and lane of each."""
        for each in zip(self.messages, self.seqs, self.lanes, strict=True):
            yield self.partition, *each

    @property
    def to_send(self) -> range:
        """The indices of the results to send now."""
        stop = self.first + 1 if self.alone else len(self.results)
        return range(self.first, stop)


class Output:
    """The unacked results of one worker. Owner: poll thread."""

    def __init__(self, slots: int, budget: MemoryBudget, jitter: Jitter, counters: Counters):
        self._slots = slots
        self._limit = budget.limit * RESULTS_SHARE
        self._jitter = jitter
        self._counters = counters
        self._sending: dict[Production, None] = {}
        """The productions in flight or to be sent at once."""
        self._waiting: deque[Production] = deque()
        self._due: list[tuple[float, int, Production]] = []
        self._ties = count()
        self._usual_size = 0.0
        """The usual bytes of a call's results."""
        self.bytes = 0
        """The bytes of all unacked results."""
        self.unacked = 0
        """Results in flight to the broker."""
        self._alone: Production | None = None
        """The production whose result is in flight by itself."""

    def add(
        self,
        partition: Partition,
        returned: RecordsReturned,
        seqs: Sequence[int],
        lanes: Sequence[Lane | None],
        source: Slice | None,
    ) -> int:
        """Take the results of a returned call; its records and lanes wait for them.

        Return how many bytes are charged for them.
        """
        size = COPIES_HELD * sum(len(each) + RECORD_BYTES for each in returned.results)
        production = Production(
            partition,
            returned.messages,
            seqs,
            lanes,
            partition.ordering.acquire(lanes),
            returned.results,
            returned.handler,
            size,
            source,
        )
        partition.hold(size)
        self.bytes += size
        self._wait(production)
        return size

    def learn(self, calls: int, size: int) -> None:
        """Update from a slice how much is usually produced: up at once, down slowly."""
        if calls:
            self._usual_size = max(size / calls, self._usual_size * _FORGET)

    @property
    def produces(self) -> bool:
        """Calls have recently returned results to produce."""
        return self._usual_size >= 1

    @property
    def longest_slice(self) -> int | None:
        """The most records that a slice may hold so that their results have room.

        None if there is no limit.
        """
        if not self.produces:
            return None
        return max(1, int(self._limit / (SLICES_PER_SLOT * self._slots) / self._usual_size))

    @property
    def holds_back(self) -> bool:
        """Too many results are unacked for anything new to start."""
        return self.bytes > self._limit

    def of(self, partition: Partition) -> Iterator[Production]:
        """Yield the productions of a partition: in flight, waiting, or to be sent again."""
        later = (production for _, _, production in self._due)
        everything = dict.fromkeys((*self._sending, *self._waiting, *later))
        return (each for each in everything if each.partition is partition)

    def is_sending(self, partition: Partition) -> bool:
        """Return whether results of a partition are on their way to the broker."""
        return any(each.partition is partition for each in self._sending)

    def to_send(self) -> Iterator[Production]:
        """Yield the productions to send now, up to the unacked limit.

        A result that may have been refused for the size of its batch is sent with nothing else in
        flight.
        """
        while self._waiting and self._alone is None and self.unacked < MAX_UNACKED_RESULTS:
            production = self._waiting[0]
            if production.alone and self.unacked:
                return
            self._waiting.popleft()
            if not production.partition.accepts_results:
                self.over(production)
                continue
            production.sent, production.answers = len(production.to_send), 0
            self.unacked += production.sent
            if production.alone:
                self._alone = production
            yield production

    def answered(
        self, production: Production, index: int, error: PublishFailedError | None
    ) -> bool:
        """Record the answer for one result; return whether all sent results are answered."""
        self.unacked -= 1
        production.answers += 1
        if self._alone is production:
            self._alone = None
        if error is not None and (production.error is None or index < production.error[0]):
            production.error = (index, error)
        return production.answers == production.sent

    def advance(self, production: Production, now: float) -> bool:
        """Resend unacked results or continue with the next ones; False if everything is acked.

        The error must not be a permanent refusal, see ``refusal``.
        """
        error, production.error = production.error, None
        if error is None:
            production.first += production.sent
            self._counters.produced += production.sent
            if production.first == len(production.results):
                return False
            self._waiting.appendleft(production)
            return True
        index, why = error
        self._counters.produced += index - production.first
        self._counters.publish_failures += 1
        production.first = index
        production.failures += 1
        del self._sending[production]
        production.alone = production.alone or why.too_large
        delay_s = PUBLISH_BACKOFF.backoff(production.failures, self._jitter)
        production.due = now if why.too_large else now + delay_s
        heapq.heappush(self._due, (production.due, next(self._ties), production))
        return True

    @staticmethod
    def refusal(production: Production) -> Failure | None:
        """Return the failure if a result was permanently refused, else None."""
        if production.error is None:
            return None
        index, error = production.error
        # A broker refuses whole batches for their size: the record itself may be small enough.
        if not error.refused or (error.too_large and not production.alone):
            return None
        result = production.results[index]
        which = f"result {index + 1} of {len(production.results)}, "
        refused = ResultRefusedError(
            f"{which if len(production.results) > 1 else 'the result '}for {result.topic}, was"
            f" refused: {error.why}",
            of_topic=error.of_topic,
        )
        kind = type(refused)
        name = f"{kind.__module__}.{kind.__qualname__}"
        place = f"{production.handler}|{result.topic}"
        fault = Fault(name, str(refused), "", fingerprint(name, place))
        return Failure(refused, fault, production.handler)

    def over(self, production: Production) -> None:
        """Discard results that are acked, refused or obsolete; their lanes stay held."""
        self.bytes -= production.size
        self._sending.pop(production, None)
        if production.partition.accepts_results:
            production.partition.let_go(production.size)

    def resend_due(self, now: float) -> None:
        """Resend the results whose wait is over."""
        while self._due and self._due[0][0] <= now:
            self._wait(heapq.heappop(self._due)[2])

    def next_due(self) -> float | None:
        """Return when the next production is resent; None if none waits."""
        return self._due[0][0] if self._due else None

    def _wait(self, production: Production) -> None:
        self._sending[production] = None
        self._waiting.append(production)
