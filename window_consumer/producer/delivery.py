"""Keeps sending until the brokers have a record, even if the client fails and is replaced.

librdkafka's queue is the buffer. Each record in it gets one delivery report, success or error,
which carries its future. After an error, ``UnackedRecords`` decides about the record and
``ClientState`` about the client; this module and ``client_thread`` carry out their decisions. While
a client is replaced, ``client`` is a stand-in that refuses records, so senders wait.

``lock`` guards the rules; it is taken by the thread that serves delivery reports, and never for
the report of a record that was written.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from window_consumer.kafka import errors
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.writing.batch_limits import batch_bytes
from window_consumer.kafka.writing.client import SendingClient
from window_consumer.kafka.writing.client_state import KEEPING, ClientPhase, ClientState, Emptying
from window_consumer.kafka.writing.unacked_records import KeepingRules, UnackedRecords
from window_consumer.producer.clients import REPLACING, ProducerClients, ReplacingError, StandIn
from window_consumer.producer.delivery_reports import DeliveryReports
from window_consumer.producer.errors import BufferFullError, closed_error, wrong_process_error
from window_consumer.producer.future import DetailedSendFuture, SendFuture
from window_consumer.producer.separate_client import SeparateClient

IDLE_S: Final = 0.1
PAUSE_S: Final = 0.005
_DISCONNECT_S: Final = 0.2
"""The client reports a lost connection within this time."""


class Delivery:
    """Sends the records of one Producer. Any thread may call ``submit``."""

    def __init__(  # noqa: PLR0913 - options of a producer
        self,
        properties: Mapping[str, Any],
        log: ClientLog,
        *,
        memory: int,
        max_block_s: float,
        missing_topic_s: float,
        resends: bool,
        careful: bool,
    ):
        """``resends`` is False with transactions, which are retried as a whole."""
        self.log = log
        self.max_block_s = max_block_s
        self.careful = self._always_careful = careful
        """Whether each record takes the careful path: others may have to be sent before it."""
        self.lock = threading.RLock()
        self.records = UnackedRecords[SendFuture](
            KeepingRules(
                memory=memory,
                missing_topic_s=missing_topic_s,
                largest_record=int(properties["message.max.bytes"]),
                batch_bytes=batch_bytes(properties),
                resends=resends,
            )
        )
        self.reports = DeliveryReports(self.records, self.lock, log, self.be_careful)
        self.spares, self.next_number = self.reports.spares, self.reports.next_number
        self.state = ClientState[str](KEEPING)
        self.clients = ProducerClients(properties, log, self.records, self.next_number)
        report_ends = self.reports.report_ends
        self.separate = SeparateClient(self.records, self.lock, self.clients, report_ends)
        self.replaced: SendingClient | None = None
        """The client being replaced, until it is empty."""
        self._pid = os.getpid()
        self.client: Any = self.clients.shared()
        self.state.on_made()

    # ---- any thread

    def submit(self, future: SendFuture) -> None:
        """Hand a record to the client once there is a client with room for it.

        Raises BufferFullError after ``max_block``, ProducerClosedError and WrongProcessError. Any
        other error goes to the future.
        """
        deadline = time.monotonic() + self.max_block_s
        while True:
            client = self.client
            try:
                with self.lock:
                    if self.records.accept(future, len(client), time.monotonic()):
                        self.produce(client, future)
                    else:
                        self.separate.send()
            except BufferError:
                self._wait_for_room(future, deadline)
            except ReplacingError:
                self._wait_for_client(future, deadline)
            else:
                self.reports.report_ends()
                if self.client is not client:
                    self.settle(client)
                return

    def produce(self, client: Any, future: SendFuture) -> None:
        """Hand a record to a client; raises BufferError and ReplacingError. Needs the lock."""
        if isinstance(future, DetailedSendFuture):
            future.queued_bytes = self.records.memory.enter(future)
        try:
            future.produce_with(client, future)
        except Exception as exception:
            self.reports.on_left(future)
            error = errors.cause_of(exception)
            if error is None:
                raise
            if errors.is_fatal(error):
                self.request_replacement(client, errors.text_of(error))
                raise ReplacingError from None
            self.reports.fail(future, error, None)

    def settle(self, client: Any) -> None:
        """Send again a record that was given to a client while it was being replaced."""
        if not isinstance(client, SendingClient):
            return
        while self.client is REPLACING:
            time.sleep(PAUSE_S)
        with self.reports.serve_alone():
            self.empty(client)
            if isinstance(self.client, SendingClient):
                self.send_waiting(self.client)
            else:
                self._end_all()

    def take_turn(self) -> None:
        """Serve delivery reports on a thread that sends a lot."""
        if self.reports.is_due():
            self.serve(0)

    def serve(self, timeout_s: float) -> None:
        """Serve delivery reports."""
        with self.reports.serve_alone():
            client = self.client
            if not isinstance(client, SendingClient):
                return
            if client.serve(self._wait_limit_s(timeout_s)) or not len(client):
                self.clients.watchdog.on_contact()
            self._after_serving(client)

    def _after_serving(self, client: SendingClient) -> None:
        if client.fatal is not None:
            self.request_replacement(client, errors.text_of(client.fatal))
        if self.records.refused:
            self.separate.serve()
            with self.lock:
                if self.separate.return_calm_topics():
                    self.send_waiting(client)

    def _wait_limit_s(self, longest_s: float) -> float:
        """Return how long to wait for one client: the other may have delivery reports, too."""
        return min(longest_s, PAUSE_S) if len(self.records.refused) else longest_s

    @property
    def memory(self) -> int:
        """The limit of the buffer, in bytes."""
        return self.records.memory.memory

    def open_records(self) -> int:
        """Return how many records are outstanding; the client's log lines count as well."""
        return len(self.client) + len(self.records)

    def flush(self, timeout_s: float) -> int:
        """Wait until all records are delivered or failed; return how many are outstanding."""
        deadline = time.monotonic() + timeout_s
        while self.open_records() or self.client is REPLACING:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            with self.reports.serve_alone():
                client = self.client
                if isinstance(client, SendingClient):
                    client.hurry(self._wait_limit_s(min(left_s, IDLE_S)))
                    self._after_serving(client)
            time.sleep(min(left_s, PAUSE_S) if self.open_records() else 0)
        return self._unanswered() if self.open_records() else 0

    def _unanswered(self) -> int:
        """Return how many records are outstanding, without the client's log lines and errors."""
        with self.reports.serve_alone():
            client = self.client
            count = client.unanswered() if isinstance(client, SendingClient) else len(client)
        return count + len(self.records)

    def set_memory(self, memory: int) -> None:
        """Change the limit of the buffer; return when the new limit holds.

        Buffered records have a few seconds to be sent; the rest moves to the new client.
        """
        self.reports.check_may_wait()
        self.records.memory.memory = memory
        self.request_replacement(self.client, None)
        while self.state.phase not in (ClientPhase.OPEN, ClientPhase.CLOSED):
            time.sleep(PAUSE_S)

    def _wait_for_room(self, future: SendFuture, deadline: float) -> None:
        is_serving = self.reports.is_serving
        if time.monotonic() >= deadline or is_serving:
            why = (
                "a callback cannot wait for room"
                if is_serving
                else "the brokers accept records too slowly"
            )
            if future.topic in self.records.missing:
                why = "the topic is missing"
            raise BufferFullError(
                f"{future.topic}: the producer's buffer of {self.memory} bytes is full: {why};"
                " send less, or give it more memory="
            )
        self.serve(min(0.05, max(0.0, deadline - time.monotonic())))

    def _wait_for_client(self, future: SendFuture, deadline: float) -> None:
        if self.reports.is_serving:
            with self.lock:
                self.records.wait(future)  # the new client sends it with all waiting records
            return
        if time.monotonic() >= deadline:
            raise BufferFullError(f"{future.topic}: the client is being replaced; retry later")
        time.sleep(PAUSE_S)

    # ---- replacing the client

    def request_replacement(self, client: Any, why: str | None) -> None:
        """Let the background thread replace this client; ``why`` is its fatal error."""
        now = time.monotonic()
        with self.lock:
            if client is not self.client:
                return
            if why is None:
                self.state.on_lost(now)
            else:
                self.state.on_failed(why, now)

    def empty(self, client: SendingClient) -> None:
        """Take all records back from a client. The caller serves alone."""
        began = time.monotonic()
        while len(client):
            elapsed_s = time.monotonic() - began
            way = self.state.emptying(elapsed_s, is_failed=client.fatal is not None)
            if way is Emptying.WAIT:
                client.hurry(IDLE_S)
            else:
                client.give_up(in_flight=way is Emptying.PURGE_ALL)
                client.serve(PAUSE_S)

    def send_waiting(self, client: SendingClient) -> None:
        """Send the records that come first, in order. The caller serves alone."""
        while True:
            with self.lock:
                waiting = deque(self.records.take())
            if not waiting:
                return
            while waiting:
                try:
                    with self.lock:
                        if waiting[0].topic in self.records.refused:
                            self.records.refused.send(waiting[0])
                            self.separate.send()
                        else:
                            self.produce(client, waiting[0])
                except BufferError:
                    client.serve(IDLE_S)
                except ReplacingError:
                    with self.lock:
                        self.records.wait(*waiting)
                    return
                else:
                    waiting.popleft()

    def be_careful(self) -> None:
        """Let records take the careful path: others may have to be sent before them."""
        self.careful = True

    def check_careful(self) -> None:
        """Let records take the fast path again where nothing has to be sent before them."""
        if not self.records.missing:
            self.careful = self._always_careful or bool(self.records.refused)

    # ---- the end

    def begin_close(self) -> None:
        """Send nothing again."""
        with self.lock:
            self.records.on_closing()
            self.state.on_close()

    def end_close(self) -> None:
        """Fail all outstanding records. The background thread has ended."""
        client, self.client = self.client, StandIn(closed_error())
        with self.reports.serve_alone():
            for each in (self.replaced, client):
                if isinstance(each, SendingClient):
                    if len(each):
                        each.serve(_DISCONNECT_S)
                    self.empty(each)
            self.separate.empty()
            self._end_all()

    def _end_all(self) -> None:
        with self.lock:
            self.records.end_all()
        self.reports.report_ends()

    def check_process(self) -> None:
        """Raise WrongProcessError in a fork."""
        if os.getpid() != self._pid:
            raise wrong_process_error()

    def check_usable(self) -> None:
        """Raise ProducerClosedError after close, WrongProcessError in a fork."""
        self.check_process()
        if self.records.is_closing:
            raise closed_error()

    def after_fork(self) -> None:
        """Refuse all use in this process, which has none of the client's threads."""
        client, self.client = self.client, StandIn(wrong_process_error())
        if isinstance(client, SendingClient):
            client.keep_for_ever()
        self.separate.after_fork()
        self.reports.after_fork()
        self.lock = threading.RLock()
