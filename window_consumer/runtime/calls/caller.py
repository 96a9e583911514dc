"""What every slot calls, whatever it is: the handler, and what puts its errors into words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import field, frozen

from window_consumer.engine.scheduling.slices import Work
from window_consumer.model.errors import Skip, meant_by
from window_consumer.model.fault import Failure
from window_consumer.model.record import Message, Record
from window_consumer.runtime.context import RecordOwner
from window_consumer.runtime.error_report import ErrorReports, Lines, Where

Handler = Callable[[Record], object]


@frozen
class Caller:
    """What a slot calls: the handler, middleware included, and who puts its errors into words."""

    handler: Any
    """A ``Handler``; a ``BatchHandler`` where slices are batches."""
    describe: Callable[[BaseException, str, Sequence[Message]], Failure]
    """Takes the name of the handler, too, empty where there is only one, and the call's records."""
    describe_stall: Callable[[Where | Lines, float, str, str], Failure] = field(
        factory=lambda: ErrorReports().stalled
    )
    """Takes where a call stands that has not returned for so many seconds, its handler, and what
    else is to be said of it."""
    whose: RecordOwner | None = None
    """What log lines say that are written within its calls."""


def record_raised(slice_: Work, message: Message, error: BaseException, caller: Caller) -> bool:
    """Tell the slice; return whether the record is unfinished, so that its lane has to wait."""
    meant = meant_by(error)
    if isinstance(meant, Skip):
        slice_.deviate().skip(message, meant)
        return False
    failure = caller.describe(error, slice_.call.handler, (message,))
    slice_.deviate().failed.append((message, failure))
    return True
