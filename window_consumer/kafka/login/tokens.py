"""The tokens of one login, shared by all clients of the process."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.login.login import Login
from window_consumer.kafka.oauth import OauthToken, OAuthTokens
from window_consumer.model.redaction import Mask

_FRESH: Final = 0.5
"""The share of a token's lifetime during which clients get it without a request.

librdkafka asks again after 0.8 of the remaining time, so a shared token is renewed in time.
"""


class LoginTokens(OAuthTokens):
    """Gets tokens for a login, and gives every client a fresh one. Any thread may call it.

    If two threads each request a token at the same moment, this costs one more request. Unpickled
    in another process, it uses that process' tokens.
    """

    def __init__(
        self, login: Login, log: ClientLog, mask: Mask, now: Callable[[], float] = time.time
    ):
        super().__init__(self._get, log, mask, f"kafka.login: {login.kind}: {login.source}", now)
        self.login = login
        self._vendor: OauthToken | None = None
        self._got_at = 0.0

    def _ask(self, config: str) -> tuple[Any, ...]:
        last = self._last.get(config)
        now = self._now()
        if last is not None:
            stale_at = self._got_at + _FRESH * (last[1] - self._got_at)
            if self._got_at <= now < stale_at:
                return last
        found = super()._ask(config)
        self._got_at = now
        return found

    def _get(self, config: str) -> tuple[Any, ...]:
        if self._vendor is None:
            self._vendor = self.login.token_function()
        return self._vendor(config)

    def __reduce__(self) -> tuple[Callable[[Login], LoginTokens], tuple[Login]]:
        return login_tokens, (self.login,)

    def __repr__(self) -> str:
        return f"<tokens of {self.login!r}>"


@cache
def login_tokens(login: Login) -> LoginTokens:
    """Return the tokens of a login, the same for equal logins."""
    mask = Mask(login.secrets)
    return LoginTokens(login, ClientLog(logging.getLogger("window_consumer.client"), mask), mask)
