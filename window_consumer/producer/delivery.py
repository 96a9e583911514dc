"""Keeps sending until the brokers have a record, even if the client fails and is replaced.

librdkafka's queue is the buffer. Each record in it gets one delivery report, success or error,
which carries its future. What becomes of a record after an error is decided by ``KeptRecords``,
what becomes of the client by ``ClientState``; this module and ``upkeep`` carry it out. While a
client is replaced, ``client`` is a stand-in that refuses records, so senders wait.

One thread at a time serves delivery reports and holds ``_serving``: the background thread, or a
thread that sends a lot. If two threads alternated, each report would wait a whole switch interval
of the GIL, 5 ms. ``lock`` guards the rules; it is taken after ``_serving``, and never by the
delivery report of a record that was written.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from window_consumer.kafka import errors
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.writing.batch_limits import batch_bytes
from window_consumer.kafka.writing.client import SendingClient
from window_consumer.kafka.writing.client_state import KEEPING, ClientPhase, ClientState, Emptying
from window_consumer.kafka.writing.kept_records import KeepingRules, KeptRecords
from window_consumer.model.errors import UsageError
from window_consumer.model.log_events import LogEvent
from window_consumer.producer.clients import ProducerClients
from window_consumer.producer.errors import BufferFullError, send_error
from window_consumer.producer.future import DetailedSendFuture, SendFuture
from window_consumer.producer.replacement import (
    REPLACING,
    ReplacingError,
    StandIn,
    closed_error,
    numbered,
    wrong_process_error,
)
from window_consumer.producer.separate_client import SeparateClient

_MOST_SPARES: Final = 20_000
"""Futures that are kept for the next records: 2 MB."""

HOT_S: Final = 0.05
"""A thread that sent a round of records this recently serves delivery reports itself."""

IDLE_S: Final = 0.1
PAUSE_S: Final = 0.005
_DISCONNECT_S: Final = 0.2
"""The client reports a lost connection within this time."""


class Delivery:
    """Sends the records of one Producer. Any thread may call ``submit``."""

    def __init__(  # noqa: PLR0913 - the options of a producer
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
        self.id_prefix = f"{os.urandom(9).hex()}-"
        self.next_number: Callable[[], tuple[int, tuple[str, str]]] = numbered(self.id_prefix)
        """Returns the number of the next record, and its header. Any thread may call."""
        self.spares: deque[SendFuture] = deque(maxlen=_MOST_SPARES)
        self.careful = self._always_careful = careful
        """Whether each record takes the careful path: others may have to be sent before it."""
        self._serving = threading.Lock()
        self._serving_thread: int | None = None
        self.background_thread: int | None = None
        self.lock = threading.RLock()
        self.turned_at = 0.0
        self.turns = 0
        self.records = KeptRecords[SendFuture](
            KeepingRules(
                memory=memory,
                missing_topic_s=missing_topic_s,
                largest_record=int(properties["message.max.bytes"]),
                batch_bytes=batch_bytes(properties),
                resends=resends,
            )
        )
        self.state = ClientState[str](KEEPING)
        self.clients = ProducerClients(properties, log, self.records, self.next_number)
        self.separate = SeparateClient(self.records, self.lock, self.clients, self.report_ends)
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
                self.report_ends()
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
            self.on_left(future)
            error = errors.cause_of(exception)
            if error is None:
                raise
            if errors.is_fatal(error):
                self.request_replacement(client, errors.text_of(error))
                raise ReplacingError from None
            self._fail(future, error, None)

    def settle(self, client: Any) -> None:
        """Send again a record that was given to a client while it was being replaced."""
        if not isinstance(client, SendingClient):
            return
        while self.client is REPLACING:
            time.sleep(PAUSE_S)
        with self.serve_alone():
            self.empty(client)
            if isinstance(self.client, SendingClient):
                self.send_waiting(self.client)
            else:
                self._end_all()

    def take_turn(self) -> None:
        """Serve delivery reports on a thread that sends a lot."""
        now = time.monotonic()
        is_hot, self.turned_at = now - self.turned_at < HOT_S, now
        self.turns += 1
        if is_hot and self._serving_thread != threading.get_ident():
            self.serve(0)

    def serve(self, timeout_s: float) -> None:
        """Serve delivery reports."""
        with self.serve_alone():
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

    @contextmanager
    def serve_alone(self) -> Iterator[None]:
        """Be the thread that serves delivery reports."""
        self.check_may_wait()
        if threading.get_ident() != self.background_thread:
            self.turned_at = time.monotonic()  # makes the background thread step back
        with self._serving:
            self._serving_thread = threading.get_ident()
            try:
                yield
            finally:
                self._serving_thread = None

    @property
    def memory(self) -> int:
        """The limit of the buffer, in bytes."""
        return self.records.memory.memory

    def check_may_wait(self) -> None:
        """Raise UsageError on the thread that serves delivery reports: it would deadlock."""
        if self._serving_thread == threading.get_ident():
            raise UsageError(
                "a callback of a SendFuture cannot wait for other records: it runs on the thread"
                " that serves their delivery reports"
            )

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
            with self.serve_alone():
                client = self.client
                if isinstance(client, SendingClient):
                    client.hurry(self._wait_limit_s(min(left_s, IDLE_S)))
                    self._after_serving(client)
            time.sleep(min(left_s, PAUSE_S) if self.open_records() else 0)
        return self._unanswered() if self.open_records() else 0

    def _unanswered(self) -> int:
        """Return how many records are outstanding, without the client's log lines and errors."""
        with self.serve_alone():
            client = self.client
            count = client.unanswered() if isinstance(client, SendingClient) else len(client)
        return count + len(self.records)

    def set_memory(self, memory: int) -> None:
        """Change the limit of the buffer; return when the new limit holds.

        Buffered records have a few seconds to be sent; the rest moves to the new client.
        """
        self.check_may_wait()
        self.records.memory.memory = memory
        self.request_replacement(self.client, None)
        while self.state.phase not in (ClientPhase.OPEN, ClientPhase.CLOSED):
            time.sleep(PAUSE_S)

    def _wait_for_room(self, future: SendFuture, deadline: float) -> None:
        is_serving = self._serving_thread == threading.get_ident()
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
        if self._serving_thread == threading.get_ident():
            with self.lock:
                self.records.wait(future)  # the new client sends it with all that wait
            return
        if time.monotonic() >= deadline:
            raise BufferFullError(f"{future.topic}: the client is being replaced; retry later")
        time.sleep(PAUSE_S)

    # ---- delivery reports, within the client

    def on_left(self, future: SendFuture) -> None:
        """Stop counting a record that has left the client's queue."""
        if isinstance(future, DetailedSendFuture):
            self.records.memory.leave(future.queued_bytes)
            future.queued_bytes = 0

    def on_error(self, future: SendFuture, error: Any, message: Any) -> None:
        """Decide what happens to a record that the client could not send."""
        with self.lock:
            self._fail(future, error, message)
        self.report_ends()

    def _fail(self, future: SendFuture, error: Any, message: Any) -> None:
        missing = self.records.missing
        is_known = future.topic in missing
        self.records.on_failed(future, errors.send_failure(error, message), time.monotonic())
        if missing:
            self.careful = True
        if not is_known and future.topic in missing:
            self.log.log(
                logging.WARNING,
                "%s: the topic does not exist; its records wait for it",
                future.topic,
                event=LogEvent.PRODUCER_TOPIC_MISSING,
            )

    def report_ends(self) -> None:
        """Fail the futures of records that have ended. The caller does not hold the lock."""
        endings = self.records.endings
        while endings:
            try:
                future, end = endings.popleft()
            except IndexError:
                return  # another thread took the last one
            future.fail(send_error(future, end))

    def on_callback_error(self, future: SendFuture) -> None:
        """Report that a callback has raised; called within ``except``."""
        self.log.log(
            logging.ERROR,
            "a callback of a record sent to %s raised; the record's result is unaffected",
            future.topic,
            event=LogEvent.SEND_CALLBACK_FAILED,
            exc_info=True,
        )

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
        """Send what must go before anything else, in order. The caller serves alone."""
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
        with self.serve_alone():
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
        self.report_ends()

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
        self._serving = threading.Lock()
        self.lock = threading.RLock()
