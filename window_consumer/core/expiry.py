"""When a record is too old for its handler."""

from __future__ import annotations

from typing import Literal

from attrs import frozen

from window_consumer.model.header_values import count_of_8_bytes
from window_consumer.model.headers import MAX_SKEW_S
from window_consumer.model.tokens import number_of


@frozen
class TtlHeader:
    """A header by which producers say how long a record may live."""

    name: str
    unit_s: float
    form: Literal["text", "int64be"]

    def ttl_s(self, value: bytes) -> float | None:
        """Return the seconds that a value stands for, None where it is malformed or not above 0."""
        if self.form == "int64be":
            number: float | None = count_of_8_bytes(value)
        else:
            number = number_of(value.decode("utf-8", "replace").strip())
        return number * self.unit_s if number is not None and number > 0 else None


@frozen
class ExpiryRules:
    """One worker's rules: a time to live for all of its records, or for those that ask for one."""

    ttl_s: float | None = None
    header: TtlHeader | None = None
    on_expired: Literal["dead_letter", "drop"] = "dead_letter"
    max_skew_s: float = MAX_SKEW_S

    def overdue_s(self, ttl_s: float, timestamp_ms: int | None, now_ms: int) -> float | None:
        """Return for how long a record has been expired, None where it is not.

        A record without a time, or with one in the future, never expires, and clocks may disagree
        by ``max_skew_s``.
        """
        if timestamp_ms is None or timestamp_ms <= 0:
            return None
        overdue_s = (now_ms - timestamp_ms) / 1000 - ttl_s
        return overdue_s if overdue_s > self.max_skew_s else None
