"""The client of topics with refused records, driven by the rules of RefusedTopics."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final

from window_consumer.kafka import errors
from window_consumer.kafka.writing.client import SendingClient
from window_consumer.kafka.writing.client_state import DRAIN_S
from window_consumer.kafka.writing.unacked_records import UnackedRecords
from window_consumer.producer.clients import ProducerClients
from window_consumer.producer.future import SendFuture

_SERVE_S: Final = 0.05


class SeparateClient:
    """Sends ready records. Owner: the thread that serves delivery reports; any may ``send``."""

    def __init__(
        self,
        records: UnackedRecords[SendFuture],
        lock: AbstractContextManager[object],
        clients: ProducerClients,
        report_ends: Callable[[], None],
    ):
        """``lock`` is reentrant; it guards ``records``.

        ``report_ends`` reports what has ended; it is called without the lock.
        """
        self._records = records
        self._lock = lock
        self._clients = clients
        self._report_ends = report_ends
        self._client: SendingClient | None = None
        self._watchdog = clients.new_watchdog()
        self._limits: dict[str, int | None] = {}

    def send(self) -> None:
        """Pass on ready records; the rest waits for ``serve``. The caller holds the lock."""
        ready, client = self._records.refused.ready, self._client
        while ready and client is not None:
            future = ready.popleft()
            try:
                future.produce_with(client, partial(self._on_answer, future))
            except BufferError:
                ready.appendleft(future)
                return
            except Exception as exception:
                error = errors.cause_of(exception)
                if error is None:
                    raise
                if errors.is_fatal(error):
                    ready.appendleft(future)
                    return  # ``serve`` replaces the client
                self._fail(future, error, None)

    def _fail(self, future: SendFuture, error: Any, message: Any) -> None:
        failure = errors.send_failure(error, message)
        self._records.on_separate_failed(future, failure, time.monotonic())

    def _on_answer(self, future: SendFuture, error: Any, message: Any) -> None:
        """Take the client's delivery report. Runs within the client, so it must not raise."""
        with self._lock:
            if error is None:
                self._records.on_separate_ack(future)
            else:
                self._fail(future, error, message)
            self.send()
        if error is None:
            future(None, message)
        self._report_ends()

    def serve(self) -> None:
        """Serve delivery reports; replace the client after a fatal error."""
        client = self._client
        if client is not None:
            if client.serve(0) or not len(client):
                self._watchdog.on_contact()
            if client.fatal is not None or self._watchdog.is_lost(client):
                self.empty()
        with self._lock:
            if self._records.refused.ready and self._client is None:
                self._client = self._clients.separate()
                self._watchdog = self._clients.new_watchdog()
            self.send()
        self._end_large()

    def _end_large(self) -> None:
        """Query each topic's limit once: it takes a request."""
        topics = self._records.large_topics()
        for topic in topics - self._limits.keys():
            self._limits[topic] = self._clients.limit_of(topic)
        with self._lock:
            self._records.end_large(self._limits)
        self._report_ends()

    def return_calm_topics(self) -> bool:
        """Return calm topics to the shared client; return whether they have unsent records.

        The caller holds the lock.
        """
        found = self._records.return_calm_topics(time.monotonic())
        if not self._records.refused:
            self._client = None
            self._limits.clear()
        return found

    def give_up(self) -> None:
        """Take all records back now; those without a delivery report come with later calls."""
        if self._client is not None:
            self._client.give_up(in_flight=True)
            self._client.serve(_SERVE_S)

    def empty(self) -> None:
        """End the client; its in-flight records get a moment unless the producer is closing."""
        with self._lock:
            client, self._client = self._client, None
        until = time.monotonic() + DRAIN_S
        while client is not None and len(client):
            client.give_up(in_flight=self._records.is_closing or time.monotonic() >= until)
            client.serve(_SERVE_S)

    def after_fork(self) -> None:
        """Never touch the client in a process that has none of its threads."""
        if self._client is not None:
            self._client.keep_for_ever()
