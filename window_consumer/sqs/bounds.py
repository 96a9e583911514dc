"""What a queue's configuration implies: how long a lease may last, and what waits for it then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from attrs import frozen

from window_consumer.config import format_duration
from window_consumer.config.units import brief_duration
from window_consumer.plan.app_plan import PlannedWorker
from window_consumer.sqs.config import PullConfig

_RATES: Final = (100.0, 1000.0)
"""The records/s that it is calculated for unless a rate is given."""


@frozen
class LongestLease:
    """How long a lease may last at a rate until the window of its partition is full."""

    records_per_s: float
    seconds: float


@frozen
class QueueBounds:
    """The limits of one queue."""

    worker: str
    queue: str
    url: str
    fifo: bool
    visibility_timeout_s: float
    max_in_flight: int
    window_records: int
    """Per partition."""
    longest_leases: tuple[LongestLease, ...]

    @classmethod
    def of(cls, worker: PlannedWorker, queue: str, url: str, rate: float | None) -> QueueBounds:
        """Return the limits of a worker's queue; ``rate`` is how many records/s are expected."""
        pull, rules = worker.config.section(PullConfig), worker.engine
        window = rules.window_cells * rules.cell_records
        rates = _RATES if rate is None else (rate,)
        return cls(
            worker=worker.name,
            queue=queue,
            url=url,
            fifo=worker.config.ordering == "key",
            visibility_timeout_s=pull.visibility_timeout,
            max_in_flight=pull.max_in_flight,
            window_records=window,
            longest_leases=tuple(LongestLease(each, window / each) for each in rates),
        )

    def in_words(self) -> Iterator[str]:
        """Yield lines for people."""
        usual = format_duration(self.visibility_timeout_s)
        yield f"{self.worker}: the queue {self.queue} at {self.url}; leases last {usual}"
        found = ", ".join(
            f"{brief_duration(each.seconds)} at {each.records_per_s:g} records/s"
            for each in self.longest_leases
        )
        yield (
            f"  a lease may last {self.window_records} / R seconds until the window of its"
            f" partition is full, if R records/s of it are done: {found}"
        )
        yield (
            "  then the partition starves: clients get no further record of it until that lease"
            " ends; other partitions continue"
        )
        if self.fifo:
            yield "  later records of a key wait while one of them is leased, or waits for a retry"
        lapsed = self.max_in_flight / self.visibility_timeout_s
        yield (
            f"  clients have at most {self.max_in_flight} records at once in each process: if"
            f" none is deleted, they get {lapsed:.3g} others per second"
        )
