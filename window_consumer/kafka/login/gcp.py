"""``login: gcp``: Google's Managed Service for Apache Kafka, by google-auth.

The service expects the access token of a Google account, wrapped in the form of a JWT.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from datetime import UTC
from typing import Any, ClassVar, Final

from attrs import field, frozen

from window_consumer.kafka.login.login import Login, TokenUnavailableError, login_key
from window_consumer.kafka.oauth import OauthToken

_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_HEADER: Final = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}


@frozen(kw_only=True)
class GcpLogin(Login):
    """Google Cloud, with Application Default Credentials."""

    kind: ClassVar[str] = "gcp"
    extra: ClassVar[str] = "gcp"
    library: ClassVar[str] = "google.auth"

    principal: str = field(
        default="",
        metadata=login_key(
            "The account's e-mail address. Default: that of the credentials' service account."
        ),
    )

    @property
    def source(self) -> str:
        return "Application Default Credentials"

    def token_function(self) -> OauthToken:
        import google.auth  # noqa: PLC0415 - an optional extra
        from google.auth.transport.urllib3 import Request  # noqa: PLC0415 - as above
        from urllib3 import PoolManager  # noqa: PLC0415 - comes with it

        credentials, _ = google.auth.default(scopes=[_SCOPE])
        request = Request(PoolManager())

        def token(_config: str) -> tuple[Any, ...]:
            # Always: a cached token would be as old as the one to replace.
            credentials.refresh(request)
            expiry = credentials.expiry.replace(tzinfo=UTC).timestamp()  # naive, in UTC
            principal = self.principal or _account_of(credentials)
            return _wrapped(credentials.token, principal, expiry), expiry

        return token


def _account_of(credentials: Any) -> str:
    for attribute in ("service_account_email", "account"):
        found = getattr(credentials, attribute, "")
        if found and found != "default":
            return str(found)
    raise TokenUnavailableError(
        "the credentials name no service account: write {kind: gcp, principal: NAME@...}"
    )


def _wrapped(token: str, principal: str, expiry: float) -> str:
    claims = {
        "exp": expiry,
        "iat": time.time(),
        "iss": "Google",
        "sub": principal,
        "scope": "kafka",
    }
    return ".".join((_encoded(_HEADER), _encoded(claims), _base64(token.encode())))


def _encoded(part: Mapping[str, Any]) -> str:
    return _base64(json.dumps(part).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
