"""What a call returned: whether it wants something produced. Every kind of pool asks this."""

from __future__ import annotations

from collections.abc import Sequence

from window_consumer.core.slices import Returned, Work
from window_consumer.model.produce import results_of
from window_consumer.model.record import Message


def note_results(slice_: Work, messages: Sequence[Message], returned: object) -> bool:
    """Note what a call returned to be produced, and tell whether there is anything.

    ``messages`` are what it was called for: one record, or a batch. Where it is True, further
    records of their lanes have to be held, as behind one that failed. To be called only where a
    handler has returned something, before the slot claims its next record. Raises TypeError, which
    counts as the handler's, for what cannot be meant.
    """
    results = results_of(returned)
    if results:
        call = Returned(messages, results, slice_.call.handler)
        slice_.deviate().returned.append(call)
    return bool(results)
