"""The clients of a producer: their creation, their reports, and their stand-in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from window_consumer.kafka import errors
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.watchdogs.client import ClientWatchdog
from window_consumer.kafka.watchdogs.login import LoginWatchdog
from window_consumer.kafka.writing.client import SendingClient, new_client, size_limit
from window_consumer.kafka.writing.refused_topics import OF_REFUSED
from window_consumer.kafka.writing.unacked_records import UnackedRecords
from window_consumer.model.log_events import LogEvent
from window_consumer.producer.future import SendFuture
from window_consumer.producer.settings import buffer_properties


class StandIn:
    """Takes the place of a client and refuses records."""

    def __init__(self, error: Exception):
        self._error = error

    def produce(self, *_: Any) -> None:
        """Raise the reason."""
        raise self._error

    def __len__(self) -> int:
        return 0


class ReplacingError(Exception):
    """The client is being replaced."""


REPLACING: Final = StandIn(ReplacingError())


class ProducerClients:
    """Creates clients. Owner: the thread that serves delivery reports."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        log: ClientLog,
        records: UnackedRecords[SendFuture],
        next_number: Callable[[], tuple[int, tuple[str, str]]],
    ):
        """``next_number`` returns the number that the next record would get."""
        self._properties = dict(properties)
        self._log = log
        self._records = records
        self._next_number = next_number
        self.watchdog = self.new_watchdog()
        """Of the shared client."""
        self.login = LoginWatchdog(self._properties)

    def shared(self) -> SendingClient:
        """Create a client for all topics, with the current sizes; raises UsageError."""
        self.watchdog = self.new_watchdog()
        return self._new(self._records.limits.properties)

    def separate(self) -> SendingClient:
        """Create a client for topics whose records were refused."""
        return self._new(OF_REFUSED)

    def _new(self, own: Mapping[str, Any]) -> SendingClient:
        sizes = buffer_properties(self._records.memory.memory)
        return new_client({**self._properties, **sizes, **own}, self._log, self._on_error)

    def new_watchdog(self) -> ClientWatchdog:
        """Return a watchdog for a new client."""
        return ClientWatchdog(self._properties, notices_silence=True)

    def limit_of(self, topic: str) -> int | None:
        """Query a topic's ``max.message.bytes``; None if the brokers do not report it."""
        return size_limit(self._properties, topic)

    def _on_error(self, error: Any) -> None:
        self.watchdog.record_error(error)
        self.login.record_error(error)
        if errors.is_absence(error):
            number, _ = self._next_number()
            self._records.on_disconnected(number)
        self._log.info(LogEvent.PRODUCER_WARNED, "producer: %s", errors.text_of(error))
