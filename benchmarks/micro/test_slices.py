"""Slices: the slots' loop over them, splitting them, and learning their length."""

from __future__ import annotations

from typing import Any

from benchmarks.handlers import nothing
from benchmarks.micro.messages import ORDERS, messages, no_copy
from window_consumer.engine.decisions import Assigned, EngineRules
from window_consumer.engine.engine import Engine
from window_consumer.engine.partition import Partition
from window_consumer.engine.scheduling.slice_length import SliceLength
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import Skip
from window_consumer.model.record import Call, Record
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.calls.record_calls import call_each
from window_consumer.runtime.context import Slot
from window_consumer.runtime.error_report import ErrorReports

RECORDS = 500


def partition() -> Partition:
    """Return a partition for slices to belong to."""
    engine = Engine(EngineRules(slots=16), lambda: 0.0, {}, no_copy)
    engine.on_assigned([Assigned(ORDERS, 0)], 0.0)
    return engine.partitions[ORDERS]


def caller(handler: Any) -> Caller:
    """Return what a slot calls."""
    return Caller(handler, ErrorReports(str).failure)


def test_call_a_handler_that_does_nothing_for_a_slice_of_500(benchmark: Any) -> None:
    """The slots' loop: the cost of each record beside its handler."""
    batch, owner, calls, slot = messages(RECORDS), partition(), caller(nothing), Slot()

    def run() -> Slice:
        slice_ = Slice(owner, batch, range(RECORDS), 0)
        call_each(slice_, calls, slot)
        return slice_

    assert benchmark(run).claimed() == RECORDS


def test_sort_the_results_of_a_slice_of_500_with_every_tenth_skipped(benchmark: Any) -> None:
    """The poll thread's work for a slice in which some records were skipped."""

    def skip_some(record: Record) -> None:
        if record.offset % 10 == 0:
            raise Skip

    slice_ = Slice(partition(), messages(RECORDS), range(RECORDS), 0)
    call_each(slice_, caller(skip_some), Slot())
    assert len(benchmark(slice_.results).skipped) == RECORDS // 10


def test_take_back_499_records_from_a_slice(benchmark: Any) -> None:
    """The cost of splitting a slice whose first record is slow."""
    batch, owner = messages(RECORDS), partition()

    def stuck() -> tuple[tuple[Slice], dict[str, Any]]:
        slice_ = Slice(owner, batch, range(RECORDS), 0)
        next(slice_.unclaimed)
        return (slice_,), {}

    _, unclaimed, _ = benchmark.pedantic(lambda slice_: slice_.split(), setup=stuck, rounds=500)
    assert len(unclaimed) == RECORDS - 1


def test_learn_the_length_of_a_slice(benchmark: Any) -> None:
    """The cost of each completed slice for the estimate of a call's duration."""
    length = SliceLength(0.005, 2_000)

    def learn() -> int:
        length.record(500, 0.0005)
        length.learn()
        return length.records

    assert benchmark(learn) == 2_000


def test_read_the_ids_of_500_records(benchmark: Any) -> None:
    """What ``record.id`` costs who reads it; who does not pays nothing, see the first test."""
    records = [Record.of(message, Call(1, None)) for message in messages(RECORDS)]
    assert len(set(benchmark(lambda: [record.id for record in records]))) == RECORDS
