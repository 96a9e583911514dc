"""Notices a client that will never find back to its cluster.

A broker that is alone, and fenced because it stops or was asleep, says that the cluster has no
brokers. Where the client's last connection ends with that answer, librdkafka (2.10 and later, seen
with 2.16) forgets every broker, and the same answer cancels its return to ``bootstrap.servers``: it
asks nobody any more, ever (https://github.com/confluentinc/librdkafka/issues/5301). Only a new
client helps.
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

LOOK_S: Final = 5.0
"""Between two looks, while there is reason to look."""

SURE: Final = 2
"""So many looks in a row have to say so."""

_PATIENCE_S: Final = 3.0
"""How long a new client may take for an answer."""

_LEAST_S: Final = 0.5
_TIMES_SLOWER: Final = 3.0
"""How much longer the client may take than a new one, which had to connect first."""

Ask = Callable[[Any, float], bool]


class Lifeline:
    """Watches one client. ``is_lost`` belongs to one thread, ``note`` to any.

    It looks only after the client has said that all brokers are down, and asks the client itself
    only when a new one has been answered: while the cluster is away nothing waits.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        ask: Ask | None = None,
        now: Callable[[], float] = time.monotonic,
    ):
        """Take the settings of the client, and how to ask a client for something small."""
        plain = {key: value for key, value in settings.items() if key not in _OF_THE_CLIENT}
        self._settings = {**plain, "log_level": 0}
        self._ask = ask or _answers
        self._now = now
        self._suspected = False
        self._look_at = 0.0
        self._asked: Future[float | None] | None = None
        self._failures = 0

    def note(self, error: KafkaError) -> None:
        """Hear what the client says of itself."""
        if errors.are_all_down(error):
            self._suspected = True

    def is_lost(self, client: Any) -> bool:
        """Tell whether the client is to be replaced; takes at most a few seconds, rarely."""
        if not self._suspected or self._now() < self._look_at:
            return False
        if self._asked is None:
            self._asked = self._ask_another()
        if not self._asked.done():
            return False
        took_s, self._asked = self._asked.result(), None
        self._look_at = self._now() + LOOK_S
        if took_s is None:
            self._failures = 0
        elif self._ask(client, _LEAST_S + _TIMES_SLOWER * took_s):
            self._suspected, self._failures = False, 0
        else:
            self._failures += 1
        return self._failures >= SURE

    def _ask_another(self) -> Future[float | None]:
        """Ask a new client, on a thread of its own; gives how long it took, None if in vain."""
        answer: Future[float | None] = Future()

        def ask() -> None:
            began = self._now()
            try:
                there = self._ask(AdminClient(self._settings), _PATIENCE_S)
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
        client.list_topics(timeout=timeout_s)
    except KafkaException:
        return False
    return True
