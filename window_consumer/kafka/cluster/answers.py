"""Answers of the admin client: waits for one, retries, and translates errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from window_consumer.kafka import errors
from window_consumer.model.errors import BrokerUnavailableError, RunError, WindowConsumerError

NOT_READY_S = 20.0
"""A coordinator that is loading its groups, or has just moved, is ready after some seconds."""


_MOMENT_S = 0.2


class UnsupportedError(RunError):
    """The cluster does not support this request."""

    code = "WC119"


class AlreadyThereError(RunError):
    """The topic exists."""


class NoGroupError(RunError):
    """The group never existed."""

    code = "WC123"


def patience_s(attempt: int, most_s: float, left_s: float) -> float:
    """Return how long a repeated request may wait: 1 s at first, then twice as long each time.

    The client waits for one broker, which may have died, and asks another one the next time. It is
    limited by ``most_s`` and by the time left for all attempts, but at least a moment.
    """
    return max(_MOMENT_S, min(2.0**attempt, most_s, left_s))


def first_answer(
    futures: Iterator[Future[Any]],
    what: str,
    *,
    timeout_s: float,
    deadline_s: float,
    pause: Callable[[], object],
) -> Any:
    """Return the first answer; retry while a broker is not ready to give one.

    Each item of ``futures`` is one request that waits for ``timeout_s``; after ``deadline_s`` no
    more are sent. Raises a WindowConsumerError with the reason.
    """
    deadline = time.monotonic() + max(timeout_s, deadline_s)
    while True:
        try:
            return next(futures).result(timeout_s + 1.0)
        except KafkaException as exception:
            error = errors.cause_of(exception)
            passing = error is not None and errors.is_absence(error)
            if not passing or time.monotonic() > deadline:
                raise in_words(exception, what) from exception
            pause()
        except TimeoutError as exception:
            text = f"{what}: no answer within {timeout_s:g} s"
            raise BrokerUnavailableError(text) from exception


def in_words(exception: KafkaException, what: str) -> WindowConsumerError:
    """Return our error for an exception of the admin client."""
    error = errors.cause_of(exception)
    if error is None:
        return RunError(f"{what}: {exception}")
    if errors.is_unsupported(error):
        return UnsupportedError(f"{what}: {errors.text_of(error)}")
    if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
        return AlreadyThereError(what)
    if error.code() == KafkaError.GROUP_ID_NOT_FOUND:
        return NoGroupError(what)
    return errors.translate(error, what)
