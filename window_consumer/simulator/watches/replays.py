"""Watches replays: which records are read, copied, skipped or copied twice, and what is resumed.

It judges by the topics' contents and the commits, not by a replay's counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from attrs import define, field

from window_consumer.model import headers as names
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.offset_ranges import Span
from window_consumer.model.protocols import Copy
from window_consumer.model.record import Message, TopicPartition
from window_consumer.simulator.history import SimulationHistory
from window_consumer.simulator.log_history import KnownRecord
from window_consumer.simulator.schedule import GROUP
from window_consumer.simulator.watches.copies import differences
from window_consumer.simulator.watches.parking import ParkWatch
from window_consumer.testing.fakes.log import FakeMessage

_OF_CALLS = (
    names.REDRIVES,
    names.ATTEMPTS,
    names.REASON,
    names.LEVEL,
    names.NOT_BEFORE,
    names.FIRST_FAILURE,
    names.LAST_FAILURE,
    names.ERROR_CLASS,
    names.ERROR_MESSAGE,
    names.ERROR_STACK,
    names.ERROR_FINGERPRINT,
    names.VALUE_REF,
    names.FOLLOWS,
)
"""A replay starts a record over."""


@define(eq=False)
class WatchedReplay:
    """One process that replays records."""

    name: str
    group: str
    """The group that holds its progress, the same for the same command."""
    source: str
    batch_records: int
    matches: Callable[[Message], bool] | None
    restart: bool = field(kw_only=True)
    new_ids: bool = field(kw_only=True)
    run: str = ""
    """Known once it has planned its range."""
    read: dict[tuple[int, int], KnownRecord] = field(factory=dict)
    """By partition and offset: the records that it may copy and has not copied yet."""
    uncommitted: int = 0
    """How many were read since the last commit."""
    sent: dict[int, tuple[Copy, KnownRecord]] = field(factory=dict)

    def __str__(self) -> str:
        return self.name


@define(eq=False)
class _WatchedRange:
    """A range that is copied once, by one process or several in turn."""

    spans: Mapping[TopicPartition, Span]
    written: Counter[KnownRecord] = field(factory=Counter)
    acked: set[KnownRecord] = field(factory=set)
    refused: set[KnownRecord] = field(factory=set)
    may_repeat: int = 0
    """How many duplicates the entry topic may have."""


class ReplayWatch:
    """Checks every step of replaying processes. Owner: one thread."""

    def __init__(self, history: SimulationHistory, parking: ParkWatch):
        self._history = history
        self._parking = parking
        self._violate = history.violate
        self._runs: dict[str, _WatchedRange] = {}
        self._unfinished: dict[str, str] = {}
        """The run that the next process of a group must resume."""
        self._at_work: list[WatchedReplay] = []

    # ---- one process

    def begin(self, process: WatchedReplay, spans: Mapping[TopicPartition, Span]) -> None:
        """Record that a process has planned its range."""
        run = self._runs.setdefault(process.run, _WatchedRange(spans))
        if any(each.group == process.group for each in self._at_work):
            # The same replay runs twice, which is only detected at the next commit.
            run.may_repeat += process.batch_records
        self._at_work.append(process)

    def claimed(self, process: WatchedReplay, *, is_over: bool) -> None:
        """Record that commits name a process's run: it can be resumed until it is over."""
        unfinished = self._unfinished.get(process.group)
        if not is_over:
            if unfinished not in (None, process.run) and not process.restart:
                self._violate(f"{process} begins {process.run} although {unfinished} was cut short")
            self._unfinished[process.group] = process.run
        elif unfinished == process.run:
            del self._unfinished[process.group]
            for record in self._open(process):
                self._violate(f"{_place(record)} is lost: {process} ends without a copy of it")

    def read(self, process: WatchedReplay, messages: Sequence[FakeMessage]) -> None:
        """Check the records that a process reads."""
        process.uncommitted += len(messages)
        if process.uncommitted > process.batch_records:
            self._violate(
                f"{process} has read {process.uncommitted} records since its last commit, a batch"
                f" is {process.batch_records}"
            )
        for message in messages:
            log = self._history.broker.log(message.topic(), message.partition())
            record = self._history.ledger(log).records[message.offset()]
            process.read[message.partition(), message.offset()] = record

    def sending(self, process: WatchedReplay, copy: Copy) -> None:
        """Check a copy that a process sends to the entry topic."""
        said = dict(copy.headers)
        number, offset = said.get(names.ORIGINAL_PARTITION), said.get(names.ORIGINAL_OFFSET)
        record = process.read.pop((int(number or -1), int(offset or -1)), None)
        if record is None:
            self._violate(f"{process} copies {number!r}@{offset!r}, which it has not read")
            return
        process.sent[id(copy)] = (copy, record)
        if process.matches is not None and not process.matches(record.message):
            self._violate(f"{process} copies {_place(record)}, which was not requested")
        for text in _wrong(record, copy, process, self._partitions(copy.topic)):
            self._violate(f"{process} copies {_place(record)} as another record: {text}")

    def _partitions(self, topic: str) -> int:
        return self._history.broker.topics.partitions(topic)

    def written(self, process: WatchedReplay, copy: Copy, message: FakeMessage) -> None:
        """Record a copy in the entry topic: it is a record like any other."""
        if id(copy) not in process.sent:
            return
        record, history = process.sent[id(copy)][1], self._history
        log = history.broker.log(message.topic(), message.partition())
        copied = history.produced(
            log, message, poison=record.poison, deadly=record.deadly, copy_of=record
        )
        copied.redrives = 0
        self._parking.replayed(copied)
        run = self._runs[process.run]
        run.written[record] += 1
        if run.written[record] > 1:
            run.may_repeat -= 1
            if run.may_repeat < 0:
                self._violate(
                    f"{process} copies {_place(record)} once more: more than one batch for each"
                    " process that was killed came twice"
                )

    def answered(
        self, process: WatchedReplay, copy: Copy, error: PublishFailedError | None
    ) -> None:
        """Record the broker's answer for a copy."""
        if id(copy) not in process.sent:
            return
        record, run = process.sent[id(copy)][1], self._runs[process.run]
        if error is None:
            run.acked.add(record)
        elif error.too_large:
            run.refused.add(record)

    def committing(self, process: WatchedReplay, progress: Mapping[TopicPartition, int]) -> None:
        """Check a process's commit of its progress."""
        process.uncommitted = 0
        for record in self._open(process):
            name, offset = record.hop.origin, record.hop.offset
            if offset < progress.get(name, 0):
                self._violate(f"{process} passes over {_place(record)}, which was not copied")

    def ended(self, process: WatchedReplay, *, is_over: bool | None) -> None:
        """Record a process's end; None if it was killed or failed."""
        if process not in self._at_work:
            return  # it had no range yet, or an empty one
        self._at_work.remove(process)
        if is_over is None:
            self._runs[process.run].may_repeat += process.batch_records
        elif is_over and self._unfinished.get(process.group) == process.run:
            self._violate(f"{process} ends, but its run is not over")

    def _open(self, process: WatchedReplay) -> Iterator[KnownRecord]:
        """Yield the records of a run that are in the log and not copied."""
        history, run = self._history, self._runs[process.run]
        for name, span in run.spans.items():
            log = history.broker.log(*name)
            records = history.ledger(log).records
            for message in log.messages:
                record = records[message.offset()]
                is_wanted = process.matches is None or process.matches(message)
                is_done = record in run.acked or record in run.refused
                if is_wanted and not is_done and span.first <= message.offset() < span.end:
                    yield record


def _place(record: KnownRecord) -> str:
    return f"{record.hop.origin}@{record.hop.offset}"


def _wrong(record: KnownRecord, copy: Copy, process: WatchedReplay, partitions: int) -> list[str]:
    """Return the fault of a copy of a source's record."""
    found = differences(record.message, copy.key, copy.value, copy.headers)
    said, hop = dict(copy.headers), record.hop
    found.extend(f"header {name} came along" for name in _OF_CALLS if name in said)
    expected = {
        names.ID: hop.record_id + (b"#%s" % process.run.encode() if process.new_ids else b""),
        names.ORIGINAL_TOPIC: hop.origin.topic.encode(),
        names.REPLAY: process.run.encode(),
        names.GROUP: GROUP.encode(),
        names.FORMAT: names.FORMAT_VERSION,
    }
    found.extend(
        f"header {name} is {said.get(name)!r}"
        for name, value in expected.items()
        if said.get(name) != value
    )
    number = hop.origin.partition
    if number < partitions and copy.partition != number:
        found.append(f"partition {copy.partition} instead of its lane's")
    return found
