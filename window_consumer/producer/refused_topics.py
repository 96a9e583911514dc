"""Topics with a record that the brokers refused: they get a client of their own.

With ``enable.gapless.guarantee`` a refused batch is fatal for the client, so that nothing overtakes
a resent record. With a single client for all topics, each refusal would stop them all. The client
here needs no such guarantee: each record is its own batch, so a refusal concerns it alone, and the
next record of its topic and key is sent after its delivery report.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from operator import attrgetter
from typing import Any, Final

from attrs import define, field, frozen

from window_consumer.kafka import errors
from window_consumer.kafka.watchdogs.client import ClientWatchdog
from window_consumer.kafka.writing.client import SendingClient
from window_consumer.producer.errors import TooLargeError
from window_consumer.producer.future import SendFuture
from window_consumer.producer.memory_limit import MemoryLimit
from window_consumer.producer.unsent import UnsentRecords

OF_REFUSED: Final = {"batch.num.messages": 1, "linger.ms": 0, "enable.gapless.guarantee": False}
"""The properties in which the client of these topics differs."""

CALM_S: Final = 1.0
"""A topic returns to the shared client after this long without a refusal."""

_LONGEST_CALM_S: Final = 3_600.0
"""Each return that was too early doubles the time, up to this."""

_DRAIN_S: Final = 5.0
_SERVE_S: Final = 0.05

_Place = tuple[str, Any]


@frozen
class ClientFactory:
    """What these topics need from the producer."""

    client: Callable[[], SendingClient]
    """Creates one with ``OF_REFUSED``; the thread that serves delivery reports owns it."""
    watchdog: Callable[[], ClientWatchdog]
    limit_of: Callable[[str], int | None]
    """Queries a topic's ``max.message.bytes``."""


@define
class _RefusedTopic:
    refused_at: float
    calm_s: float
    open_records: int = 0
    in_flight: int = 0
    is_returning: bool = False
    """Its records wait until those in flight have their delivery reports."""


@define
class _Chain:
    waiting: deque[SendFuture] = field(factory=deque)
    is_busy: bool = False
    """Whether the client has the record that precedes the waiting ones."""


class RefusedTopics:
    """Sends their records. Owner: the thread that serves delivery reports; any may ``send``."""

    def __init__(
        self,
        unsent: UnsentRecords,
        bound: MemoryLimit,
        clients: ClientFactory,
        ordering: AbstractContextManager[object],
        calm_s: float = CALM_S,
    ):
        """``ordering`` is a reentrant lock."""
        self._unsent = unsent
        self._bound = bound
        self._clients = clients
        self._ordering = ordering
        self._first_calm_s = calm_s
        self._topics: dict[str, _RefusedTopic] = {}
        self._limits: dict[str, int | None] = {}
        self._calm_s: dict[str, float] = {}
        self._chains: dict[_Place, _Chain] = {}
        """The records of each topic and key; without a key, those of a returning topic."""
        self._again: list[SendFuture] = []
        self._failed: deque[tuple[SendFuture, Any]] = deque()
        """Records that the client did not accept; failed later, as a chain may be long."""
        self._too_large: list[SendFuture] = []
        self._client: SendingClient | None = None
        self._watchdog = clients.watchdog()

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def __bool__(self) -> bool:
        return bool(self._topics)

    def __len__(self) -> int:
        """Return how many records are outstanding."""
        return sum(each.open_records for each in list(self._topics.values()))

    def add(self, topic: str) -> None:
        """Start sending a topic with the separate client."""
        calm_s = self._calm_s.get(topic, self._first_calm_s)
        self._calm_s[topic] = min(2 * calm_s, _LONGEST_CALM_S)
        self._topics[topic] = _RefusedTopic(time.monotonic(), calm_s)

    def send(self, future: SendFuture) -> None:
        """Send a record of one of these topics, after those of its key."""
        with self._ordering:
            self._bound.hold(future)
            topic = self._topics[future.topic]
            topic.open_records += 1
            chain = self._chains.setdefault(_place_of(future), _Chain())
            chain.waiting.append(future)
            self._advance(topic, chain)

    def _advance(self, topic: _RefusedTopic, chain: _Chain) -> None:
        """Send what a chain allows: the next record, or all records without a key."""
        while chain.waiting and not (chain.is_busy or topic.is_returning):
            future = chain.waiting.popleft()
            chain.is_busy = future.key is not None
            topic.in_flight += 1
            self._produce(future)

    def _produce(self, future: SendFuture) -> None:
        if self._client is None:
            self._again.append(future)
            return
        on_answer = partial(self._on_answer, future)
        try:
            future.produce_with(self._client, on_answer)
        except BufferError:
            self._again.append(future)
        except Exception as exception:
            error = errors.cause_of(exception)
            if error is None:
                raise
            self._failed.append((future, error))

    def _on_answer(self, future: SendFuture, error: Any, message: Any) -> None:
        """Take the client's delivery report. Runs within the client, so it must not raise."""
        if error is None:
            self._end(future)
            future(None, message)
            return
        verdict = errors.send_verdict(error)
        if verdict == "transient" and self._unsent.may_resend(future, error, message):
            self._again.append(future)
        elif verdict == "missing" and not self._unsent.closing:
            self._hold_chain(future)
        else:
            self._on_refusal(future.topic)
            self._end(future)
            if verdict == "too_large" and message is not None:
                self._too_large.append(future)
            else:
                self._unsent.on_error(future, error, message)

    def _on_refusal(self, name: str) -> None:
        with self._ordering:
            topic = self._topics[name]
            topic.refused_at = time.monotonic()
            if topic.is_returning:
                topic.is_returning = False
                for place, chain in list(self._chains.items()):
                    if place[0] == name:
                        self._advance(topic, chain)

    def _end(self, future: SendFuture) -> None:
        """Send the next record of its key."""
        with self._ordering:
            topic, place = self._topics[future.topic], _place_of(future)
            topic.in_flight -= 1
            self._leave(future)
            chain = self._chains.setdefault(place, _Chain())
            chain.is_busy = False
            self._advance(topic, chain)
            if not (chain.is_busy or chain.waiting):
                del self._chains[place]

    def _hold_chain(self, future: SendFuture) -> None:
        """Hold a record and those after it until the topic exists."""
        with self._ordering:
            self._topics[future.topic].in_flight -= 1
            chain = self._chains.pop(_place_of(future), _Chain())
            for each in (future, *chain.waiting):
                self._leave(each)
                self._unsent.hold(each)

    def _leave(self, *futures: SendFuture) -> None:
        self._bound.release(*futures)
        for each in futures:
            self._topics[each.topic].open_records -= 1

    # ---- the thread that serves delivery reports

    def give_up(self) -> None:
        """Fail all records, as nothing can be sent."""
        if self._client is not None:
            self._client.give_up(in_flight=True)
            self._client.serve(_SERVE_S)

    def serve(self) -> None:
        """Serve delivery reports; replace the client after a fatal error."""
        client = self._client
        if client is not None:
            if client.serve(0) or not len(client):
                self._watchdog.on_contact()
            if client.fatal is not None or self._watchdog.is_lost(client):
                self._take_back(client)
        with self._ordering:
            if self._again and self._client is None:
                self._client, self._watchdog = self._clients.client(), self._clients.watchdog()
            again, self._again = sorted(self._again, key=attrgetter("number")), []
            for future in again:
                self._produce(future)
        while self._failed:
            self._on_answer(*self._failed.popleft(), None)
        too_large, self._too_large = self._too_large, []
        for future in too_large:
            future.fail(TooLargeError(future.topic, future.size, self._limit(future.topic)))

    def _limit(self, name: str) -> int | None:
        """Query a topic's limit once: it takes a request."""
        if name not in self._limits:
            self._limits[name] = self._clients.limit_of(name)
        return self._limits[name]

    def return_calm_topics(self) -> bool:
        """Return calm topics to the shared client; return whether they have unsent records.

        Those go first. The caller holds ``ordering``.
        """
        now, found = time.monotonic(), False
        for name, topic in list(self._topics.items()):
            if now - topic.refused_at < topic.calm_s:
                continue
            topic.is_returning = True
            if not topic.in_flight:
                places = [place for place in self._chains if place[0] == name]
                waiting = [each for place in places for each in self._chains.pop(place).waiting]
                self._leave(*waiting)
                self._unsent.add(*waiting)
                found = found or bool(waiting)
                del self._topics[name]
                self._limits.pop(name, None)
        if not self._topics:
            self._client = None
        return found

    def _take_back(self, client: SendingClient) -> None:
        """Empty a client that had a fatal error."""
        with self._ordering:
            self._client = None
        patient_until = time.monotonic() + _DRAIN_S
        while len(client):
            in_flight = self._unsent.closing or time.monotonic() >= patient_until
            client.give_up(in_flight=in_flight)
            client.serve(_SERVE_S)

    def close(self) -> None:
        """Take all records back, for ``UnsentRecords`` to fail."""
        if self._client is not None:
            self._take_back(self._client)
        with self._ordering:
            left = [*self._again, *(each for each, _ in self._failed)]
            for chain in self._chains.values():
                left += chain.waiting
            self._bound.release(*left)
            self._unsent.add(*left)
            for future in self._too_large:
                future.fail(TooLargeError(future.topic, future.size, None))
            self._again.clear()
            self._chains.clear()
            self._topics.clear()

    def after_fork(self) -> None:
        """Never touch the client in a process that has none of its threads."""
        if self._client is not None:
            self._client.keep_for_ever()


def _place_of(future: SendFuture) -> _Place:
    """Return the chain of a record: topic and key; records without a key have no order."""
    key = future.key
    return future.topic, key.encode() if isinstance(key, str) else key
