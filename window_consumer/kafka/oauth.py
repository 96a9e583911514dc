"""OAUTHBEARER tokens: from the application's function, or a login's, to all clients."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from window_consumer.kafka.client_log import ClientLog, Mask
from window_consumer.model.errors import AuthenticationError, WindowConsumerError
from window_consumer.model.log_events import LogEvent

OauthToken = Callable[[str], tuple[Any, ...]]
"""The client's oauth_cb: sasl.oauthbearer.config to (token, expiry in seconds since 1970, ...)."""

FUNCTION = "oauth_cb"
"""The setting with the function."""

ARGUMENT = "sasl.oauthbearer.config"
"""The setting that librdkafka passes to the function."""

_MOST_SHOWN = 500
"""The most characters of an exception in a message."""

_MOST_EXPIRY = 253_402_300_800.0
"""The year 10000. A later expiry is infinite, or in milliseconds, and would never be renewed."""

_WORTH_S = 1.0
"""An earlier token is reused while it remains valid for longer than this."""


def uses_tokens(settings: Mapping[str, Any]) -> bool:
    """Return whether a client with these settings needs a token function.

    Give the function to no other client: it would never call it, wait ten seconds for a token while
    it is created, and then fail. A client with a login brings its own function.
    """
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", ""))
    protocol = str(settings.get("security.protocol", ""))
    method = str(settings.get("sasl.oauthbearer.method", "default"))
    return (
        str(mechanism).upper() == "OAUTHBEARER"
        and protocol.upper().startswith("SASL_")
        and method.lower() == "default"
        and FUNCTION not in settings
    )


def token_setting(settings: Mapping[str, Any], token: OauthToken | None) -> dict[str, Any]:
    """Return the setting that makes a client ask for tokens, or nothing if it needs none."""
    return {FUNCTION: token} if token is not None and uses_tokens(settings) else {}


def tokens_for(settings: Mapping[str, Any], application: OAuthTokens | None) -> OAuthTokens | None:
    """Return the tokens of the login in these settings, or None."""
    own = settings.get(FUNCTION)
    if isinstance(own, OAuthTokens):
        return own
    return application if uses_tokens(settings) else None


def missing_token(settings: Mapping[str, Any]) -> str | None:
    """Request a token for a client with these settings. Return the problem, or None.

    Call this before creating a client: without a token, that takes ten seconds and raises. Raises
    AuthenticationError if the credentials are refused.
    """
    tokens = tokens_for(settings, None)
    return None if tokens is None else tokens.trouble(str(settings.get(ARGUMENT, "")))


def _refuse_unusable(text: object, expiry: float) -> None:
    """Raise for a token that a client would drop, or never renew."""
    if not isinstance(text, str):
        raise TypeError(f"its token is of type {type(text).__name__}, not str")
    if not text or not text.isascii():
        raise ValueError("its token is empty, or not in ASCII")
    if not 0 <= expiry < _MOST_EXPIRY:
        raise ValueError("its expiry is not in seconds since 1970")


class OAuthTokens:
    """Calls the application's function for the clients, on their threads, several at once.

    A client ignores the function's exceptions and asks again after ten seconds; while it is being
    created, it gives up after ten. So failures are logged here, and a valid token of another client
    is reused.
    """

    def __init__(
        self,
        function: OauthToken,
        log: ClientLog,
        mask: Mask = str,
        name: str = "@app.oauth_token",
        now: Callable[[], float] = time.time,
    ):
        """``name`` is the function's name in messages; ``now`` returns seconds since 1970."""
        self._now = now
        self._function = function
        self._name = name
        self._log = log
        self._mask = mask
        self._last: dict[str, tuple[Any, ...]] = {}

    def __call__(self, config: str | None) -> tuple[Any, ...]:
        """Return a token for ``sasl.oauthbearer.config``. Raises the function's exceptions."""
        config = config or ""  # the client passes None where it is not set
        try:
            return self._ask(config)
        except BaseException as exception:
            earlier = self._last.get(config)
            left_s = 0.0 if earlier is None else earlier[1] - self._now()
            consequence = "trying again in 10 s"
            if left_s > _WORTH_S:
                consequence = f"using the last token, good for {left_s:.0f} s more"
            self._log.log(
                logging.WARNING,
                "%s; %s",
                self._failure_text(exception),
                consequence,
                event=LogEvent.TOKEN_REFUSED,
            )
            if earlier is None or left_s <= _WORTH_S:
                raise
            return earlier

    def trouble(self, config: str) -> str | None:
        """Request a token now. Return a temporary problem, secrets masked, or None.

        Raises AuthenticationError if the function did: then a retry is useless.
        """
        try:
            self._ask(config)
        except AuthenticationError as exception:
            raise AuthenticationError(self._mask(self._failure_text(exception))) from None
        except Exception as exception:
            return self._mask(self._failure_text(exception))
        return None

    def _ask(self, config: str) -> tuple[Any, ...]:
        token: Any = self._function(config)
        if not isinstance(token, tuple) or len(token) < 2:
            raise TypeError(f"it returned {type(token).__name__}, not (token, expiry)")
        expiry = float(token[1])
        _refuse_unusable(token[0], expiry)
        if expiry <= self._now():
            raise ValueError("the token that it returned has already expired")
        self._last[config] = (token[0], expiry, *token[2:])
        return self._last[config]

    def _failure_text(self, exception: BaseException) -> str:
        is_ours = isinstance(exception, WindowConsumerError)
        kind = "" if is_ours else f"{type(exception).__name__}: "
        text = " ".join(str(exception).split())  # Azure's has a dozen lines
        return f"{self._name}: no token: {kind}{text[:_MOST_SHOWN]}"
