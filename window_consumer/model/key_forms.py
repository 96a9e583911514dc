"""The forms of record keys in reports: unchanged, as a code, or omitted.

A key may name a person. Equal keys have equal codes, and with the secret one can compute a key's
code to search for it. Without the secret a code can neither be reversed nor found by trial (HMAC,
RFC 2104).
"""

from __future__ import annotations

import hmac
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from typing import Literal

KeyMode = Literal["raw", "hmac", "off"]

BINARY = "base64:"
"""The prefix of a key that is not UTF-8, or that itself begins with a prefix."""

CODE = "hmac:"
"""The prefix of a coded key."""

CODE_BYTES = 16
"""Half of SHA-256: two of a billion keys share a code with a probability of 10^-21."""

KeyForm = Callable[[bytes | None], str | None]
"""Returns the form of a key; None for a record without a key, and if keys are omitted."""


def key_form(mode: KeyMode, secret: bytes = b"") -> KeyForm:
    """Return a function from keys to their form; equal keys have equal forms.

    Raises ValueError for hmac without a secret: the codes could then be found by trial.
    """
    if mode == "off":
        return lambda _key: None
    if mode == "raw":
        return as_text
    if not secret:
        raise ValueError("keys cannot be coded (hmac): there is no secret")
    keyed = hmac.new(secret, digestmod="sha256")

    def code(key: bytes | None) -> str | None:
        if key is None:
            return None
        one = keyed.copy()
        one.update(key)
        return CODE + urlsafe_b64encode(one.digest()[:CODE_BYTES]).rstrip(b"=").decode()

    return code


def as_text(key: bytes | None) -> str | None:
    """Return a key as text that no other key has; None for None."""
    if key is None:
        return None
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return BINARY + b64encode(key).decode()
    if text.startswith((BINARY, CODE)):
        return BINARY + b64encode(key).decode()
    return text
