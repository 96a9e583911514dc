"""Questions for the ranges of logs that do not hold up who asks.

The consumer's own question stands still until there is an answer, and for a partition without a
leader there is none. The admin client's answers come by themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import Any

from attrs import evolve, field, frozen
from confluent_kafka import KafkaException

from window_consumer.kafka.cluster.answers import in_words
from window_consumer.model.errors import (
    BrokerUnavailableError,
    WindowConsumerError,
)
from window_consumer.model.record import TopicPartition

FRESH_S = 10.0
"""An older answer is asked for again: the log may have changed since."""


@frozen
class LogQuestion:
    """Where a log begins and ends, asked."""

    low: Future[Any]
    end: Future[Any]
    _asked_at: float = field(factory=time.monotonic)
    first_asked_at: float = field(factory=time.monotonic)
    """When the same was asked for the first time, and has had no answer since."""

    @property
    def is_done(self) -> bool:
        """Tell whether there is an answer, or none will come."""
        return self.low.done() and self.end.done()

    @property
    def is_old(self) -> bool:
        """Tell whether the answer has to be asked for again."""
        return time.monotonic() > self._asked_at + FRESH_S

    def answer(self) -> tuple[int, int]:
        """Return the log's first offset and its end; KafkaException where there is no answer."""
        return self.low.result().offset, self.end.result().offset


Answer = tuple[int, int] | WindowConsumerError


class LogQuestions:
    """Asks about several logs at once and remembers what is on its way. Owner: poll thread."""

    def __init__(self, ask: Callable[[TopicPartition], LogQuestion]):
        self._ask = ask
        self._asked: dict[TopicPartition, LogQuestion] = {}

    def answers(
        self, names: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, Answer]:
        """Wait until each has been asked for ``timeout_s``; what is late comes next time.

        So a log that nobody answers for is waited for once, however often it is asked for.
        """
        for name in names:
            asked = self._asked.get(name)
            if asked is None:
                self._asked[name] = self._ask(name)
            elif asked.is_old:
                self._asked[name] = evolve(self._ask(name), first_asked_at=asked.first_asked_at)
        ends = {name: self._asked[name].first_asked_at + timeout_s for name in names}
        now = time.monotonic()
        early = [self._asked[name] for name in names if ends[name] > now]
        futures = [future for each in early for future in (each.low, each.end)]
        if futures:
            wait(futures, max(ends.values()) - now)
        return {name: self._answer(name) for name in names}

    def _answer(self, name: TopicPartition) -> Answer:
        if not self._asked[name].is_done:
            return BrokerUnavailableError(f"log of {name}: no answer yet; has it a leader?")
        try:
            return self._asked.pop(name).answer()
        except KafkaException as exception:
            return in_words(exception, f"log of {name}")
