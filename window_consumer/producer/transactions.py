"""Transactions of a Producer: all records of a block become visible, or none."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from window_consumer.kafka.writing.client import SendingClient, TransactionFailure
from window_consumer.kafka.writing.client_state import ClientPhase
from window_consumer.model.errors import UsageError
from window_consumer.producer.delivery import PAUSE_S, Delivery
from window_consumer.producer.errors import TransactionAbortedError

_FIRST_S: Final = 1.0
"""The least time for a client's first transaction, because it looks for its coordinator."""


class Transactions:
    """Runs one transaction at a time. Owner: the thread inside it."""

    def __init__(self, delivery: Delivery):
        self._delivery = delivery
        self._is_open = False
        self._begun_by: SendingClient | None = None
        """The client that began the current transaction."""

    def check_open(self) -> None:
        """Raise UsageError outside of a transaction."""
        if not self._is_open:
            raise UsageError(
                "send: a producer with a transactional_id sends only inside `with"
                " producer.transaction():`"
            )

    @contextmanager
    def run(self) -> Iterator[None]:
        """Begin, then commit, or abort if the block raises.

        Raises TransactionAbortedError if it was not committed.
        """
        if self._is_open:
            raise UsageError("transaction: one is already open; end it before the next")
        self._begin()
        self._is_open = True
        try:
            yield
        except BaseException:
            self._is_open = False
            self._abort()
            raise
        self._is_open = False
        self._commit()

    def _begin(self) -> None:
        """Begin one; a new client is initialized for transactions first."""
        deadline = time.monotonic() + self._delivery.max_block_s
        while not self._begin_with_client(max(_FIRST_S, deadline - time.monotonic())):
            self._delivery.check_usable()
            if time.monotonic() >= deadline:
                raise TransactionAbortedError("the client is being replaced; retry the transaction")
            time.sleep(PAUSE_S)

    def _begin_with_client(self, within_s: float) -> bool:
        """Begin one; return False while the background thread replaces the client."""
        delivery = self._delivery
        with delivery.reports.serve_alone():
            client = delivery.client
            if not isinstance(client, SendingClient):
                return False
            if client.fatal is not None:
                delivery.request_replacement(client, None)
            if delivery.state.phase is not ClientPhase.OPEN:
                return False
            with _in_our_words():
                client.begin(is_first=client is not self._begun_by, within_s=within_s)
            self._begun_by = client
            return True

    def _commit(self) -> None:
        """Commit once all of its records are acknowledged."""
        delivery, begun_by = self._delivery, self._begun_by
        with delivery.reports.serve_alone(), _in_our_words():
            if begun_by is None or delivery.client is not begun_by:
                raise TransactionAbortedError("the client was replaced; retry the transaction")
            begun_by.commit()

    def _abort(self) -> None:
        """Abort; never raises: the brokers abort the transactions of a replaced client."""
        delivery, begun_by = self._delivery, self._begun_by
        with delivery.reports.serve_alone():
            if begun_by is not None and delivery.client is begun_by:
                begun_by.abort()


@contextmanager
def _in_our_words() -> Iterator[None]:
    try:
        yield
    except TransactionFailure as error:
        raise TransactionAbortedError(f"{error}; retry the transaction") from None
