"""Transactions of a Producer: all records of a block become visible, or none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from window_consumer.model.errors import UsageError
from window_consumer.producer.delivery import Delivery


class Transactions:
    """Runs one transaction at a time. Owner: the thread inside it."""

    def __init__(self, delivery: Delivery):
        self._delivery = delivery
        self._is_open = False

    def check_open(self) -> None:
        """Raise UsageError outside of a transaction."""
        if not self._is_open:
            raise UsageError(
                "send: a producer with a transactional_id sends only inside `with"
                " producer.transaction():`"
            )

    @contextmanager
    def run(self) -> Iterator[None]:
        """Begin, then commit, or abort if the block raises."""
        if self._is_open:
            raise UsageError("transaction: one is already open; end it before the next")
        self._delivery.begin_transaction()
        self._is_open = True
        try:
            yield
        except BaseException:
            self._is_open = False
            self._delivery.abort_transaction()
            raise
        self._is_open = False
        self._delivery.commit_transaction()
