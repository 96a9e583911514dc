"""One cell with its records, for display."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final

from attrs import frozen

from window_consumer.engine.engine import Engine
from window_consumer.engine.partition import Partition
from window_consumer.engine.partition_state import HoldReason
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.engine.window import OPEN, Cell
from window_consumer.model.outcome import of_number
from window_consumer.model.record import Message, TopicPartition

MOST_RECORDS: Final = 100
"""The most records of a cell that are shown, unfinished ones first."""

MOST_FAILING: Final = 10
"""The most failing records of a partition that are shown; MOST_RECORDS for all partitions."""

MOST_BLOCKING: Final = 3
"""The most records of a partition that are shown as blocking their lanes."""


@frozen
class RecordDetails:
    """One record of a cell."""

    offset: int
    state: str
    """Its outcome, or what it waits for, as text."""
    message: Message | None = None
    """The record itself; None if it is finished and no longer held."""
    attempts: int = 0
    """Calls, ended or running, since its delivery from its current topic."""
    error: str = ""
    """Class and message of the last failure, redacted."""
    due_s: float | None = None
    """Seconds until its next call, if it waits for one."""
    running_s: float | None = None
    """Seconds since its slice started, if its call may be running."""
    behind: int = 0
    """How many records of its lane wait for it."""


@frozen
class CellDetails:
    """One cell of a window."""

    number: int
    first_offset: int
    last_offset: int
    count: int
    open: int
    hovering_s: float
    """Seconds without progress, if it is the start cell."""
    records: tuple[RecordDetails, ...]
    source: str
    """The topic of these records, or of the originals of these copies."""


def cell_details(
    engine: Engine, name: TopicPartition, number: int, now: float
) -> CellDetails | None:
    """Return a cell by its number, see ``Window.slid``; None if it is not in the window."""
    partition = engine.partitions.get(name)
    if partition is None:
        return None
    window = partition.window
    index = number - window.slid
    if not 0 <= index < len(window.cells):
        return None
    cell = window.cells[index]
    since = window.hovering_since() if index == 0 else None
    return CellDetails(
        number=number,
        first_offset=window.offsets.offset_of(cell.first_seq),
        last_offset=window.offsets.offset_of(cell.end_seq - 1),
        count=len(cell.states),
        open=cell.open,
        hovering_s=0.0 if since is None else max(0.0, now - since),
        records=tuple(_records(engine, partition, cell, now)),
        source=partition.retry_level.source,
    )


def number_of(engine: Engine, name: TopicPartition, offset: int) -> int | None:
    """Return the number of the cell that holds a record; None if none does."""
    partition = engine.partitions.get(name)
    if partition is None or offset < partition.window.next_offset:
        return None
    window = partition.window
    if not window.cells or offset >= window.offsets.next_offset:
        return None
    place = window.place_of(window.offsets.seq_of(offset))
    return None if place is None else place + window.slid


@frozen
class Failing:
    """Records of one partition that have failed and have no outcome yet, in order of display."""

    name: TopicPartition
    source: str
    """The topic of these records, or of the originals of these copies."""
    records: tuple[RecordDetails, ...]


def failing(engine: Engine, now: float) -> list[Failing]:
    """Return each partition's latest failing records; partitions without any are left out.

    Cost: a few microseconds a partition, however many fail.
    """
    records = engine.failed_records
    partitions = [each for each in engine.partitions.values() if records.of(each)]
    return [
        Failing(each.name, each.retry_level.source, tuple(_failing(engine, each, now)))
        for each in partitions[: MOST_RECORDS // MOST_FAILING]
    ]


def blocking(engine: Engine, now: float) -> list[Failing]:
    """Return each partition's earliest failing records that block their lanes.

    Cost: the same as ``failing``.
    """
    records = engine.failed_records
    partitions = [each for each in engine.partitions.values() if records.of(each)]
    found = [
        Failing(each.name, each.retry_level.source, tuple(_blocking(engine, each, now)))
        for each in partitions[: MOST_RECORDS // MOST_FAILING]
    ]
    return [each for each in found if each.records]


def held_message(engine: Engine, name: TopicPartition, offset: int) -> tuple[Message, str] | None:
    """Return an unfinished record and its source topic; None if it is not held."""
    if number_of(engine, name, offset) is None:
        return None
    partition = engine.partitions[name]
    seq = partition.window.offsets.seq_of(offset)
    failed = engine.failed_records.of(partition).get(seq)
    message = failed.message if failed is not None else _messages(engine, partition).get(seq)
    if message is None or message.offset() != offset:  # holes in the log have no record
        return None
    return message, partition.retry_level.source


def _records(
    engine: Engine, partition: Partition, cell: Cell, now: float
) -> Iterator[RecordDetails]:
    """Yield details of the cell's first records, unfinished ones first."""
    seqs = range(cell.first_seq, cell.end_seq)
    is_open = [seq for seq in seqs if cell.states[seq - cell.first_seq] == OPEN]
    finished = (seq for seq in seqs if cell.states[seq - cell.first_seq] != OPEN)
    messages = _messages(engine, partition)
    failing = engine.failed_records.of(partition)
    running = dict(_running(engine, partition))
    offset_of = partition.window.offsets.offset_of
    for seq in is_open[:MOST_RECORDS]:
        failed, slice_ = failing.get(seq), running.get(seq)
        message = failed.message if failed is not None else messages.get(seq)
        yield RecordDetails(
            offset_of(seq),
            _state(partition, failed, slice_),
            message,
            (0 if failed is None else failed.attempts) + (slice_ is not None),
            "" if failed is None else failed.failure.fault.words,
            _due_s(failed, slice_, now),
            None if slice_ is None else max(0.0, now - slice_.started),
        )
    for seq, _ in zip(finished, range(max(0, MOST_RECORDS - len(is_open))), strict=False):
        outcome = of_number(cell.states[seq - cell.first_seq])
        yield RecordDetails(offset_of(seq), outcome.cell_words or outcome.words)


def _failing(engine: Engine, partition: Partition, now: float) -> Iterator[RecordDetails]:
    latest = islice(reversed(engine.failed_records.of(partition).items()), MOST_FAILING)
    return _details_of(engine, partition, latest, now)


def _blocking(engine: Engine, partition: Partition, now: float) -> Iterator[RecordDetails]:
    first = islice(engine.failed_records.of(partition).items(), MOST_FAILING)
    line_of = partition.ordering.line_of
    blocks = [(seq, failed) for seq, failed in first if line_of(failed.lane)]
    return _details_of(engine, partition, blocks[:MOST_BLOCKING], now)


def _details_of(
    engine: Engine, partition: Partition, chosen: Iterable[tuple[int, FailedRecord]], now: float
) -> Iterator[RecordDetails]:
    running = dict(_running(engine, partition))
    for seq, failed in chosen:
        slice_ = running.get(seq)
        yield RecordDetails(
            failed.message.offset(),
            _state(partition, failed, slice_),
            failed.message,
            failed.attempts + (slice_ is not None),
            failed.failure.fault.words,
            _due_s(failed, slice_, now),
            None if slice_ is None else max(0.0, now - slice_.started),
            partition.ordering.line_of(failed.lane),
        )


def _state(partition: Partition, failed: FailedRecord | None, slice_: Slice | None) -> str:
    if slice_ is not None:
        return "running"
    if failed is not None and failed.reason is not None:
        return "waits for the ack of its copy"
    if HoldReason.MANUAL in partition.holds:
        return "paused by hand"
    return "waiting" if failed is None else "waits for its next call"


def _due_s(failed: FailedRecord | None, slice_: Slice | None, now: float) -> float | None:
    if failed is None or failed.reason is not None or slice_ is not None:
        return None
    return max(0.0, failed.due - now)


def _running(engine: Engine, partition: Partition) -> Iterator[tuple[int, Slice]]:
    """Yield the records whose call is running."""
    for slice_ in engine.dispatcher.slices_of(partition):
        claimed = slice_.claimed() if slice_.started else 0
        first = 0 if slice_.is_batch else max(0, claimed - 1)
        for seq in slice_.seqs[first:claimed]:
            yield seq, slice_


def _messages(engine: Engine, partition: Partition) -> dict[int, Message]:
    """Return the messages in progress or waiting to start, by sequence number."""
    slices = engine.dispatcher.slices_of(partition)
    out = (pair for each in slices for pair in zip(each.seqs, each.messages, strict=False))
    return dict(chain(partition.ordering.waiting(), out))
