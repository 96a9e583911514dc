"""One call for all records of a batch, and the outcomes from its result."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from window_consumer.engine.scheduling.slices import Work
from window_consumer.model.errors import NotInBatchError, PartialFailure, Skip, meant_by
from window_consumer.model.fault import Failure
from window_consumer.model.record import Message, Record
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.calls.result_guard import record_results
from window_consumer.runtime.context import Slot

__handler_layer__ = True  # its frames are no part of a failure, see runtime/stack.py

MOST_SPARES: Final = 10_000
"""The most record objects that a slot keeps: 0.7 MB."""

_ALONE: Final = sum(map(sys.getrefcount, [Record()]))
"""The reference count of a record that is in one list and nowhere else."""

_NO_MESSAGE: Any = None

Failed = tuple[Record, BaseException]
"""A record of a batch, and the reason of its failure."""


class HeldResults(BaseException):
    """The record was not called, because an earlier one of its lane failed."""


Answer = tuple[Sequence[Record], object]
"""Some records of a batch, and the return value of their handler."""


class SortedResults(PartialFailure):
    """Raised by the layers around handlers: every record that is not done, with its exception."""

    def __init__(
        self,
        failed: Iterable[Failed],
        handlers: Mapping[int, str] | None = None,
        answers: Sequence[Answer] = (),
    ):
        super().__init__(failed)
        self.handlers = handlers or {}
        """The handler that was called for a record, by the record's id."""
        self.answers = answers
        """The results of the handlers that were called for the other records."""


def call_batch(slice_: Work, caller: Caller, slot: Slot) -> None:
    """Call the handler once for all records of the slice, unless they were taken back."""
    records = claim_all(slice_, slot.spares)
    if not records:
        return
    slot.batch = records
    try:
        # The handler may change its list, so it gets a copy; failures are resolved with ours.
        record_answer(slice_, records, caller.handler(records.copy()))
    except BaseException as error:
        record_error(slice_, caller, records, error)
    else:
        _use_again(records, slot.spares)
    finally:
        slot.batch = ()


def claim_all(slice_: Work, spares: list[Record] | None = None) -> list[Record]:
    """Claim a batch: all of its records, or none if they were taken back.

    Reuses record objects from ``spares``.
    """
    messages = list(slice_.unclaimed)  # one call into C: it is claimed as a whole
    records: list[Record] = []
    if spares:
        records = spares[: len(messages)]
        del spares[: len(messages)]
    records += [Record() for _ in range(len(messages) - len(records))]
    call = slice_.call
    for record, message in zip(records, messages, strict=True):
        record._message = message
        record._call = call
    return records


def _use_again(records: list[Record], spares: list[Record]) -> None:
    """Keep record objects for the next batch, unless the handler kept one of them or their list.

    Creating and freeing a record costs more than everything else done for it in a batch: 111 ns,
    against 56 when reused, including the copy of the list and the reference counts.
    """
    if len(spares) + len(records) > MOST_SPARES:
        return
    if sum(map(sys.getrefcount, records)) == _ALONE * len(records):
        for record in records:
            record._message = _NO_MESSAGE  # free the message now, not with the next batch
        spares += records


def record_answer(slice_: Work, records: list[Record], returned: object) -> None:
    """Record the results that the handler returned, if any."""
    if returned is not None:
        messages = [record._message for record in records]
        record_results(slice_, messages, returned)


def failed_of(error: BaseException, records: Sequence[Record]) -> list[Failed]:
    """Return the records that failed with this exception of their handler, each with its reason.

    They are in the order of the batch.
    """
    error = meant_by(error)
    if not isinstance(error, PartialFailure):
        return [(record, error) for record in records]
    common = error if error.__cause__ is None else error.__cause__
    reasons: dict[int, BaseException] = {}
    there = {id(record) for record in records}
    for named in error.failed:
        record, reason = named if _is_pair(named) else (named, common)
        if id(record) not in there:
            stranger = _not_in_batch(record, records)
            stranger.__cause__ = error
            return [(each, stranger) for each in records]
        reasons[id(record)] = reason
    return [(record, reasons[id(record)]) for record in records if id(record) in reasons]


def answers_of(records: Sequence[Record], returned: object) -> list[Answer]:
    """Return a handler's result for these records; nothing for None."""
    return [] if returned is None else [(records, returned)]


def _is_pair(named: object) -> bool:
    return isinstance(named, tuple) and len(named) == 2 and isinstance(named[1], BaseException)


def _not_in_batch(named: object, records: Sequence[Record]) -> NotInBatchError:
    first, last = records[0], records[-1]
    return NotInBatchError(
        f"PartialFailure names {named!r:.200}, which is not one of the batch's {len(records)}"
        f" records, {first.topic}[{first.partition}]@{first.offset} to {last.offset}: all of them"
        " count as failed. Name objects of the list that the handler got, or pairs of one and its"
        " exception"
    )


def record_error(slice_: Work, caller: Caller, records: list[Record], error: BaseException) -> None:
    """Record the outcomes of records whose handler did not simply return."""
    handlers: Mapping[int, str] = {}
    if isinstance(error, SortedResults):
        handlers = error.handlers
        error = _with_answers(slice_, error)
    described: dict[tuple[int, str], Failure] = {}
    noted = slice_.deviate()
    failed = failed_of(error, records)
    named: dict[int, list[Message]] = {}
    for record, reason in failed:
        named.setdefault(id(reason), []).append(record._message)
    for record, reason in failed:
        message = record._message
        if isinstance(reason, HeldResults):
            noted.held.append(message)
        elif isinstance(reason, Skip):
            noted.skip(message, reason)
        else:
            handler = handlers.get(id(record), slice_.call.handler)
            failure = described.get((id(reason), handler))
            if failure is None:
                failure = caller.describe(reason, handler, named[id(reason)])
                described[id(reason), handler] = failure
            noted.failed.append((message, failure))


def _with_answers(slice_: Work, error: SortedResults) -> SortedResults:
    """Record the handlers' results; an invalid result fails its records."""
    failed: list[Failed] = list(error.failed)
    handlers = dict(error.handlers)
    for records, returned in error.answers:
        previous = slice_.call.handler
        slice_.call.handler = handlers.get(id(records[0]), previous)
        try:
            messages = [record._message for record in records]
            record_results(slice_, messages, returned)
        except TypeError as wrong:
            failed += [(record, wrong) for record in records]
        finally:
            slice_.call.handler = previous
    return SortedResults(failed, handlers)
