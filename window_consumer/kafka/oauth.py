"""OAUTHBEARER tokens: from the application's function to all of its clients."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from window_consumer.kafka.client_log import ClientLog, Mask
from window_consumer.model.log_events import LogEvent

OauthToken = Callable[[str], tuple[Any, ...]]
"""The client's oauth_cb: sasl.oauthbearer.config to (token, expiry in seconds since 1970, ...)."""

ARGUMENT = "sasl.oauthbearer.config"
"""The setting that librdkafka passes to the function."""

_WORTH_S = 1.0
"""An earlier token is reused while it remains valid for longer than this."""


def uses_tokens(settings: Mapping[str, Any]) -> bool:
    """Return whether a client with these settings asks the application for tokens.

    Only such a client may be given a token function. Any other never calls it, waits ten seconds
    for a token while it is created, and then fails.
    """
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", ""))
    protocol = str(settings.get("security.protocol", ""))
    method = str(settings.get("sasl.oauthbearer.method", "default"))
    return (
        str(mechanism).upper() == "OAUTHBEARER"
        and protocol.upper().startswith("SASL_")
        and method.lower() == "default"
    )


def token_setting(settings: Mapping[str, Any], token: OauthToken | None) -> dict[str, Any]:
    """Return the setting that makes a client ask for tokens, or nothing if it needs none."""
    return {"oauth_cb": token} if token is not None and uses_tokens(settings) else {}


class OAuthTokens:
    """Calls the application's function for the clients, on their threads, several at once.

    A client drops what the function raises and asks again after ten seconds; while it is created,
    it gives up after ten. So failures are logged here, and a valid token of another client is
    reused.
    """

    def __init__(self, function: OauthToken, log: ClientLog, mask: Mask = str):
        self._function = function
        self._log = log
        self._mask = mask
        self._last: dict[str, tuple[Any, ...]] = {}

    def __call__(self, config: str) -> tuple[Any, ...]:
        """Return a token for ``sasl.oauthbearer.config``. Raise what the function raised."""
        try:
            return self._ask(config)
        except BaseException as exception:
            earlier = self._last.get(config)
            left_s = 0.0 if earlier is None else earlier[1] - time.time()
            consequence = "trying again in 10 s"
            if left_s > _WORTH_S:
                consequence = f"using the last token, good for {left_s:.0f} s more"
            self._log.log(
                logging.WARNING,
                "%s; %s",
                _failure_text(exception),
                consequence,
                event=LogEvent.TOKEN_REFUSED,
            )
            if earlier is None or left_s <= _WORTH_S:
                raise
            return earlier

    def trouble(self, config: str) -> str | None:
        """Ask for a token now. Return what is wrong, secrets masked, or None."""
        try:
            self._ask(config)
        except Exception as exception:
            return self._mask(_failure_text(exception))
        return None

    def _ask(self, config: str) -> tuple[Any, ...]:
        token: Any = self._function(config)
        if not isinstance(token, tuple) or len(token) < 2:
            raise TypeError(f"it returned {type(token).__name__}, not (token, expiry)")
        expiry = float(token[1])
        if expiry <= time.time():
            raise ValueError("the token that it returned has expired already")
        self._last[config] = (token[0], expiry, *token[2:])
        return self._last[config]


def _failure_text(exception: BaseException) -> str:
    return f"@app.oauth_token: no token: {type(exception).__name__}: {exception}"
