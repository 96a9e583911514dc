"""Records whose headers cannot be read: each leaves at its turn without a call of a handler.

So its lane waits for it as for any other permanently failed record, whatever the ordering, pool or
ladder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from attrs import frozen

from window_consumer.engine.retry.policy import WhenSpent
from window_consumer.engine.turn import Leave, Turn, TurnRule
from window_consumer.model.errors import UnreadableHeaders
from window_consumer.model.fault import Failure, Fault
from window_consumer.model.headers import LostHeaders
from window_consumer.model.record import Message

if TYPE_CHECKING:
    from window_consumer.engine.partition import Partition

_WHAT = "has a header whose name is not UTF-8, so none of its headers can be read"


@frozen
class UnreadableRule(TurnRule):
    """Lets unreadable records leave. Owner: poll thread."""

    end: WhenSpent
    """The end of the ladder for unreadable records."""

    def turns(
        self, partition: Partition, messages: Sequence[Message], now: float, wall_ms: float
    ) -> Mapping[int, Turn]:
        """See TurnRule."""
        del now, wall_ms
        if not partition.unreadable:
            return {}
        return {
            index: Leave(_failure(UnreadableHeaders(_WHAT, self.end)))
            for index, message in enumerate(messages)
            if type(message.headers()) is LostHeaders
        }


def _failure(error: UnreadableHeaders) -> Failure:
    """Return the failure of an unreadable record; it has no stack."""
    kind = type(error)
    name = f"{kind.__module__}.{kind.__qualname__}"
    fingerprint = blake2b(name.encode(), digest_size=8).hexdigest()
    return Failure(error, Fault(name, str(error), "", fingerprint))
