"""Requests of other threads to a worker's Engine. They return values, never its own objects."""

from __future__ import annotations

from attrs import frozen

from window_consumer.engine.cell_details import (
    CellDetails,
    Failing,
    blocking,
    cell_details,
    failing,
    held_message,
    number_of,
)
from window_consumer.engine.engine import Engine
from window_consumer.engine.snapshot import running_calls, take_snapshot
from window_consumer.engine.windows_snapshot import CallSnapshot, WindowsSnapshot
from window_consumer.model.protocols import Clock, Source
from window_consumer.model.record import Message, TopicPartition
from window_consumer.runtime.mailbox import WorkerMailbox


@frozen
class ShownFailures:
    """The records that have failed and have no outcome yet, by partition."""

    failing: tuple[Failing, ...] = ()
    blocking: tuple[Failing, ...] = ()


@frozen
class Inspection:
    """Asks the poll thread, and returns None without an answer in time. Any thread may use it."""

    _mailbox: WorkerMailbox
    _source: Source
    """Only the poll thread reads it."""

    def windows(self, timeout_s: float, *, cells: bool = True) -> WindowsSnapshot | None:
        """Return all windows.

        Without ``cells`` there is only one row for each window, which is many times cheaper.
        """

        def ask(engine: Engine, clock: Clock) -> WindowsSnapshot:
            read = [name for name, each in engine.partitions.items() if each.is_fetched]
            engine.on_log_ends(self._source.log_ends(read))
            return take_snapshot(engine, clock.now(), clock.wall_ms(), cells=cells)

        return self._mailbox.ask(ask, timeout_s)

    def failed(self, timeout_s: float) -> ShownFailures | None:
        """Return the failing records, and those that block their lanes."""

        def ask(engine: Engine, clock: Clock) -> ShownFailures:
            now = clock.now()
            return ShownFailures(tuple(failing(engine, now)), tuple(blocking(engine, now)))

        return self._mailbox.ask(ask, timeout_s)

    def cell(
        self, name: TopicPartition, number: int | None, offset: int | None, timeout_s: float
    ) -> tuple[CellDetails, tuple[CallSnapshot, ...]] | None:
        """Return a cell by its number, or by an offset in it, with its running calls.

        Return None also if it is not in the window.
        """

        def ask(
            engine: Engine, clock: Clock
        ) -> tuple[CellDetails, tuple[CallSnapshot, ...]] | None:
            now = clock.now()
            wanted = number if offset is None else number_of(engine, name, offset)
            found = None if wanted is None else cell_details(engine, name, wanted, now)
            if found is None:
                return None
            offsets = range(found.first_offset, found.last_offset + 1)
            calls = (each for each in running_calls(engine, now) if each.name == name)
            return found, tuple(each for each in calls if each.offset in offsets)

        return self._mailbox.ask(ask, timeout_s)

    def message(
        self, name: TopicPartition, offset: int, timeout_s: float
    ) -> tuple[Message, str] | None:
        """Return an unfinished record and its source topic, None if the worker does not hold it."""
        return self._mailbox.ask(lambda engine, _: held_message(engine, name, offset), timeout_s)

    def is_finished(self, name: TopicPartition, offset: int, timeout_s: float) -> bool | None:
        """Return whether a manually skipped or dead-lettered record has its outcome."""
        return self._mailbox.ask(
            lambda engine, _: engine.interventions.is_finished(name, offset), timeout_s
        )
