"""Signatures of requests, as defined by Standard Webhooks.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterator
from typing import Final

from attrs import field, frozen

from window_consumer.config import kinds
from window_consumer.config.options import about
from window_consumer.config.problems import Problem

_PREFIX: Final = "whsec_"
_KEY_BYTES: Final = range(24, 65)
_HOW: Final = "write whsec_ and 24 to 64 bytes in base64, as `openssl rand -base64 32` prints them"


@frozen(kw_only=True)
class SignConfig:
    """How requests are signed."""

    secret: str | None = field(
        default=None,
        metadata=about(
            "Signs each request according to Standard Webhooks: whsec_ and a key in base64.",
            kind=kinds.text("a secret"),
            default="none: requests are not signed",
            secret=True,
        ),
    )
    previous_secret: str | None = field(
        default=None,
        metadata=about(
            "Also signs each request: services may still have the previous secret.",
            kind=kinds.text("a secret"),
            default="none",
            secret=True,
        ),
    )


def wrong_secrets(section: SignConfig, given: Collection[str]) -> Iterator[Problem]:
    """Yield problems with the secrets, without showing them."""
    for name in ("secret", "previous_secret"):
        secret = getattr(section, name)
        if secret is not None and key_in(secret) is None:
            yield Problem((name,), f"is not a secret of Standard Webhooks: {_HOW}")
    if "previous_secret" in given and section.secret is None:
        yield Problem(("secret",), f"is missing: {_HOW}")


def key_in(secret: str) -> bytes | None:
    """Return the key in a secret; None if there is none."""
    text = secret.removeprefix(_PREFIX).rstrip("=")
    try:
        key = b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        return None
    return key if len(key) in _KEY_BYTES else None


class Signer:
    """Signs requests. Any thread may call it."""

    def __init__(self, section: SignConfig):
        secrets = (section.secret, section.previous_secret)
        found = (None if secret is None else key_in(secret) for secret in secrets)
        self._keys = [key for key in found if key is not None]

    @property
    def signs(self) -> bool:
        """Whether there is a secret."""
        return bool(self._keys)

    def headers(self, request_id: str, body: bytes, wall_ms: int) -> list[tuple[str, str]]:
        """Return the headers that sign a request; none without a secret.

        ``wall_ms`` is the time in milliseconds since 1970: services refuse old requests.
        """
        if not self._keys:
            return []
        # A full stop in an id could be mistaken for the one after it.
        name = request_id.replace("%", "%25").replace(".", "%2E")
        seconds = str(wall_ms // 1000)
        signed = f"{name}.{seconds}.".encode() + body
        signatures = (b64encode(hmac.digest(key, signed, "sha256")).decode() for key in self._keys)
        return [
            ("webhook-id", name),
            ("webhook-timestamp", seconds),
            ("webhook-signature", " ".join(f"v1,{each}" for each in signatures)),
        ]
