"""What stands where a producer has no client: it refuses each record, with the reason."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from window_consumer.kafka import sending_client
from window_consumer.model.errors import WrongProcessError
from window_consumer.model.headers import ID
from window_consumer.producer.errors import ProducerClosedError, TransactionAbortedError


class StandIn:
    """In place of a client: refuses records."""

    def __init__(self, error: Exception):
        self._error = error

    def produce(self, *_: Any) -> None:
        """Raise the reason."""
        raise self._error

    def __len__(self) -> int:
        return 0


class ReplacingError(Exception):
    """There is no client for a moment."""


REPLACING: Final = StandIn(ReplacingError())


def closed_error() -> ProducerClosedError:
    """Return what use after ``close`` raises."""
    return ProducerClosedError("the producer is closed: make a new one")


def wrong_process_error() -> WrongProcessError:
    """Return what use in a fork raises."""
    return WrongProcessError("this producer was made in another process: make one after the fork")


@contextmanager
def transaction_errors() -> Iterator[None]:
    """Raise what a caller of a transaction can act on."""
    try:
        yield
    except sending_client.TransactionFailure as error:
        raise TransactionAbortedError(f"{error}; run it again") from None


def numbered(prefix: str) -> Callable[[], tuple[int, tuple[str, str]]]:
    """Return what gives the next record's number and header: one call into C, for any thread."""
    ids = map(prefix.__add__, map(str, itertools.count(1)))
    headers = zip(itertools.repeat(ID), ids, strict=False)
    return zip(itertools.count(1), headers, strict=False).__next__
