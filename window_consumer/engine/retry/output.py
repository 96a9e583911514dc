"""Results on their way to the broker: what calls returned to be produced, until it is acked.

A record whose handler returned something to produce stays open, and keeps its lane busy, until all
of it is acked: so the results of a lane are produced in the order of its records, whatever has to
be sent again, and nothing is committed whose results may be lost. Waiting occupies no slot.

What is refused for good is a failed call of the handler. What else goes wrong is sent again, from
the first result that was not acked: those behind it are produced twice then, and stand behind it.
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
from window_consumer.engine.retry.policy import (
    PUBLISH_BACKOFF,
    Jitter,
)
from window_consumer.engine.scheduling.dispatcher import SLICES_PER_SLOT
from window_consumer.engine.scheduling.lanes import Lane, LaneHold
from window_consumer.engine.scheduling.slices import RecordsReturned, Slice
from window_consumer.model.errors import (
    PublishFailedError,
    ResultRefusedError,
)
from window_consumer.model.fault import (
    Failure,
    Fault,
    fingerprint,
)
from window_consumer.model.produce import Produce
from window_consumer.model.record import Message

MAX_UNACKED_RESULTS = 10_000
"""Results on their way to the broker at once, one call's beyond it: enough for 100,000/s with acks
that take 0.1 s, and a tenth of what the client's queue takes."""

RESULTS_SHARE = 0.25
"""Beyond this share of the budget of bytes in results nothing new starts until some are acked."""

COPIES_HELD = 2
"""A result is held twice: here, to be sent again, and in the client's queue."""

RECORD_BYTES = 256
"""What a result costs beside its payload, about."""

_FORGET = 0.95
"""A slice without results lets the usual size of a call's results fall by a twentieth."""


@define(eq=False)
class Production:
    """The results of one call, and the records that are open until they are acked."""

    partition: Partition
    messages: Sequence[Message]
    seqs: Sequence[int]
    lanes: Sequence[Lane | None]
    """Of each record."""
    hold: LaneHold
    """Those lanes, until all results are acked."""
    results: Sequence[Produce]
    handler: str
    size: int
    """Bytes that they count for."""
    source: Slice | None
    """The slice of the call, where the breaker waits to hear of it."""
    first: int = 0
    """All results before this one are acked."""
    sent: int = 0
    """So many of those that follow are on their way, or were."""
    answers: int = 0
    """How many of them have been answered."""
    alone: bool = False
    """One of them was refused for its size, or that of its batch: they go one at a time."""
    error: tuple[int, PublishFailedError] | None = None
    """The first that was not acked, and why."""
    failures: int = 0
    due: float = field(default=0.0)

    @property
    def to_send(self) -> range:
        """Which results are to be sent now."""
        stop = self.first + 1 if self.alone else len(self.results)
        return range(self.first, stop)


class Output:
    """The results of one worker that are not acked. Owner: poll thread."""

    def __init__(self, slots: int, budget: MemoryBudget, jitter: Jitter, counters: Counters):
        self._slots = slots
        self._limit = budget.limit * RESULTS_SHARE
        self._jitter = jitter
        self._counters = counters
        self._waiting: deque[Production] = deque()
        self._due: list[tuple[float, int, Production]] = []
        self._ties = count()
        self._usual_size = 0.0
        """Bytes of the results of a call."""
        self.bytes = 0
        """Of all results that are not acked."""
        self.unacked = 0
        """Results on their way to the broker."""
        self._alone: Production | None = None
        """Whose result is on its way by itself."""

    def add(
        self,
        partition: Partition,
        returned: RecordsReturned,
        seqs: Sequence[int],
        lanes: Sequence[Lane | None],
        source: Slice | None,
    ) -> int:
        """Take the results of a call that returned; its records and their lanes wait for them.

        Returns for how many bytes they count.
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
        """Learn from a slice how much is usually produced: up at once, down slowly."""
        if calls:
            self._usual_size = max(size / calls, self._usual_size * _FORGET)

    @property
    def produces(self) -> bool:
        """Calls have returned something to produce lately."""
        return self._usual_size >= 1

    @property
    def longest_slice(self) -> int | None:
        """How many records a slice may hold so that the results of all of them have room.

        None where it does not matter.
        """
        if not self.produces:
            return None
        return max(1, int(self._limit / (SLICES_PER_SLOT * self._slots) / self._usual_size))

    @property
    def holds_back(self) -> bool:
        """So much is not acked that nothing new may start."""
        return self.bytes > self._limit

    def to_send(self) -> Iterator[Production]:
        """Yield those whose results should be sent now, as many as may be unacked.

        What may have been refused for the size of its batch is sent while nothing else is on its
        way.
        """
        while self._waiting and self._alone is None and self.unacked < MAX_UNACKED_RESULTS:
            production = self._waiting[0]
            if production.alone and self.unacked:
                return
            self._waiting.popleft()
            if not production.partition.owned:
                self.bytes -= production.size
                continue
            production.sent, production.answers = len(production.to_send), 0
            self.unacked += production.sent
            if production.alone:
                self._alone = production
            yield production

    def answered(
        self, production: Production, index: int, error: PublishFailedError | None
    ) -> bool:
        """Note the fate of one result; tell whether that of all that were sent is known."""
        self.unacked -= 1
        production.answers += 1
        if self._alone is production:
            self._alone = None
        if error is not None and (production.error is None or index < production.error[0]):
            production.error = (index, error)
        return production.answers == production.sent

    def advance(self, production: Production, now: float) -> bool:
        """Send again what was not acked, or go on with the next; False where all of it is acked.

        The error is none that it was refused for, see ``refusal``.
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
        production.partition.publishing -= 1
        production.alone = production.alone or why.too_large
        delay_s = PUBLISH_BACKOFF.backoff(production.failures, self._jitter)
        production.due = now if why.too_large else now + delay_s
        heapq.heappush(self._due, (production.due, next(self._ties), production))
        return True

    @staticmethod
    def refusal(production: Production) -> Failure | None:
        """Return why a result was refused for good, None where it was not."""
        if production.error is None:
            return None
        index, error = production.error
        # A broker refuses a batch for its size: the record may be none that is too large.
        if not error.refused or (error.too_large and not production.alone):
            return None
        result = production.results[index]
        which = f"result {index + 1} of {len(production.results)}, "
        refused = ResultRefusedError(
            f"{which if len(production.results) > 1 else 'the result '}for {result.topic}, was"
            f" refused: {error.why}"
        )
        kind = type(refused)
        name = f"{kind.__module__}.{kind.__qualname__}"
        place = f"{production.handler}|{result.topic}"
        fault = Fault(name, str(refused), "", fingerprint(name, place))
        return Failure(refused, fault, production.handler)

    def over(self, production: Production) -> None:
        """Forget results that are acked, refused, or of no interest; their lanes stay held."""
        self.bytes -= production.size
        partition = production.partition
        if partition.owned:
            partition.publishing -= 1
            partition.let_go(production.size)

    def resend_due(self, now: float) -> None:
        """Let those be sent again whose wait is over."""
        while self._due and self._due[0][0] <= now:
            self._wait(heapq.heappop(self._due)[2])

    def next_due(self) -> float | None:
        """Return when the next one is sent again, None where none waits for that."""
        return self._due[0][0] if self._due else None

    def _wait(self, production: Production) -> None:
        production.partition.publishing += 1
        self._waiting.append(production)
