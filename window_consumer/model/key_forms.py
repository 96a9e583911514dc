"""How record keys stand in what is written about records: as they are, as a code, or not at all.

A key may name a person. Its code tells equal keys as equal, and who has the secret can look for a
key by its code, but nobody can read it back, nor find it by trying without the secret (HMAC,
RFC 2104).
"""

from __future__ import annotations

import hmac
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from typing import Literal

KeyMode = Literal["raw", "hmac", "off"]

BINARY = "base64:"
"""Begins the form of a key that is no UTF-8, or that would look like such a form itself."""

CODE = "hmac:"
"""Begins the form of a key that is not to be read."""

CODE_BYTES = 16
"""Half of SHA-256: that two of a billion keys have one code has a probability of 10^-21."""

KeyForm = Callable[[bytes | None], str | None]
"""Gives the form of a key; None for a record without one, and where keys are left out."""


def key_form(mode: KeyMode, secret: bytes = b"") -> KeyForm:
    """Return what gives the form of keys; the same key always has the same one.

    Raises ValueError for hmac without a secret: anybody could try all keys out.
    """
    if mode == "off":
        return lambda _key: None
    if mode == "raw":
        return as_text
    if not secret:
        raise ValueError("keys are to be coded (hmac), and there is no secret to do it with")
    keyed = hmac.new(secret, digestmod="sha256")

    def code(key: bytes | None) -> str | None:
        if key is None:
            return None
        one = keyed.copy()
        one.update(key)
        return CODE + urlsafe_b64encode(one.digest()[:CODE_BYTES]).rstrip(b"=").decode()

    return code


def as_text(key: bytes | None) -> str | None:
    """Return a key as text that no other key has; None for none."""
    if key is None:
        return None
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return BINARY + b64encode(key).decode()
    if text.startswith((BINARY, CODE)):
        return BINARY + b64encode(key).decode()
    return text
