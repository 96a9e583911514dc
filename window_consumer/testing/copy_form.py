"""What a copy has to look like, compared with the record that it is a copy of."""

from __future__ import annotations

from window_consumer.model import headers as names
from window_consumer.model.protocols import Headers
from window_consumer.testing.fake_log import FakeMessage

MAX_OURS_BYTES = 8 * 1024
"""All of our headers together, names and values, however many hops there were."""

_PRODUCERS = names.KEPT_ON_FOREIGN_TOPICS - {names.ID, names.REDRIVES}
"""Of our headers those that a producer writes, as long as it likes."""


def differences(
    first: FakeMessage, key: bytes | None, value: bytes | None, headers: Headers
) -> list[str]:
    """Say where a copy differs from the record of the source topic, however many hops ago.

    Empty where it is as it should be.
    """
    found = []
    ours = [name for name, _ in headers if name.startswith(names.PREFIX)]
    by_name = dict(headers)
    if key != first.key():
        found.append(f"key {key!r}")
    if value != first.value() and names.VALUE_REF not in by_name:
        found.append(f"value {value!r}")
    if _users(headers) != _users(first.headers() or ()):
        found.append(f"headers {headers}")
    if len(ours) != len(set(ours)):
        found.append(f"headers of ours that were appended: {ours}")
    size = sum(len(name) + len(value or b"") for name, value in headers if _is_written_by_us(name))
    if size > MAX_OURS_BYTES:
        found.append(f"{size} bytes of headers of ours")
    if len(by_name.get(names.ERROR_STACK) or b"") > names.MAX_ERROR_STACK_BYTES:
        found.append("an error stack that is too long")
    if len(by_name.get(names.ERROR_MESSAGE) or b"") > names.MAX_ERROR_MESSAGE_BYTES:
        found.append("an error message that is too long")
    kept = dict(first.headers() or ())
    found.extend(
        f"header {name} was not kept"
        for name in sorted(_PRODUCERS)
        if by_name.get(name) != kept.get(name)
    )
    return found


def _is_written_by_us(name: str) -> bool:
    return name.startswith(names.PREFIX) and name not in _PRODUCERS


def _users(headers: Headers) -> list[tuple[str, bytes | None]]:
    return [(name, value) for name, value in headers if not name.startswith(names.PREFIX)]
