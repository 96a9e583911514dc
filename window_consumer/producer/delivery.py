"""Keeps sending until the brokers have a record, even if the client fails and is replaced.

librdkafka's queue is the buffer. Each record in it gets one delivery report, success or error,
which carries its future. A client with a fatal error is emptied; a new one sends its records first,
in the order of the futures' numbers. Meanwhile ``client`` is a stand-in that refuses records, so
senders wait.

One thread at a time serves delivery reports and holds ``_serving``: the background thread, or a
thread that sends a lot. If two threads alternated, each report would wait a whole switch interval
of the GIL, 5 ms.
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
from window_consumer.kafka.watchdogs.client import ClientWatchdog
from window_consumer.kafka.watchdogs.login import LoginWatchdog
from window_consumer.kafka.writing.client import SendingClient, has_topic, new_client, size_limit
from window_consumer.model.errors import UsageError
from window_consumer.model.log_events import LogEvent
from window_consumer.producer.errors import BufferFullError, TooLargeError, TransactionAbortedError
from window_consumer.producer.future import DetailedSendFuture, SendFuture
from window_consumer.producer.memory_limit import MemoryLimit
from window_consumer.producer.refused_topics import OF_REFUSED, ClientFactory, RefusedTopics
from window_consumer.producer.replacement import (
    REPLACING,
    ReplacingError,
    StandIn,
    closed_error,
    numbered,
    transaction_errors,
    wrong_process_error,
)
from window_consumer.producer.settings import buffer_properties
from window_consumer.producer.unsent import UnsentRecords, fail_missing

_MOST_SPARES: Final = 20_000
"""Futures that are kept for the next records: 2 MB."""

HOT_S: Final = 0.05
"""A thread that sent a round of records this recently serves delivery reports itself."""

_HOT_PAUSE_S: Final = 0.03
_IDLE_S: Final = 0.1
_PAUSE_S: Final = 0.005
_DRAIN_S: Final = 5.0
"""How long a client that is being replaced waits for its in-flight records."""

_DISCONNECT_S: Final = 0.2
"""The client reports a lost connection within this time."""

_CALM_S: Final = 60.0
"""A client that worked this long did not fail for the same reason as the previous one."""

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 10.0


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
        self._properties = dict(properties)
        self._log = log
        self._resends = resends
        self._bound = MemoryLimit(memory)
        self._max_block_s = max_block_s
        self.id_prefix = f"{os.urandom(9).hex()}-"
        self.next_number: Callable[[], tuple[int, tuple[str, str]]] = numbered(self.id_prefix)
        """Returns the number of the next record, and its header. Any thread may call."""
        self.spares: deque[SendFuture] = deque(maxlen=_MOST_SPARES)
        self.careful = self._always_careful = careful
        """Whether each record takes the careful path: others may have to be sent before it."""
        self._serving = threading.Lock()
        self._serving_thread: int | None = None
        self._ordering = threading.RLock()
        """Held by senders on the careful path, so that released records go first."""
        self._turned_at = 0.0
        self._turns = 0
        self._unsent = UnsentRecords(
            self._properties, missing_topic_s, self._bound, resends=resends
        )
        self._refused = RefusedTopics(
            self._unsent,
            self._bound,
            ClientFactory(self._new_refused_client, self._new_watchdog, self._limit_of),
            self._ordering,
        )
        self._refusals: dict[str, str] = {}
        """Topics with a refused record since the client was created, and why."""
        self._needs_replacement = False
        self._why: str | None = None
        self._replaced: SendingClient | None = None
        """The client being replaced, until it is empty."""
        self._replaced_at = 0.0
        self._pause_s = 0.0
        self._is_ready = False
        self._begun_by: SendingClient | None = None
        """The client that began the current transaction."""
        self._pid = os.getpid()
        self._stopped = threading.Event()
        self._watchdog = self._new_watchdog()
        self._login = LoginWatchdog(self._properties)
        self.client: Any = self._new_client()
        self._thread = threading.Thread(target=self._run, name="wc-producer", daemon=True)
        self._thread.start()

    def _new_client(self) -> SendingClient:
        self._is_ready = False
        sizes = {**buffer_properties(self.memory), **self._unsent.limits.properties}
        return new_client({**self._properties, **sizes}, self._log, self._on_client_error)

    def _new_refused_client(self) -> SendingClient:
        sizes = buffer_properties(self.memory)
        return new_client(
            {**self._properties, **sizes, **OF_REFUSED}, self._log, self._on_client_error
        )

    def _new_watchdog(self) -> ClientWatchdog:
        return ClientWatchdog(self._properties, notices_silence=True)

    # ---- any thread

    def submit(self, future: SendFuture) -> None:
        """Hand a record to the client once there is a client with room for it.

        Raises BufferFullError after ``max_block``, ProducerClosedError and WrongProcessError. Any
        other error goes to the future.
        """
        deadline = time.monotonic() + self._max_block_s
        while True:
            client = self.client
            try:
                with self._ordering:
                    self._give(client, future)
            except BufferError:
                self._wait_for_room(future, deadline)
            except ReplacingError:
                self._wait_for_client(future, deadline)
            else:
                if self.client is not client:
                    self.settle(client)
                return

    def _give(self, client: Any, future: SendFuture) -> None:
        """Hold a record, or hand it to the client; raises BufferError if there is no room."""
        missing = self._unsent.missing
        if future.topic in missing:
            if not missing.is_expired(future.topic):
                self._bound.check_hold(future, len(client))
            self._unsent.hold(future)
        elif future.topic in self._refused:
            self._bound.check_hold(future, len(client))
            self._refused.send(future)
        else:
            self._bound.check_queue(future, len(client))
            self._produce(client, future)

    def _produce(self, client: Any, future: SendFuture) -> None:
        self._bound.enter(future)
        try:
            future.produce_with(client, future)
        except Exception as exception:
            self.on_left(future)
            error = errors.cause_of(exception)
            if error is None:
                raise
            if errors.is_fatal(error):
                self._request_replacement(client, errors.text_of(error))
                raise ReplacingError from None
            self.on_error(future, error, None)

    def settle(self, client: Any) -> None:
        """Send again a record that was given to a client while it was being replaced."""
        if not isinstance(client, SendingClient):
            return
        while self.client is REPLACING:
            time.sleep(_PAUSE_S)
        with self._serve_alone():
            self._empty(client)
            if isinstance(self.client, SendingClient):
                self._send_unsent(self.client)
            else:
                self._unsent.fail_all()

    def take_turn(self) -> None:
        """Serve delivery reports on a thread that sends a lot."""
        now = time.monotonic()
        is_hot, self._turned_at = now - self._turned_at < HOT_S, now
        self._turns += 1
        if is_hot and self._serving_thread != threading.get_ident():
            self.serve(0)

    def serve(self, timeout_s: float) -> None:
        """Serve delivery reports."""
        with self._serve_alone():
            client = self.client
            if not isinstance(client, SendingClient):
                return
            if client.serve(self._wait_limit_s(timeout_s)) or not len(client):
                self._watchdog.on_contact()
            self._check_fatal(client)
            self._serve_refused(client)

    def _serve_refused(self, client: SendingClient) -> None:
        if not self._refused:
            return
        self._refused.serve()
        with self._ordering:
            if self._refused.return_calm_topics():
                self._send_unsent(client)

    def _wait_limit_s(self, longest_s: float) -> float:
        """Return how long to wait for one client: the other may have delivery reports, too."""
        return min(longest_s, _PAUSE_S) if len(self._refused) else longest_s

    def _check_fatal(self, client: SendingClient) -> None:
        if client.fatal is not None:
            self._request_replacement(client, errors.text_of(client.fatal))

    @contextmanager
    def _serve_alone(self) -> Iterator[None]:
        self.check_may_wait()
        if threading.current_thread() is not self._thread:
            self._turned_at = time.monotonic()  # makes the background thread step back
        with self._serving:
            self._serving_thread = threading.get_ident()
            try:
                yield
            finally:
                self._serving_thread = None

    @property
    def memory(self) -> int:
        """The limit of the buffer, in bytes."""
        return self._bound.memory

    def check_may_wait(self) -> None:
        """Raise UsageError on the thread that serves delivery reports: it would deadlock."""
        if self._serving_thread == threading.get_ident():
            raise UsageError(
                "a callback of a SendFuture cannot wait for other records: it runs on the thread"
                " that serves their delivery reports"
            )

    def open_records(self) -> int:
        """Return how many records are outstanding; the client's log lines count as well."""
        return len(self.client) + len(self._unsent) + len(self._refused)

    def flush(self, timeout_s: float) -> int:
        """Wait until all records are delivered or failed; return how many are outstanding."""
        deadline = time.monotonic() + timeout_s
        while self.open_records() or self.client is REPLACING:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            with self._serve_alone():
                client = self.client
                if isinstance(client, SendingClient):
                    client.hurry(self._wait_limit_s(min(left_s, _IDLE_S)))
                    self._check_fatal(client)
                    self._serve_refused(client)
            time.sleep(min(left_s, _PAUSE_S) if self.open_records() else 0)
        return self._unanswered() if self.open_records() else 0

    def _unanswered(self) -> int:
        """Return how many records are outstanding, without the client's log lines and errors."""
        with self._serve_alone():
            client = self.client
            count = client.unanswered() if isinstance(client, SendingClient) else len(client)
        return count + len(self._unsent) + len(self._refused)

    def set_memory(self, memory: int) -> None:
        """Change the limit of the buffer; return when the new limit holds.

        Buffered records have a few seconds to be sent; the rest moves to the new client.
        """
        self.check_may_wait()
        self._bound.memory = memory
        self._request_replacement(self.client, None)
        while (self._needs_replacement or self.client is REPLACING) and not self._stopped.is_set():
            time.sleep(_PAUSE_S)

    def _wait_for_room(self, future: SendFuture, deadline: float) -> None:
        is_serving = self._serving_thread == threading.get_ident()
        if time.monotonic() >= deadline or is_serving:
            why = (
                "a callback cannot wait for room"
                if is_serving
                else "the brokers accept records too slowly"
            )
            if future.topic in self._unsent.missing:
                why = "the topic is missing"
            raise BufferFullError(
                f"{future.topic}: the producer's buffer of {self.memory} bytes is full: {why};"
                " send less, or give it more memory="
            )
        self.serve(min(0.05, max(0.0, deadline - time.monotonic())))

    def _wait_for_client(self, future: SendFuture, deadline: float) -> None:
        if self._serving_thread == threading.get_ident():
            self._unsent.add(future)  # the new client sends it with all other waiting records
            return
        if time.monotonic() >= deadline:
            raise BufferFullError(f"{future.topic}: the client is being replaced; retry later")
        time.sleep(_PAUSE_S)

    # ---- delivery reports, within the client

    def on_left(self, future: SendFuture) -> None:
        """Stop counting a record that has left the client's queue."""
        if isinstance(future, DetailedSendFuture):
            self._bound.leave(future)

    def on_error(self, future: SendFuture, error: Any, message: Any) -> None:
        """Decide what happens to a record that the client could not send."""
        missing = self._unsent.missing
        is_known = future.topic in missing
        self._unsent.on_error(future, error, message)
        if missing:
            self.careful = True
        if errors.send_verdict(error) in ("denied", "invalid"):
            self._refusals[future.topic] = errors.text_of(error)
        if not is_known and future.topic in missing:
            self._log.log(
                logging.WARNING,
                "%s: the topic does not exist; its records wait for it",
                future.topic,
                event=LogEvent.PRODUCER_TOPIC_MISSING,
            )

    def on_callback_error(self, future: SendFuture) -> None:
        """Report that a callback has raised; called within ``except``."""
        self._log.log(
            logging.ERROR,
            "a callback of a record sent to %s raised; the record's result is unaffected",
            future.topic,
            event=LogEvent.SEND_CALLBACK_FAILED,
            exc_info=True,
        )

    def _on_client_error(self, error: Any) -> None:
        self._watchdog.record_error(error)
        self._login.record_error(error)
        if errors.is_absence(error):
            number, _ = self.next_number()
            self._unsent.doubt_below(number)
        text = errors.text_of(error)
        self._log.info(LogEvent.PRODUCER_WARNED, "producer: %s", text)

    # ---- the background thread

    def _run(self) -> None:
        turns = failures = 0
        while not self._stopped.is_set():
            try:
                if self._needs_replacement:
                    self._replace_client()
                if time.monotonic() - self._turned_at < HOT_S:
                    # A busy sender serves delivery reports itself. On a busy machine each request
                    # of this thread for the GIL would take milliseconds.
                    time.sleep(_HOT_PAUSE_S)
                    if turns == self._turns:
                        self.serve(0)
                    turns = self._turns
                else:
                    self.serve(_IDLE_S)
                self._check_missing_topics()
                self._check_client()
                self._check_login()
                failures = 0
            except Exception:
                self._log.log(
                    logging.ERROR,
                    "the producer recovered from an internal error",
                    event=LogEvent.PRODUCER_WARNED,
                    exc_info=True,
                )
                failures += 1
                self._stopped.wait(min(_FIRST_PAUSE_S * 2**failures, _LONGEST_PAUSE_S))

    def _check_client(self) -> None:
        client = self.client
        if isinstance(client, SendingClient) and self._watchdog.is_lost(client):
            self._log.log(
                logging.WARNING,
                "the producer lost its connection although the cluster answers; continues with a"
                " new client",
                event=LogEvent.PRODUCER_REPLACED,
            )
            self._request_replacement(client, None)

    def _check_login(self) -> None:
        """Fail all records once the brokers have refused the login for too long."""
        reason = self._login.refusal()
        client = self.client
        if reason is None or not isinstance(client, SendingClient):
            return
        self._log.log(
            logging.ERROR,
            "the brokers refuse the producer's login: %s; its records fail",
            reason,
            event=LogEvent.PRODUCER_FAILED,
        )
        with self._serve_alone():
            self._unsent.refused_login = reason
            try:
                until = time.monotonic() + _DRAIN_S
                while len(client) + len(self._refused) and time.monotonic() < until:
                    client.give_up(in_flight=True)
                    client.serve(_PAUSE_S)
                    self._refused.give_up()
                self._unsent.fail_refused_login()
            finally:
                self._unsent.refused_login = None

    def _check_missing_topics(self) -> None:
        if not self._unsent.missing:
            self.careful = self._always_careful or bool(self._refused)
            return
        for topic in self._unsent.missing.due():
            client = self.client
            is_there = isinstance(client, SendingClient) and has_topic(client, topic)
            if is_there:
                with self._serve_alone(), self._ordering:
                    self._unsent.add(*self._unsent.missing.release(topic))
                    self._send_unsent(client)
        for future in self._unsent.missing.expired():
            fail_missing(future)

    def _request_replacement(self, client: Any, why: str | None) -> None:
        if client is self.client:
            self._why = why
            self._needs_replacement = True

    def _replace_client(self) -> None:
        """Empty the client and send its records with a new one, in order."""
        why = self._why
        if isinstance(self.client, SendingClient):
            self._replaced, self.client = self.client, REPLACING
        # Whatever fails here is retried from where it failed.
        with self._serve_alone():
            if self._replaced is not None:
                self._empty(self._replaced)
                self._replaced = None
            again, alone = self._unsent.sort_out(self._limit_of)
            self._unsent.add(*again)
        for future, limit in alone:
            future.fail(TooLargeError(future.topic, future.size, limit))
            self._refusals[future.topic] = "a record is too large"
        if why is not None and not (again or self._refusals):
            self._report_failure(why)
        self._watchdog = self._new_watchdog()
        with self._serve_alone():
            if why is not None:
                self._separate_refused_topics()
            new = self._new_client()
            self._send_unsent(new)
            self._needs_replacement, self._why = False, None
            self.client = new

    def _separate_refused_topics(self) -> None:
        """Move topics whose records caused a fatal error to a client of their own."""
        refusals, self._refusals = self._refusals, {}
        if not self._resends:
            return
        for topic, why in refusals.items():
            self._log.log(
                logging.WARNING,
                "%s: %s; a separate client sends its records until they are accepted again",
                topic,
                why,
                event=LogEvent.PRODUCER_TOPIC_REFUSED,
            )
        with self._ordering:
            for topic in refusals:
                self._refused.add(topic)
                self.careful = True
            for future in self._unsent.take():
                if future.topic in self._refused:
                    self._refused.send(future)
                else:
                    self._unsent.add(future)

    def _report_failure(self, why: str) -> None:
        now = time.monotonic()
        if now - self._replaced_at > _CALM_S:
            self._pause_s = 0.0
        self._log.log(
            logging.ERROR,
            "fatal error of the producer: %s; a new client sends unacknowledged records again",
            why,
            event=LogEvent.PRODUCER_FAILED,
        )
        self._stopped.wait(self._pause_s)
        self._pause_s = min(max(2 * self._pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
        self._replaced_at = time.monotonic()

    def _limit_of(self, topic: str) -> int | None:
        return size_limit(self._properties, topic)

    def _empty(self, client: SendingClient) -> None:
        """Take all records back from a client; in-flight ones get a moment to complete."""
        patient_until = time.monotonic() + _DRAIN_S
        while len(client):
            if (
                client.fatal is None
                and time.monotonic() < patient_until
                and not self._unsent.closing
            ):
                client.hurry(_IDLE_S)
                continue
            client.give_up(in_flight=time.monotonic() >= patient_until or self._unsent.closing)
            client.serve(_PAUSE_S)

    def _send_unsent(self, client: SendingClient) -> None:
        """Send what must go before anything else, in order."""
        while waiting := deque(self._unsent.take()):
            while waiting:
                try:
                    if waiting[0].topic in self._refused:
                        self._refused.send(waiting[0])
                    else:
                        self._produce(client, waiting[0])
                except BufferError:
                    client.serve(_IDLE_S)
                except ReplacingError:
                    self._unsent.add(*waiting)
                    return
                else:
                    waiting.popleft()

    # ---- the end

    def close(self, timeout_s: float) -> None:
        """Wait for delivery reports; then fail all outstanding records."""
        self.flush(timeout_s)
        self._unsent.closing = True
        self._stopped.set()
        self._thread.join()
        client, self.client = self.client, StandIn(closed_error())
        with self._serve_alone():
            for each in (self._replaced, client):
                if isinstance(each, SendingClient):
                    if len(each):
                        each.serve(_DISCONNECT_S)
                    self._empty(each)
            self._refused.close()
            self._unsent.fail_all()

    # ---- transactions

    def begin_transaction(self) -> None:
        """Begin one; a new client is initialized for transactions first."""
        deadline = time.monotonic() + self._max_block_s
        while not self._begin_with_client():
            self.check_usable()
            if time.monotonic() >= deadline:
                raise TransactionAbortedError("the client is being replaced; retry the transaction")
            time.sleep(_PAUSE_S)

    def _begin_with_client(self) -> bool:
        """Begin one; return False while the background thread replaces the client."""
        with self._serve_alone():
            client = self.client
            if not isinstance(client, SendingClient) or self._needs_replacement:
                return False
            if client.fatal is not None:
                self._request_replacement(client, None)
                return False
            with transaction_errors():
                client.begin(is_first=not self._is_ready)
            self._is_ready = True
            self._begun_by = client
            return True

    def commit_transaction(self) -> None:
        """Commit once all of its records are acknowledged; raises TransactionAbortedError."""
        with self._serve_alone(), transaction_errors():
            begun_by = self._begun_by
            if begun_by is None or self.client is not begun_by:
                raise TransactionAbortedError("the client was replaced; retry the transaction")
            begun_by.commit()

    def abort_transaction(self) -> None:
        """Abort; never raises: the brokers abort what a replaced client began."""
        with self._serve_alone():
            begun_by = self._begun_by
            if begun_by is not None and self.client is begun_by:
                begun_by.abort()

    # ---- the end

    def check_process(self) -> None:
        """Raise WrongProcessError in a fork."""
        if os.getpid() != self._pid:
            raise wrong_process_error()

    def check_usable(self) -> None:
        """Raise ProducerClosedError after close, WrongProcessError in a fork."""
        self.check_process()
        if self._unsent.closing:
            raise closed_error()

    def after_fork(self) -> None:
        """Refuse all use in this process, which has none of the client's threads."""
        client, self.client = self.client, StandIn(wrong_process_error())
        if isinstance(client, SendingClient):
            client.keep_for_ever()
        self._refused.after_fork()
        self._stopped.set()
        self._serving = threading.Lock()
        self._ordering = threading.RLock()
