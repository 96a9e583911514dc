"""A batch in a child process: one call for all of its records.

One token covers the whole batch: once the child has it, nothing can be taken back. All outcomes
return in one message.

A process that a handler forks inherits the child's pipes and shared memory. If it returned from the
handler, it would handle the slot's records again, so it is ended there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, NoReturn

from window_consumer.engine.scheduling.lanes import LaneOf
from window_consumer.engine.scheduling.slice_results import Deviations
from window_consumer.model.fault import Failure
from window_consumer.model.outcome import Outcome
from window_consumer.model.produce import Produce
from window_consumer.model.record import Call, Message
from window_consumer.runtime.calls.batch_calls import call_batch
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.context import Slot
from window_consumer.runtime.pools.processes.child_failures import CarriedFailure, carried
from window_consumer.runtime.pools.processes.serialization import (
    ReceivedMessage,
    SerializedSlice,
    unpacked,
)
from window_consumer.runtime.pools.processes.shared_memory import REPORTED, SharedSlot

forked: Final[list[int]] = []
"""Holds the id of a process that a handler has forked; empty in a slot."""


def keep_apart(fds: Sequence[int], then: Callable[[], None]) -> None:
    """Disconnect processes forked from now on from these files; each calls ``then`` first."""

    def apart() -> None:
        forked.append(os.getpid())
        then()
        # Don't close them: files that the process opens next would get their numbers.
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in fds:
            os.dup2(nothing, fd, inheritable=False)
        os.close(nothing)

    os.register_at_fork(after_in_child=apart)


def end() -> NoReturn:
    """End a forked process that has returned from its handler."""
    # Don't flush buffers: their contents belong to the slot.
    text = f"the process {forked[-1]}, which a handler forked, returned from the handler: it ends\n"
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, text.encode())
    os._exit(1)


Results = tuple[Sequence[int], Sequence[Produce], str]
"""The positions of the records of a call, what it returned, and the handler's name."""


class BatchReport(NamedTuple):
    """The child's report about a batch whose handler did not simply return.

    Records are given by their position in the batch.
    """

    serial: int
    failures: Sequence[CarriedFailure]
    """Each failure once, however many records have it."""
    failed: Sequence[tuple[int, int]]
    """Pairs of a record and the index of its failure."""
    held: Sequence[int]
    skipped: Sequence[tuple[int, Outcome]]
    """Records without a handler's call, and how they ended."""
    returned: Sequence[Results]


class ReceivedBatch:
    """A batch as the slot in a child sees it. Owner: the main thread."""

    def __init__(self, serialized: SerializedSlice, call: Call):
        self.call = call
        self.lane_of: LaneOf | None = None  # one call: nothing is held behind anything
        self.messages: list[Message] = []
        for row in unpacked(serialized):
            message = ReceivedMessage()
            message.row = row
            self.messages.append(message)
        self.unclaimed: Iterator[Message] = iter(self.messages)
        self.deviations: Deviations | None = None

    def deviate(self) -> Deviations:
        """Return where the slot records calls that did not simply return."""
        if self.deviations is None:
            self.deviations = Deviations()
        return self.deviations


def run_batch(
    serialized: SerializedSlice,
    call: Call,
    shared_slot: SharedSlot,
    send: Callable[[object], None],
    caller: Caller,
    slot: Slot,
) -> None:
    """Call the handler for a batch, unless it was taken back, and report the outcomes."""
    batch = ReceivedBatch(serialized, call)
    if not shared_slot.tokens.take(False):
        return
    call_batch(batch, caller, slot)
    if forked:
        end()
    if batch.deviations is not None:
        send(_batch_report(serialized.serial, batch.messages, batch.deviations))
        shared_slot.words[REPORTED] = 1
    shared_slot.over.add()


def _batch_report(serial: int, messages: Sequence[Message], deviations: Deviations) -> BatchReport:
    places = {id(message): place for place, message in enumerate(messages)}
    numbers: dict[int, int] = {}
    failures: list[Failure] = []
    failed: list[tuple[int, int]] = []
    for message, failure in deviations.failed:
        number = numbers.setdefault(id(failure), len(failures))
        if number == len(failures):
            failures.append(failure)
        failed.append((places[id(message)], number))
    return BatchReport(
        serial,
        [carried(failure) for failure in failures],
        failed,
        [places[id(message)] for message in deviations.held],
        [(places[id(message)], outcome) for message, outcome in deviations.skipped],
        [
            ([places[id(message)] for message in each.messages], each.results, each.handler)
            for each in deviations.returned
        ],
    )
