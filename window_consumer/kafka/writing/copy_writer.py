"""Writes copies and reports the result of each once; the sender decides what to do next.

Its client is replaced after a fatal error or a lost connection. If the cluster gives an idempotent
producer no id, perhaps because a permission is missing, all its records fail and only a new client
can send: they fail with that reason, and the next copy creates a client, after a pause.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message

from window_consumer.kafka import errors
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.watchdogs.client import ClientWatchdog, MakeClientWatchdog
from window_consumer.kafka.writing.client import SendingClient
from window_consumer.kafka.writing.client_state import REPORTING, ClientState
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Copy, Delivery

_PARTITION_BY_KEY: Final = -1
_FULL: Final = "the producer's queue is full"
_CHECK_S: Final = 0.1


class CopyWriter:
    """Sends through the current client; the first is created for the first copy, or by ``open``.

    One thread calls ``write``; one thread, possibly another, calls everything else. Only ``serve``
    and ``close`` wait for the brokers; librdkafka's queue is the limit.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        log: ClientLog,
        name: str = "producer",
        make_watchdog: MakeClientWatchdog = ClientWatchdog,
    ):
        """``name`` is its name in log lines."""
        self._settings = settings
        self._log = log
        self._name = name
        self._make_watchdog = make_watchdog
        self._watchdog = make_watchdog(settings, notices_silence=True)
        self._state = ClientState[KafkaError](REPORTING)
        self._client: SendingClient | None = None
        self._has_client = threading.Event()
        self._replaced: list[SendingClient] = []
        """Clients whose records have not all failed yet."""

    # ---- the thread that writes

    def open(self) -> SendingClient:
        """Create a client; raises KafkaException for settings that librdkafka refuses.

        Raises the last client's fatal error while it is too early for a new one.
        """
        failure = self._state.failure
        if failure is not None and not self._state.may_make(time.monotonic()):
            raise KafkaException(failure)
        if self._has_client.is_set():
            self._watchdog = self._make_watchdog(self._settings, notices_silence=True)
        client = SendingClient(self._settings, self._log, self._on_client_error)
        self._state.on_made()
        self._client = client
        self._has_client.set()
        return client

    def write(self, copy: Copy, on_delivery: Delivery) -> None:
        """Send a copy; ``on_delivery`` is called once, with None for an ack, here or in ``serve``.

        An ack means that the brokers have it, as ``acks`` requires.
        """
        topic, partition, key, value, headers, timestamp = copy

        def report(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                if self._state.failure is not None:
                    self._state.on_worked()
                on_delivery(None)
            else:
                on_delivery(errors.publish_failure(self._cause_of(error), topic))

        try:
            client = self._client or self.open()
            client.produce(
                topic,
                value,
                key,
                _PARTITION_BY_KEY if partition is None else partition,
                report,
                None,
                timestamp or 0,  # 0 is the time of sending
                headers if isinstance(headers, list) else list(headers),
            )
        except BufferError:
            on_delivery(PublishFailedError(f"copy to {topic}: {_FULL}", why=_FULL))
        except KafkaException as exception:
            error = errors.cause_of(exception)
            on_delivery(
                PublishFailedError(f"copy to {topic}: {exception}")
                if error is None
                else errors.publish_failure(error, topic)
            )
        else:
            if client is not self._client:
                self._replaced.append(client)  # it was replaced meanwhile

    # ---- the thread that serves

    def _cause_of(self, error: KafkaError) -> KafkaError:
        """Return why a copy failed; a purged copy failed because its client did."""
        if errors.is_expiry(error):
            # It may have expired because the cluster does not answer.
            self._watchdog.suspect()
        failure = self._state.failure
        return error if failure is None or not errors.is_purged(error) else failure

    def _on_client_error(self, error: KafkaError) -> None:
        self._watchdog.record_error(error)
        self._log.info(LogEvent.PRODUCER_WARNED, "%s: %s", self._name, errors.text_of(error))

    def serve(self, timeout_s: float) -> None:
        """Wait up to ``timeout_s`` for answers and deliver them; replaced clients' copies fail."""
        if not self._has_client.wait(timeout_s):
            return
        client = self._client
        if client is None:
            time.sleep(timeout_s)
        else:
            if client.serve(timeout_s) or not len(client):
                self._watchdog.on_contact()
            self._check(client)
        self._fail_replaced()

    def _check(self, client: SendingClient) -> None:
        """Replace a client that can no longer send."""
        now = time.monotonic()
        if client.fatal is not None:
            self._state.on_failed(client.fatal, now)
            self._log.log(
                logging.ERROR,
                "the producer has given up: %s; its messages were not written and are sent again"
                " by a new producer",
                errors.text_of(client.fatal),
                event=LogEvent.PRODUCER_FAILED,
            )
        elif self._watchdog.is_lost(client):
            self._state.on_lost(now)
            self._log.log(
                logging.WARNING,
                "the cluster answers, but not this producer, which is replaced",
                event=LogEvent.PRODUCER_REPLACED,
            )
        else:
            return
        self._client = None
        self._replaced.append(client)

    def _fail_replaced(self) -> None:
        for client in list(self._replaced):
            client.give_up(in_flight=True)
            client.serve(0)
            if not len(client):
                self._replaced.remove(client)

    def close(self, timeout_s: float) -> int:
        """Wait for missing answers; return how many are still missing."""
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0 and self._missing():
            client = self._client
            if client is not None:
                client.hurry(min(left_s, _CHECK_S))
                self._check(client)
            self._fail_replaced()
        return self._missing()

    def _missing(self) -> int:
        here = 0 if self._client is None else len(self._client)
        return here + sum(map(len, self._replaced))
