"""The layer around a worker's handlers that keeps expired records from them."""

from __future__ import annotations

from collections.abc import Callable

from window_consumer.core.expiry import ExpiryRules, TtlHeader
from window_consumer.model.errors import Expired
from window_consumer.model.record import Record
from window_consumer.model.record_lookup import IsCopy, WallMs, first_timestamp
from window_consumer.runtime.thread_pool import Handler

__handler_layer__ = True  # its frames are no part of a failure, see faults.py

Warn = Callable[[str], None]

_SHOWN_BYTES = 40


def with_expiry(
    handler: Handler, rules: ExpiryRules, is_copy: IsCopy, wall_ms: WallMs, warn: Warn
) -> Handler:
    """Raise Expired instead of calling the handler for a record that is too old.

    A header that makes no sense expires nothing; ``warn`` is told of the first.
    """
    if rules.ttl_s is None and rules.header is None:
        return handler
    ttl_of = _ttl_of(rules, warn)

    def call(record: Record) -> object:
        ttl_s = ttl_of(record)
        if ttl_s is not None:
            timestamp = first_timestamp(record, is_copy)
            overdue_s = rules.overdue_s(ttl_s, timestamp, wall_ms())
            if overdue_s is not None:
                raise Expired(
                    f"expired {overdue_s:.1f} s ago, its time to live was {ttl_s:g} s",
                    rules.on_expired,
                )
        return handler(record)

    return call


def _ttl_of(rules: ExpiryRules, warn: Warn) -> Callable[[Record], float | None]:
    header = rules.header
    if header is None:
        return lambda _record: rules.ttl_s
    return _read_header(header, warn)


def _read_header(header: TtlHeader, warn: Warn) -> Callable[[Record], float | None]:
    said = False

    def read(record: Record) -> float | None:
        nonlocal said
        value = record.header(header.name)
        if value is None:
            return None
        ttl_s = header.ttl_s(value)
        if ttl_s is None and not said:
            said = True
            warn(
                f"{record.topic}[{record.partition}]@{record.offset}: the header {header.name!r} is"
                f" no time to live in the form {header.form}: {value[:_SHOWN_BYTES]!r}; records"
                " with such a header do not expire (said once)"
            )
        return ttl_s

    return read
