"""Records of slices that are too short to be counted each by itself: gathered until it pays.

Their messages are kept meanwhile, and their values with them: so it is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import define, field

from window_consumer.model.audit_count import Tier
from window_consumer.model.record import Message

SHORT_RECORDS: Final = 32
"""A slice of fewer records is gathered."""

MOST_RECORDS: Final = 256
"""What is done once for so many costs each next to nothing, and takes half a millisecond in all."""

MOST_BYTES: Final = 256 << 10
"""Values that are kept alive, of each partition."""


@define(eq=False)
class Gathered:
    """Records of one partition that became the same. Owner: poll thread."""

    tier: Tier = Tier.FINISHED
    skew: bool = False
    """The clocks were known to differ when they were heard of."""
    messages: list[Message] = field(factory=list)
    _walls_ms: list[int] = field(factory=list)
    _bytes: int = 0

    def take(self, messages: Sequence[Message], wall_ms: float) -> bool:
        """Keep records that were heard of at ``wall_ms``; True where no more should be kept."""
        count = len(messages)
        self.messages += messages
        if count == 1:
            self._walls_ms.append(int(wall_ms))
            self._bytes += len(messages[0])
        else:
            self._walls_ms += [int(wall_ms)] * count
            self._bytes += sum(map(len, messages))
        return len(self.messages) >= MOST_RECORDS or self._bytes >= MOST_BYTES

    def all(self) -> tuple[list[Message], list[int]]:
        """Return them, with the times of the wall at which they were heard of, and forget them."""
        messages, walls_ms = self.messages, self._walls_ms
        self.messages, self._walls_ms, self._bytes = [], [], 0
        return messages, walls_ms
