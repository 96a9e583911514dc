"""Who hears of the records that a producer sends, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from window_consumer.model.errors import WindowConsumerError


class SendWatcher(Protocol):
    """Hears of each record that is sent. Any thread calls it; what it raises is ignored.

    It is called in produce() and in the delivery report of each record: some microseconds are
    much there.
    """

    def sent(
        self, topic: str, key: bytes | None, size: int, timestamp_ms: int, record_id: bytes
    ) -> Any:
        """Hear of a record that is about to be sent, ``size`` bytes long; return what tells it.

        ``timestamp_ms`` is the record's own, in milliseconds since 1970.
        """

    def acked(self, token: Any, partition: int, offset: int) -> None:
        """Hear that the broker has the record; ``token`` is what ``sent`` returned for it."""

    def failed(self, token: Any, error: BufferError | WindowConsumerError) -> None:
        """Hear that it was not acked.

        A BufferError, or one that is ``refused``, says that it was not written; another that
        nobody knows.
        """


class SendTrace(Protocol):
    """Hears of the headers as well; otherwise as a SendWatcher."""

    def began(
        self,
        topic: str,
        key: bytes | None,
        record_id: bytes,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> Any:
        """Hear of a record that is about to be sent; return what tells it."""

    def acked(self, token: Any, partition: int, offset: int) -> None:
        """As a SendWatcher's."""

    def failed(self, token: Any, error: BufferError | WindowConsumerError) -> None:
        """As a SendWatcher's."""


class OpenTrace(Protocol):
    """The trace of one producer, whose events are on their way until it is closed."""

    sends: SendTrace
    parent: Callable[[], str | None]
    """Gives the traceparent of what runs now."""

    @property
    def dropped(self) -> int:
        """How many events were lost so far."""

    def close(self) -> None:
        """Write the last events; a second time does nothing."""


class Traceable(Protocol):
    """The settings of a trace."""

    def open(self, properties: Mapping[str, Any]) -> OpenTrace:
        """Start a trace for a producer with these properties; raises UsageError."""
