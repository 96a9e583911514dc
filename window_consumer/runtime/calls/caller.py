"""The handler as every kind of slot calls it, with the description of its errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import field, frozen

from window_consumer.engine.scheduling.slices import Work
from window_consumer.model.errors import Skip, meant_by
from window_consumer.model.fault import Failure
from window_consumer.model.record import Message
from window_consumer.runtime.calls.steps import Called
from window_consumer.runtime.context import RecordOwner
from window_consumer.runtime.error_report import ErrorReports
from window_consumer.runtime.stack import Lines, Where


@frozen
class Caller:
    """The handler within its layers, and the functions that describe its errors."""

    handler: Called
    """It gets lists of records if slices are batches."""
    describe: Callable[[BaseException, str, Sequence[Message]], Failure]
    """Also gets the handler's name, empty if there is only one, and the records of the call."""
    describe_stall: Callable[[Where | Lines, float, str, str], Failure] = field(
        factory=lambda: ErrorReports().stalled
    )
    """Gets the position of a call that does not return, its duration in seconds, its handler's
    name, and a note to append."""
    whose: RecordOwner | None = None
    """The worker and handler for log lines written within a call."""


def record_raised(slice_: Work, message: Message, error: BaseException, caller: Caller) -> bool:
    """Record the outcome; return whether the record is unfinished, so that its lane must wait."""
    meant = meant_by(error)
    if isinstance(meant, Skip):
        slice_.deviate().skip(message, meant)
        return False
    failure = caller.describe(error, slice_.call.handler, (message,))
    slice_.deviate().failed.append((message, failure))
    return True
