"""Detects a client that will never find its cluster again.

A lone broker that is fenced, because it stops or was asleep, reports that the cluster has no
brokers. If the client's last connection ends with that answer, librdkafka (2.10 and later, seen
with 2.16) drops every broker, and the same answer cancels its return to ``bootstrap.servers``: it
never sends a request again (https://github.com/confluentinc/librdkafka/issues/5301). Only a new
client helps. Most such clients at least report that all brokers are down; one in some hundreds
reports nothing at all, calls no callback and logs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from threading import Thread
from typing import Any, Final, Protocol

from attrs import frozen
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from window_consumer.kafka import errors
from window_consumer.kafka.oauth import missing_token
from window_consumer.model.errors import AuthenticationError

CHECK_S: Final = 5.0
"""Pause between two checks while there is a reason to check."""

SURE: Final = 2
"""How many checks in a row must agree."""

SILENT_S: Final = 60.0
"""A client that got nothing for this long is also checked, if ``notices_silence`` is set."""

_DEADLINE_S: Final = 3.0
"""How long a new client may take for an answer."""

_LEAST_S: Final = 0.5
_FETCH_WAIT_MS: Final = 500
"""The client's default. A broker answers the requests of one connection in order, so an answer may
wait behind an earlier fetch that waits for records.
"""

_TIMES_SLOWER: Final = 3.0
"""How much longer the client may take than a new one, which must connect first."""

Ask = Callable[[Any, float], bool]


@frozen
class ClientWatchdogTimes:
    """When a client is checked, in seconds."""

    check_s: float = CHECK_S
    silent_s: float = SILENT_S


class MakeClientWatchdog(Protocol):
    """Makes the watchdog of a new client."""

    def __call__(
        self, settings: Mapping[str, Any], *, notices_silence: bool = False
    ) -> ClientWatchdog:
        """Return a watchdog for a client with these settings."""


class ClientWatchdog:
    """Watches one client. Any thread may call ``record_error`` and ``suspect``; one owns the rest.

    It checks only with a reason, and tests the client itself only after a new one got an answer, so
    nothing waits while the cluster is away.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        ask: Ask | None = None,
        now: Callable[[], float] = time.monotonic,
        *,
        notices_silence: bool = False,
        times: ClientWatchdogTimes = ClientWatchdogTimes(),
    ):
        """Take the client's settings and a function that sends a client a small request.

        With ``notices_silence``, ``times.silent_s`` without ``on_contact`` is also a reason.
        """
        plain = {key: value for key, value in settings.items() if key not in _OF_THE_CLIENT}
        self._settings = {**plain, "log_level": 0}
        self._ask = ask or has_brokers
        self._now = now
        self._fetch_wait_ms = settings.get("fetch.wait.max.ms", _FETCH_WAIT_MS)
        self._notices_silence = notices_silence
        self._times = times
        self._contact_at = now()
        self._suspected = False
        self._look_at = 0.0
        self._asked: Future[float | None] | None = None
        self._failures = 0

    def record_error(self, error: KafkaError) -> None:
        """Record an error that the client reports about itself."""
        if errors.are_all_down(error):
            self.suspect()

    def suspect(self) -> None:
        """Record a reason to check, such as a request without an answer."""
        self._suspected = True

    def on_contact(self) -> None:
        """Record that something arrived from the cluster, or that nothing was expected."""
        self._contact_at = self._now()

    def is_lost(self, client: Any) -> bool:
        """Return whether the client must be replaced; in rare cases this takes a few seconds."""
        now = self._now()
        if self._notices_silence and now - self._contact_at >= self._times.silent_s:
            self.suspect()
        if not self._suspected or now < self._look_at:
            return False
        if self._asked is None:
            self._asked = self._ask_another()
        if not self._asked.done():
            return False
        took_s, self._asked = self._asked.result(), None
        self._look_at = self._now() + self._times.check_s
        if took_s is None:
            self._failures = 0
        elif self._ask(client, self._deadline_s(took_s)):
            self._suspected, self._failures = False, 0
            self.on_contact()
        else:
            self._failures += 1
        return self._failures >= SURE

    def _deadline_s(self, took_s: float) -> float:
        """Return how long the client may take if a new one took ``took_s``."""
        return _LEAST_S + int(self._fetch_wait_ms) / 1000 + _TIMES_SLOWER * took_s

    def _ask_another(self) -> Future[float | None]:
        """Ask a new client on a separate thread; the result is its duration, None if it failed."""
        answer: Future[float | None] = Future()

        def ask() -> None:
            began = self._now()
            try:
                there = missing_token(self._settings) is None and self._ask(
                    AdminClient(self._settings), _DEADLINE_S
                )
            except (AuthenticationError, KafkaException):
                # Without a token no new client is created, but this one may be healthy.
                answer.set_result(None)
            except Exception as exception:
                answer.set_exception(exception)
            else:
                answer.set_result(self._now() - began if there else None)

        Thread(target=ask, name="wc-lifeline", daemon=True).start()
        return answer


_OF_THE_CLIENT: Final = frozenset(
    {"debug", "error_cb", "on_commit", "on_delivery", "statistics.interval.ms", "stats_cb"}
)
"""Settings that a new client does not need for a single request."""


def has_brokers(client: Any, timeout_s: float) -> bool:
    """Return whether a client gets an answer that names brokers."""
    try:
        # An answer without brokers does not count: it makes a client lose its cluster.
        return bool(client.list_topics(timeout=timeout_s).brokers)
    except KafkaException:
        return False
