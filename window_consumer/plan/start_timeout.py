"""How long a start waits for missing services, and what it logs meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from time import monotonic, sleep
from typing import Any

from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.oauth import ARGUMENT, OAuthTokens, tokens_for
from window_consumer.model.errors import AuthenticationError, StartStoppedError
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.log import own_logger

LOGGER = own_logger()

SAY_S = 5.0
"""How often the log reports that no broker answers."""

_ASK_AGAIN_S = 1.0


class StartTimeout:
    """How long to wait for a broker, and what to log meanwhile."""

    def __init__(
        self, timeout_s: float | None = None, stop_asked: Callable[[], bool] = lambda: False
    ):
        self._deadline = inf if timeout_s is None else monotonic() + timeout_s
        self._stop_asked = stop_asked
        self._said_at = -inf

    def left_s(self) -> float:
        """Return the remaining seconds, infinity without a limit."""
        return max(0.0, self._deadline - monotonic())

    def waiting(self, worker: str, cluster: Cluster) -> Callable[[str, float], None]:
        """Return the callback for a worker that waits for its cluster."""

        def on_wait(reason: str, waited_s: float) -> None:
            if self._stop_asked():
                raise StartStoppedError("stopped while waiting for a broker")
            if monotonic() - self._said_at >= SAY_S:
                self._said_at = monotonic()
                LOGGER.warning(
                    "%s: no broker at %s answers (%s); trying for %.0f s now",
                    worker,
                    cluster.bootstrap,
                    reason,
                    waited_s,
                    extra={
                        "event": LogEvent.BROKER_AWAITED,
                        "worker": worker,
                        "bootstrap": cluster.bootstrap,
                    },
                )

        return on_wait

    def wait_for_token(
        self, worker: str, settings: Mapping[str, Any], application: OAuthTokens | None
    ) -> None:
        """Wait until a client with these settings can get a token, if it needs one.

        Tries its login or the application's function once a second. Raises AuthenticationError at
        the deadline, and when a token server refuses the credentials. Call it before creating any
        client: without a token, that would fail without a reason.
        """
        tokens = tokens_for(settings, application)
        if tokens is None:
            return
        config = str(settings.get(ARGUMENT, ""))
        started = monotonic()
        while True:
            try:
                failure = tokens.trouble(config)
            except AuthenticationError as error:
                raise AuthenticationError(f"{worker}: {error}") from None
            if failure is None:
                return
            if self._stop_asked():
                raise StartStoppedError("stopped while waiting for a token")
            if not self.left_s():
                raise AuthenticationError(f"{worker}: {failure}")
            if monotonic() - self._said_at >= SAY_S:
                self._said_at = monotonic()
                waited_s = monotonic() - started
                LOGGER.warning(
                    "%s: %s; trying for %.0f s now",
                    worker,
                    failure,
                    waited_s,
                    extra={"event": LogEvent.TOKEN_AWAITED},
                )
            sleep(min(_ASK_AGAIN_S, self.left_s()))
