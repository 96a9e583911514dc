"""Where what a handler raised for one record becomes what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from window_consumer.core.slices import Work
from window_consumer.model.errors import Skip
from window_consumer.model.groups import meant_by
from window_consumer.model.record import Message

if TYPE_CHECKING:
    from window_consumer.runtime.thread_pool import Caller


def note_raised(slice_: Work, message: Message, error: BaseException, caller: Caller) -> bool:
    """Tell the slice; return whether the record is unfinished, so that its lane has to wait."""
    meant = meant_by(error)
    if isinstance(meant, Skip):
        slice_.deviate().skip(message, meant)
        return False
    failure = caller.describe(error, slice_.call.handler, (message,))
    slice_.deviate().failed.append((message, failure))
    return True
