"""Outcomes of a task's records: received from the Engine, and turned into Arrow rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from window_consumer.engine.guards.breaker_state import BreakerNews, BreakerState
from window_consumer.engine.observer import Observer
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.policy import JUDGED
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.outcome import OUTCOMES, Outcome
from window_consumer.model.record import Message, Record, TopicPartition
from window_consumer.spark.backfill.messages import TaskMessage

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = (
    "partition int, offset bigint, outcome string, reason string, error string, attempts int,"
    " duration_us bigint"
)
"""The output columns of tasks, one row per record; ``rows_of`` builds the same in Arrow."""

FINE: Final = tuple(row.name for row in OUTCOMES if row.is_progress and row.end == "good")
"""The outcomes of records that are ``ok``."""

_ENOUGH: Final = 8192
"""How many rows are returned together, because each Arrow batch has a fixed cost."""

Row = tuple[list[TaskMessage], str, str | None, str | None]
"""Records of one outcome, with the reason and the error of a failure."""


class TaskResults(Observer):
    """Collects outcomes. The poll thread adds them; the task's own thread takes them."""

    def __init__(self) -> None:
        self._received: SimpleQueue[Row | None] = SimpleQueue()
        self._rows: list[Row] = []
        self._held = 0
        self.count = 0
        """How many outcomes the task's own thread has taken."""
        self.breaker_news: BreakerNews | None = None
        """The circuit breaker's last change; None before it first opens."""
        self.failing: dict[tuple[TopicPartition, int], str] = {}
        """The last error of records that have failed and have no outcome. Owner: poll thread."""
        self.succeeded = 0
        """How many slices had calls that returned. Owner: poll thread, also of the next field."""
        self.left_in_a_row = 0
        """How many records left after their last attempt since a call last returned."""

    @property
    def breaker_state(self) -> BreakerState:
        """The state of the circuit breaker."""
        return BreakerState.CLOSED if self.breaker_news is None else self.breaker_news.state

    def finished(
        self,
        partition: Partition,
        messages: Sequence[Message],
        outcome: Outcome,
        slice_: Slice | None,  # noqa: ARG002 - the records know how long they took
        now: float,  # noqa: ARG002 - as above
    ) -> None:
        """Record that the handler returned for these records, or that they were skipped."""
        if not messages:
            return  # the whole slice was taken back, for instance when the breaker opened
        self.succeeded += 1
        self.left_in_a_row = 0
        if self.failing:
            for message in messages:
                self.failing.pop((partition.name, message.offset()), None)
        self._received.put((list(messages), outcome.name, None, None))  # type: ignore[arg-type] # the Source's own

    def failed(self, failed: FailedRecord, now: float) -> None:  # noqa: ARG002 - the record knows
        """Record a failed call."""
        self.failing[failed.partition.name, failed.message.offset()] = failed.failure.fault.words

    def left(self, failed: FailedRecord, outcome: Outcome, now: float) -> None:  # noqa: ARG002 - the record knows
        """Record that a record failed for good and its copy is acked."""
        self.failing.pop((failed.partition.name, failed.message.offset()), None)
        self.left_in_a_row += failed.reason in JUDGED
        reason = None if failed.reason is None else str(failed.reason)
        message: Any = failed.message
        self._received.put(([message], outcome.name, reason, failed.failure.fault.words))

    def breaker(self, news: BreakerNews, now: float) -> None:  # noqa: ARG002 - kept as reported
        """Record the circuit breaker's new state."""
        self.breaker_news = news

    def wake(self) -> None:
        """Make ``wait`` return."""
        self._received.put(None)

    # ---- for the task's own thread

    def wait(self, timeout_s: float) -> None:
        """Take the queued outcomes; wait for the first."""
        try:
            self._take(
                self._received.get(timeout=timeout_s)
                if timeout_s > 0
                else self._received.get_nowait()
            )
            while self._held < _ENOUGH:
                self._take(self._received.get_nowait())
        except Empty:
            return

    def _take(self, row: Row | None) -> None:
        if row is not None:
            self._rows.append(row)
            self._held += len(row[0])
            self.count += len(row[0])

    def rows(self, *, all_of_them: bool = False) -> pa.RecordBatch | None:
        """Return the collected rows; None if there are too few yet."""
        if not self._held or (self._held < _ENOUGH and not all_of_them):
            return None
        rows, self._rows, self._held = self._rows, [], 0
        return rows_of(rows)


def rows_of(rows: Sequence[Row]) -> pa.RecordBatch:
    """Return a row for each record, with the columns of ``COLUMNS``."""
    import pyarrow as pa  # noqa: PLC0415 - optional, and slow

    partitions: list[int] = []
    offsets: list[int] = []
    attempts: list[int] = []
    durations: list[int] = []
    outcomes: list[str] = []
    reasons: list[str | None] = []
    errors: list[str | None] = []
    for messages, outcome, reason, error in rows:
        count = len(messages)
        partitions += repeat(messages[0].row[7], count)
        offsets += [each.row[0] for each in messages]
        attempts += [each.calls for each in messages]
        durations += [int(each.took_s * 1e6) for each in messages]
        outcomes += repeat(outcome, count)
        reasons += repeat(reason, count)
        errors += repeat(error, count)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(partitions, pa.int32()),
            pa.array(offsets, pa.int64()),
            pa.array(outcomes, pa.string()),
            pa.array(reasons, pa.string()),
            pa.array(errors, pa.string()),
            pa.array(attempts, pa.int32()),
            pa.array(durations, pa.int64()),
        ],
        names=["partition", "offset", "outcome", "reason", "error", "attempts", "duration_us"],
    )


class Stopwatches:
    """Measures and counts calls. Takes the place of tracing spans."""

    only_sampled = False

    def of_record(self, record: Record) -> Stopwatch:
        """Return the measurement of one call."""
        return Stopwatch((record._message,))  # noqa: SLF001 - the layers belong to the slots' loop

    def of_batch(self, records: list[Record]) -> Stopwatch:
        """Return the measurement of the call for a batch."""
        return Stopwatch([record._message for record in records])  # noqa: SLF001 - as above


class Stopwatch:
    """The measurement of one call."""

    __slots__ = ("_began", "_messages")

    def __init__(self, messages: Sequence[Any]):
        self._messages: Sequence[TaskMessage] = messages
        self._began = 0.0

    def enter(self) -> None:
        """Start the measurement."""
        self._began = perf_counter()

    def carry(self, returned: object) -> object:
        """Return the handler's result unchanged."""
        return returned

    def leave(self, error: BaseException | None) -> None:  # noqa: ARG002 - the Engine receives it
        """Add the duration of the call to its records."""
        took_s = perf_counter() - self._began
        for message in self._messages:
            message.took_s += took_s
            message.calls += 1
