"""Detects a login that the brokers refuse for too long.

The client tries to log in forever, and reports equal errors once in 30 s. A new client, which
requests the list of brokers, shows whether the login is still refused.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from threading import Thread
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from window_consumer.kafka import errors
from window_consumer.kafka.oauth import missing_token
from window_consumer.kafka.settings import PRODUCER_ONLY
from window_consumer.kafka.watchdogs.client import has_brokers
from window_consumer.model.errors import AuthenticationError

PATIENCE: Final = "socket.connection.setup.timeout.ms"
"""The client's own limit for a connection's set-up, which includes the login."""

_PATIENCE_MS: Final = 30_000
_ASK_S: Final = 5.0
"""How long a new client may take, and the pause until the next one."""


class LoginWatchdog:
    """Watches the login of one client. Any thread may call ``record_error``; one owns the rest."""

    def __init__(self, settings: Mapping[str, Any]):
        """Take the client's settings."""
        plain = {key: value for key, value in settings.items() if key not in PRODUCER_ONLY}
        self._settings = {**plain, "log_level": 0}
        self._patience_s = int(settings.get(PATIENCE, _PATIENCE_MS)) / 1000
        self._refused_since: float | None = None
        self._ask_at = 0.0
        self._asked: Future[str | None] | None = None

    def record_error(self, error: KafkaError) -> None:
        """Record an error that the client reports about itself."""
        if errors.is_authentication(error) and self._refused_since is None:
            self._refused_since = time.monotonic()

    def refusal(self) -> str | None:
        """Return why the brokers have refused the login for too long; otherwise None, at once."""
        now = time.monotonic()
        since = self._refused_since
        if since is None or now - since < self._patience_s or now < self._ask_at:
            return None
        if self._asked is None:
            self._asked = self._ask()
        if not self._asked.done():
            return None
        reason, self._asked = self._asked.result(), None
        self._ask_at = now + min(_ASK_S, self._patience_s)
        return reason

    def _ask(self) -> Future[str | None]:
        """Request the list of brokers; return why the login is refused, None if it is not."""
        answer: Future[str | None] = Future()

        def ask() -> None:
            reasons: list[str] = []

            def on_error(error: KafkaError) -> None:
                if errors.is_authentication(error):
                    reasons.append(errors.text_of(error))

            try:
                if missing_token(self._settings) is not None:
                    answer.set_result(None)  # an absent token server is not a refusal
                    return
                settings: dict[str, Any] = {**self._settings, "error_cb": on_error}
                client = AdminClient(settings)
                if has_brokers(client, _ASK_S):
                    self._refused_since = None
                    reasons.clear()
                client.poll(0)
            except AuthenticationError as error:
                answer.set_result(str(error))
            except KafkaException:
                answer.set_result(None)  # the same, from the application's function
            except Exception as exception:
                answer.set_exception(exception)
            else:
                answer.set_result(reasons[-1] if reasons else None)

        Thread(target=ask, name="wc-login", daemon=True).start()
        return answer
