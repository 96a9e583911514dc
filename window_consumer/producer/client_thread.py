"""The background thread of a producer: serves delivery reports and keeps the client alive."""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from window_consumer.kafka.writing.client import SendingClient, has_topic
from window_consumer.kafka.writing.client_state import ClientPhase
from window_consumer.model.log_events import LogEvent
from window_consumer.producer.clients import REPLACING
from window_consumer.producer.delivery import IDLE_S, PAUSE_S, Delivery

_HOT_PAUSE_S: Final = 0.03
_LOGIN_S: Final = 5.0
"""How long records are taken back from a client whose login is refused."""

_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 10.0


class ClientThread:
    """Drives the client of one Delivery, from its creation to ``close``."""

    def __init__(self, delivery: Delivery):
        self._delivery = delivery
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wc-producer", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Wait for delivery reports, end the thread, then fail all outstanding records."""
        self._delivery.flush(timeout_s)
        self._stopped.set()
        self._delivery.begin_close()
        self._thread.join()
        self._delivery.end_close()

    def after_fork(self) -> None:
        """Refuse all use in this process, which has none of the threads."""
        self._delivery.after_fork()
        self._stopped.set()

    def _run(self) -> None:
        self._delivery.reports.background_thread = threading.get_ident()
        turns = failures = 0
        while not self._stopped.is_set():
            try:
                turns = self._turn(turns)
                failures = 0
            except Exception:
                self._delivery.log.log(
                    logging.ERROR,
                    "the producer recovered from an internal error",
                    event=LogEvent.PRODUCER_WARNED,
                    exc_info=True,
                )
                self._stopped.wait(min(_FIRST_PAUSE_S * 2**failures, _LONGEST_PAUSE_S))
                failures += 1

    def _turn(self, turns: int) -> int:
        """Serve once and check everything; return how often senders have served so far."""
        delivery = self._delivery
        if delivery.state.phase not in (ClientPhase.OPEN, ClientPhase.CLOSED):
            self._replace()
        if delivery.reports.is_hot:
            # A busy sender serves delivery reports itself. On a busy machine each request of this
            # thread for the GIL would take milliseconds.
            time.sleep(_HOT_PAUSE_S)
            if turns == delivery.reports.turns:
                delivery.serve(0)
            turns = delivery.reports.turns
        else:
            delivery.serve(IDLE_S)
        self._check_missing_topics()
        self._check_client()
        self._check_login()
        return turns

    def _check_client(self) -> None:
        delivery = self._delivery
        client = delivery.client
        if isinstance(client, SendingClient) and delivery.clients.watchdog.is_lost(client):
            delivery.log.log(
                logging.WARNING,
                "the producer lost its connection although the cluster answers; continues with a"
                " new client",
                event=LogEvent.PRODUCER_REPLACED,
            )
            delivery.request_replacement(client, None)

    def _check_login(self) -> None:
        """Fail all records once the brokers have refused the login for too long."""
        delivery = self._delivery
        reason = delivery.clients.login.refusal()
        client = delivery.client
        if reason is None or not isinstance(client, SendingClient):
            return
        delivery.log.log(
            logging.ERROR,
            "the brokers refuse the producer's login: %s; its records fail",
            reason,
            event=LogEvent.PRODUCER_FAILED,
        )
        records = delivery.records
        with delivery.reports.serve_alone():
            with delivery.lock:
                records.on_login_refused(reason)
            try:
                until = time.monotonic() + _LOGIN_S
                while len(client) + len(records.refused) and time.monotonic() < until:
                    client.give_up(in_flight=True)
                    client.serve(PAUSE_S)
                    delivery.separate.give_up()
            finally:
                with delivery.lock:
                    records.on_login_over()
        delivery.reports.report_ends()

    def _check_missing_topics(self) -> None:
        delivery = self._delivery
        records = delivery.records
        delivery.check_careful()
        if not records.missing:
            return
        for topic in records.topics_to_find(time.monotonic()):
            client = delivery.client
            if isinstance(client, SendingClient) and has_topic(client, topic):
                with delivery.reports.serve_alone(), delivery.lock:
                    records.on_found(topic)
                    delivery.send_waiting(client)
        with delivery.lock:
            records.on_tick(time.monotonic())
        delivery.reports.report_ends()

    # ---- replacing the client; a failed step is retried

    def _replace(self) -> None:
        """Empty the client and send its records with a new one, in order."""
        delivery = self._delivery
        if isinstance(delivery.client, SendingClient):
            delivery.replaced, delivery.client = delivery.client, REPLACING
        if delivery.state.phase is ClientPhase.EMPTYING:
            self._empty()
        self._stopped.wait(delivery.state.pause_s(time.monotonic()))
        if not self._stopped.is_set():
            self._open()

    def _empty(self) -> None:
        delivery = self._delivery
        records, state = delivery.records, delivery.state
        with delivery.reports.serve_alone():
            if delivery.replaced is not None:
                delivery.empty(delivery.replaced)
                delivery.replaced = None
            limits = {topic: delivery.clients.limit_of(topic) for topic in records.limits.topics}
            with delivery.lock:
                is_explained = records.sort_out(limits)
                is_unexplained = state.on_emptied(time.monotonic(), is_explained=is_explained)
        delivery.reports.report_ends()
        if is_unexplained:
            delivery.log.log(
                logging.ERROR,
                "fatal error of the producer: %s; a new client sends unacknowledged records again",
                state.failure,
                event=LogEvent.PRODUCER_FAILED,
            )

    def _open(self) -> None:
        delivery = self._delivery
        with delivery.reports.serve_alone():
            if delivery.state.is_failed:
                self._separate_refused_topics()
            client = delivery.clients.shared()
            delivery.send_waiting(client)
            with delivery.lock:
                delivery.state.on_made()
                delivery.client = client

    def _separate_refused_topics(self) -> None:
        """Move topics whose records caused a fatal error to a separate client."""
        delivery = self._delivery
        with delivery.lock:
            refusals = delivery.records.separate_refused_topics(time.monotonic())
            if refusals:
                delivery.careful = True
        for topic, why in refusals.items():
            delivery.log.log(
                logging.WARNING,
                "%s: %s; a separate client sends its records until they are accepted again",
                topic,
                why,
                event=LogEvent.PRODUCER_TOPIC_REFUSED,
            )
