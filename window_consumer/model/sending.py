"""Interfaces for watching the records that a producer sends, and their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from window_consumer.model.errors import WindowConsumerError


class SendWatcher(Protocol):
    """Receives each record that is sent. Called from any thread; exceptions are ignored.

    It is called in produce() and in each record's delivery report, where a few microseconds are
    noticeable.
    """

    def sent(
        self, topic: str, key: bytes | None, size: int, timestamp_ms: int, record_id: bytes
    ) -> Any:
        """Called for a record about to be sent, of ``size`` bytes; return a token for it.

        ``timestamp_ms`` is the record's own, in milliseconds since 1970.
        """

    def acked(self, token: Any, partition: int, offset: int) -> None:
        """Called when the broker has the record; ``token`` is the result of ``sent``."""

    def failed(self, token: Any, error: BufferError | WindowConsumerError) -> None:
        """Called when the record was not acked.

        A BufferError, or an error that is ``refused``, means that it was not written; after any
        other error that is unknown.
        """


class SendTrace(Protocol):
    """Like a SendWatcher, but also receives the headers."""

    def began(
        self,
        topic: str,
        key: bytes | None,
        record_id: bytes,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> Any:
        """Called for a record about to be sent; return a token for it."""

    def acked(self, token: Any, partition: int, offset: int) -> None:
        """As in SendWatcher."""

    def failed(self, token: Any, error: BufferError | WindowConsumerError) -> None:
        """As in SendWatcher."""


class OpenTrace(Protocol):
    """The trace of one producer; ``close`` writes its last events."""

    sends: SendTrace
    parent: Callable[[], str | None]
    """Returns the traceparent of the running code."""

    @property
    def dropped(self) -> int:
        """How many events were lost so far."""

    def close(self) -> None:
        """Write the last events; a second time does nothing."""


class Traceable(Protocol):
    """The settings of a trace."""

    def open(self, properties: Mapping[str, Any]) -> OpenTrace:
        """Start a trace for a producer with these properties; raises UsageError."""
