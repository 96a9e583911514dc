"""``login: {kind: oidc}``: tokens from a token endpoint, by the client credentials grant.

librdkafka can do the same (``sasl.oauthbearer.method: oidc``), but then each client has its own
tokens, and a token server that is down looks like a broker that refuses the login.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import time
from collections.abc import Iterator
from http import HTTPStatus
from http.client import HTTPException
from typing import Any, ClassVar, Final, NoReturn
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, OpenerDirector, Request, build_opener

from attrs import field, frozen

from window_consumer.kafka.login.login import (
    Login,
    TokenRefusedError,
    TokenUnavailableError,
    login_key,
)
from window_consumer.kafka.oauth import OauthToken

_TIMEOUT_S: Final = 8.0
"""Below the ten seconds that a new client waits for its first token."""

_MOST_BYTES: Final = 1024 * 1024
"""The largest answer to read; tokens have a few kilobytes."""

_MOST_SHOWN: Final = 300
"""Characters of a refusal that a message shows."""

_REFUSALS: Final = {HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
"""RFC 6749 answers wrong credentials with 400 or 401."""

_EXTENSION: Final = re.compile(r"[A-Za-z]+")
"""The name of an extension, by RFC 7628."""


@frozen(kw_only=True)
class OidcLogin(Login):
    """Any OAuth 2.0 server: Keycloak, Okta, Auth0, Entra ID ..."""

    kind: ClassVar[str] = "oidc"

    token_url: str = field(metadata=login_key("The token endpoint, https://...", required=True))
    client_id: str = field(metadata=login_key("The client's id.", required=True))
    client_secret: str = field(
        repr=False,
        metadata=login_key(
            "The client's secret: ${file:...} or ${VARIABLE}.", required=True, secret=True
        ),
    )
    scope: str = field(default="", metadata=login_key("Scopes, separated by spaces."))
    audience: str = field(
        default="", metadata=login_key("The audience, for servers that require one, such as Auth0.")
    )
    extensions: tuple[tuple[str, str], ...] = field(
        default=(),
        metadata=login_key(
            "Extensions that the broker gets with the token; Confluent Cloud requires"
            " logicalCluster and identityPoolId."
        ),
    )
    ca_file: str = field(
        default="",
        metadata=login_key(
            "A PEM file with the authorities of the token endpoint, if it is not the system's."
        ),
    )

    @property
    def source(self) -> str:
        return self.token_url

    def obstacles(self) -> Iterator[tuple[str, str]]:
        yield from super().obstacles()
        try:
            url = urlsplit(self.token_url)
            is_url = url.scheme in {"https", "http"} and bool(url.hostname) and url.port != 0
        except ValueError:
            is_url = False
        if not is_url:
            yield "token_url", "is not a token endpoint's URL, such as https://sso.example/token"
        if self.ca_file:
            try:
                ssl.create_default_context(cafile=self.ca_file)
            except OSError as error:  # SSLError is one
                yield "ca_file", f"cannot be used: {error.strerror or error}: name a PEM file"
        for name, _ in self.extensions:
            if not _EXTENSION.fullmatch(name) or name == "auth":
                yield "extensions", f"{name!r} is not an extension's name: those consist of letters"

    def token_function(self) -> OauthToken:
        opener = self._opener()
        return lambda _config: self._token(opener)

    def _opener(self) -> OpenerDirector:
        context = ssl.create_default_context(cafile=self.ca_file or None)
        return build_opener(_NoRedirects, HTTPSHandler(context=context))

    def _token(self, opener: OpenerDirector) -> tuple[Any, ...]:
        asked_at = time.time()
        answer = self._answer(opener)
        token = answer.get("access_token")
        if not isinstance(token, str) or not token:
            raise TokenUnavailableError("the answer has no access_token")
        return token, _expiry(answer, token, asked_at), "", dict(self.extensions)

    def _answer(self, opener: OpenerDirector) -> dict[str, Any]:
        try:
            with opener.open(self._request(), timeout=_TIMEOUT_S) as response:
                answer = json.loads(response.read(_MOST_BYTES))
        except HTTPError as error:
            self._refuse(error)
        except (URLError, HTTPException, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise TokenUnavailableError(f"no answer: {reason}") from None
        except ValueError:
            raise TokenUnavailableError("the answer is not JSON: is it a token endpoint?") from None
        if not isinstance(answer, dict):
            raise TokenUnavailableError("the answer is not a JSON object: is it a token endpoint?")
        return answer

    def _request(self) -> Request:
        wanted = {"scope": self.scope, "audience": self.audience}
        form = {"grant_type": "client_credentials"}
        form |= {name: value for name, value in wanted.items() if value}
        # RFC 6749, 2.3.1: both parts are encoded before they are joined.
        pair = f"{quote(self.client_id, safe='')}:{quote(self.client_secret, safe='')}"
        headers = {
            "Accept": "application/json",
            "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        return Request(  # noqa: S310 - `obstacles` allows only http and https
            self.token_url, urlencode(form).encode(), headers
        )

    def _refuse(self, error: HTTPError) -> NoReturn:
        try:
            body = error.read(_MOST_BYTES)
        except (HTTPException, OSError):
            body = b""
        status = f"{error.code} {error.reason}".strip()
        said = _refusal_text(body)
        text = f"{status}: {said}" if said else status
        if error.code in _REFUSALS:
            raise TokenRefusedError(
                f"the token endpoint refuses the client {self.client_id}: {text}: check client_id,"
                " client_secret and scope"
            ) from None
        raise TokenUnavailableError(f"the token endpoint answers {text}") from None


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirects, which would send the secret to another address."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _refusal_text(body: bytes) -> str:
    try:
        answer = json.loads(body)
    except ValueError:
        return ""
    if not isinstance(answer, dict):
        return ""
    said = (answer.get("error"), answer.get("error_description"))
    text = ": ".join(str(each) for each in said if each)
    return " ".join(text.split())[:_MOST_SHOWN]


def _expiry(answer: dict[str, Any], token: str, asked_at: float) -> float:
    """Return when a token expires, by our clock if the answer allows."""
    given = answer.get("expires_in")
    if given is not None:
        try:
            return asked_at + float(given)
        except (TypeError, ValueError):
            pass
    try:
        payload = token.split(".")[1]
        return float(
            json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"]
        )
    except (IndexError, KeyError, TypeError, ValueError):
        raise TokenUnavailableError(
            "the answer has no expires_in, so the token's expiry is unknown"
        ) from None
