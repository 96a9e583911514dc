"""Notices a client that will never find back to its cluster.

A broker that is alone, and fenced because it stops or was asleep, says that the cluster has no
brokers. Where the client's last connection ends with that answer, librdkafka (2.10 and later, seen
with 2.16) forgets every broker, and the same answer cancels its return to ``bootstrap.servers``: it
asks nobody any more, ever (https://github.com/confluentinc/librdkafka/issues/5301). Only a new
client helps. Most such clients say at least that all brokers are down; one in some hundreds says
nothing at all, calls no callback and logs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from threading import Thread
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from window_consumer.kafka import errors

CHECK_S: Final = 5.0
"""Between two looks, while there is reason to look."""

SURE: Final = 2
"""So many looks in a row have to say so."""

SILENT_S: Final = 60.0
"""A client from which nothing was heard for so long is looked at, too, where that is asked for."""

_DEADLINE_S: Final = 3.0
"""How long a new client may take for an answer."""

_LEAST_S: Final = 0.5
_FETCH_WAIT_MS: Final = 500
"""The client's default. A broker answers on one connection in turn: what is asked after a fetch
that waits for records has its answer after that."""

_TIMES_SLOWER: Final = 3.0
"""How much longer the client may take than a new one, which had to connect first."""

Ask = Callable[[Any, float], bool]


class ClientWatchdog:
    """Watches one client. ``note`` and ``suspect`` belong to any thread, the rest to one.

    It looks only when there is reason to, and asks the client itself only when a new one has been
    answered: while the cluster is away nothing waits.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        ask: Ask | None = None,
        now: Callable[[], float] = time.monotonic,
        *,
        notices_silence: bool = False,
    ):
        """Take the settings of the client, and how to ask a client for something small.

        With ``notices_silence`` it is a reason, too, that ``heard`` was not called for SILENT_S.
        """
        plain = {key: value for key, value in settings.items() if key not in _OF_THE_CLIENT}
        self._settings = {**plain, "log_level": 0}
        self._ask = ask or _answers
        self._now = now
        self._fetch_wait_ms = settings.get("fetch.wait.max.ms", _FETCH_WAIT_MS)
        self._notices_silence = notices_silence
        self._heard_at = now()
        self._suspected = False
        self._look_at = 0.0
        self._asked: Future[float | None] | None = None
        self._failures = 0

    def record_error(self, error: KafkaError) -> None:
        """Hear what the client says of itself."""
        if errors.are_all_down(error):
            self.suspect()

    def suspect(self) -> None:
        """Have a reason to look, such as a question without an answer."""
        self._suspected = True

    def on_contact(self) -> None:
        """Hear that something came from the cluster, or that nothing was to come."""
        self._heard_at = self._now()

    def is_lost(self, client: Any) -> bool:
        """Tell whether the client is to be replaced; takes at most a few seconds, rarely."""
        now = self._now()
        if self._notices_silence and now - self._heard_at >= SILENT_S:
            self.suspect()
        if not self._suspected or now < self._look_at:
            return False
        if self._asked is None:
            self._asked = self._ask_another()
        if not self._asked.done():
            return False
        took_s, self._asked = self._asked.result(), None
        self._look_at = self._now() + CHECK_S
        if took_s is None:
            self._failures = 0
        elif self._ask(client, self._deadline_s(took_s)):
            self._suspected, self._failures = False, 0
            self.on_contact()
        else:
            self._failures += 1
        return self._failures >= SURE

    def _deadline_s(self, took_s: float) -> float:
        """Return how long the client may take where a new one took so long."""
        return _LEAST_S + int(self._fetch_wait_ms) / 1000 + _TIMES_SLOWER * took_s

    def _ask_another(self) -> Future[float | None]:
        """Ask a new client, on a thread of its own; gives how long it took, None if in vain."""
        answer: Future[float | None] = Future()

        def ask() -> None:
            began = self._now()
            try:
                there = self._ask(AdminClient(self._settings), _DEADLINE_S)
            except Exception as exception:
                answer.set_exception(exception)
            else:
                answer.set_result(self._now() - began if there else None)

        Thread(target=ask, name="wc-lifeline", daemon=True).start()
        return answer


_OF_THE_CLIENT: Final = frozenset(
    {"debug", "error_cb", "on_commit", "on_delivery", "statistics.interval.ms", "stats_cb"}
)
"""What a new client that only asks has no use for."""


def _answers(client: Any, timeout_s: float) -> bool:
    try:
        # An answer without brokers is none: with it a client loses its way.
        return bool(client.list_topics(timeout=timeout_s).brokers)
    except KafkaException:
        return False
