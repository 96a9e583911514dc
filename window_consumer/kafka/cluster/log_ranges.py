"""Requests for the ranges of logs, without blocking the caller.

The consumer's own request blocks until there is an answer, and a partition without a leader never
answers. The admin client answers in the background.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import Any

from attrs import evolve, field, frozen
from confluent_kafka import KafkaException

from window_consumer.kafka.cluster.answers import in_words
from window_consumer.model.errors import BrokerUnavailableError, WindowConsumerError
from window_consumer.model.record import TopicPartition

FRESH_S = 10.0
"""An older answer is requested again, because the log may have changed."""


@frozen
class LogQuestion:
    """A pending request for where a log begins and ends."""

    low: Future[Any]
    end: Future[Any]
    _asked_at: float = field(factory=time.monotonic)
    first_asked_at: float = field(factory=time.monotonic)
    """When the first unanswered request was sent."""

    @property
    def is_done(self) -> bool:
        """Return whether there is an answer, or none will come."""
        return self.low.done() and self.end.done()

    @property
    def is_old(self) -> bool:
        """Return whether the answer is too old to use."""
        return time.monotonic() > self._asked_at + FRESH_S

    def answer(self) -> tuple[int, int]:
        """Return the log's first offset and its end. Raise KafkaException without an answer."""
        return self.low.result().offset, self.end.result().offset


Answer = tuple[int, int] | WindowConsumerError


class LogQuestions:
    """Requests ranges of several logs at once and keeps pending requests. Owner: poll thread."""

    def __init__(self, ask: Callable[[TopicPartition], LogQuestion]):
        self._ask = ask
        self._asked: dict[TopicPartition, LogQuestion] = {}

    def answers(
        self, names: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, Answer]:
        """Wait until each request is ``timeout_s`` old; late answers are returned by a later call.

        So a silent log delays the caller only once, however often it is requested.
        """
        for name in names:
            request = self._asked.get(name)
            if request is None:
                self._asked[name] = self._ask(name)
            elif request.is_old:
                self._asked[name] = evolve(self._ask(name), first_asked_at=request.first_asked_at)
        ends = {name: self._asked[name].first_asked_at + timeout_s for name in names}
        now = time.monotonic()
        early = [self._asked[name] for name in names if ends[name] > now]
        futures = [future for each in early for future in (each.low, each.end)]
        if futures:
            wait(futures, max(ends.values()) - now)
        return {name: self._answer(name) for name in names}

    def _answer(self, name: TopicPartition) -> Answer:
        if not self._asked[name].is_done:
            return BrokerUnavailableError(f"log of {name}: no answer yet; does it have a leader?")
        try:
            return self._asked.pop(name).answer()
        except KafkaException as exception:
            return in_words(exception, f"log of {name}")
