"""A producer whose client is replaced after a fatal error or a lost connection.

A fatal error ends a client: if the cluster gives an idempotent producer no id, perhaps because a
permission is missing, all its messages fail and ``poll`` raises. They fail with that reason, and
the next message creates a new client. ``watchdogs.client`` detects lost connections.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from window_consumer.kafka import errors
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.watchdogs.client import ClientWatchdog, MakeClientWatchdog
from window_consumer.model.log_events import LogEvent

_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 10.0
"""The longest pause before a new client. It doubles while clients fail one after another."""


class ReconnectingProducer:
    """Sends through the current client.

    One thread calls ``produce``; one thread, which may be another, calls everything else.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        log: ClientLog,
        on_error: Callable[[KafkaError], None],
        make_watchdog: MakeClientWatchdog = ClientWatchdog,
    ):
        """Create the client; raise KafkaException if that fails."""
        self._log = log
        self._on_error = on_error
        self._settings = {**settings, "error_cb": self._on_client_error}
        self._make_watchdog = make_watchdog
        self._watchdog = make_watchdog(settings, notices_silence=True)
        self._producer: Producer | None = Producer(self._settings, logger=log)
        self._given_up: list[Producer] = []
        self._fatal: KafkaError | None = None
        """The fatal error of the last client; None once a later one has sent something."""
        self._pause_s = 0.0
        self._again_at = 0.0
        """While there is no client: the earliest time for a new one."""

    def _on_client_error(self, error: KafkaError) -> None:
        self._watchdog.record_error(error)
        self._on_error(error)

    def produce(self, topic: str, **message: Any) -> None:
        """Send a message like confluent-kafka's producer.

        Raises the fatal error while it is too early for a new client.
        """
        self.client().produce(topic, **message)

    def client(self) -> Producer:
        """Return the client that sends now, for some messages in a row; raises as ``produce``."""
        producer = self._producer
        if producer is None:
            if self._fatal is not None and time.monotonic() < self._again_at:
                raise KafkaException(self._fatal)
            producer = self._producer = Producer(self._settings, logger=self._log)
        return producer

    def on_acked(self) -> None:
        """Record that a message was acked."""
        self._fatal, self._pause_s = None, 0.0

    def on_failed(self, error: KafkaError) -> KafkaError:
        """Record why a message failed; return the underlying error."""
        if errors.is_expiry(error):
            # The message may have expired because the cluster does not answer.
            self._watchdog.suspect()
        fatal = self._fatal
        return error if fatal is None or not errors.is_purged(error) else fatal

    def poll(self, timeout_s: float) -> None:
        """Wait for answers and deliver them; messages of replaced clients fail."""
        producer = self._producer
        if producer is None:
            time.sleep(timeout_s)
        elif self._serve(producer, producer.poll, timeout_s) or not len(producer):
            self._watchdog.on_contact()
        self._purge()
        producer = self._producer
        if producer is not None and self._watchdog.is_lost(producer):
            self._log.log(
                logging.WARNING,
                "the cluster answers, but not to this producer, which is replaced",
                event=LogEvent.PRODUCER_REPLACED,
            )
            self._watchdog = self._make_watchdog(self._settings, notices_silence=True)
            self._given_up.append(producer)
            self._producer = Producer(self._settings, logger=self._log)

    def _purge(self) -> None:
        """Fail the messages of replaced clients."""
        for lost in list(self._given_up):
            # Repeatedly: the sending thread may have held this client when it was replaced.
            lost.purge()
            self._serve(lost, lost.poll, 0)
            if not len(lost):
                self._given_up.remove(lost)

    def _serve(self, producer: Producer, serve: Callable[[float], int], timeout_s: float) -> int:
        """Deliver a client's answers; replace it after a fatal error."""
        try:
            return serve(timeout_s)
        except KafkaException as exception:
            error = errors.cause_of(exception)
            if error is None or not errors.is_fatal(error):
                raise
            if producer is self._producer:
                self._replace(producer, error)
            return 0

    def _replace(self, producer: Producer, error: KafkaError) -> None:
        self._pause_s = min(max(2 * self._pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
        self._again_at = time.monotonic() + self._pause_s
        self._fatal = error
        self._given_up.append(producer)
        self._producer = None
        self._log.log(
            logging.ERROR,
            "the producer has given up: %s; its messages were not written and are sent again by a"
            " new producer",
            errors.text_of(error),
            event=LogEvent.PRODUCER_FAILED,
        )

    def wait(self, timeout_s: float) -> int:
        """Wait for the missing answers; return how many are still missing at the end."""
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0 and self._missing():
            producer = self._producer
            if producer is not None:
                self._serve(producer, producer.flush, min(left, _CHECK_S))
            self._purge()
        return self._missing()

    def _missing(self) -> int:
        here = 0 if self._producer is None else len(self._producer)
        return here + sum(map(len, self._given_up))


_CHECK_S: Final = 0.1
