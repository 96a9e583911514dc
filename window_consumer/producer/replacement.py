"""The stand-in for a missing client of a producer, and the errors of its use."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

from window_consumer.model.errors import WrongProcessError
from window_consumer.model.headers import ID
from window_consumer.producer.errors import ProducerClosedError


class StandIn:
    """Takes the place of a client and refuses records."""

    def __init__(self, error: Exception):
        self._error = error

    def produce(self, *_: Any) -> None:
        """Raise the reason."""
        raise self._error

    def __len__(self) -> int:
        return 0


class ReplacingError(Exception):
    """The client is being replaced."""


REPLACING: Final = StandIn(ReplacingError())


def closed_error() -> ProducerClosedError:
    """Return the error for use after ``close``."""
    return ProducerClosedError("the producer is closed: create a new one")


def wrong_process_error() -> WrongProcessError:
    """Return the error for use in a forked process."""
    return WrongProcessError("this producer belongs to another process: create one after the fork")


def numbered(prefix: str) -> Callable[[], tuple[int, tuple[str, str]]]:
    """Return a function for the next record's number and header: one C call, thread-safe."""
    ids = map(prefix.__add__, map(str, itertools.count(1)))
    headers = zip(itertools.repeat(ID), ids, strict=False)
    return zip(itertools.count(1), headers, strict=False).__next__
