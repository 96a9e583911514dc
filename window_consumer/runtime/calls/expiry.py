"""Expired records never reach handlers: they leave at their turn, or right before a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from attrs import evolve, field, frozen

from window_consumer.engine.partition import Partition
from window_consumer.engine.turn import Leave, Turn, TurnRule
from window_consumer.model.conditions.lookup import first_timestamp
from window_consumer.model.conditions.tokens import number_of
from window_consumer.model.errors import Expired
from window_consumer.model.header_values import count_of_8_bytes
from window_consumer.model.headers import MAX_SKEW_S
from window_consumer.model.log_events import LogEvent, Warn
from window_consumer.model.record import Call, Message, Record
from window_consumer.runtime.calls.layer import CallForm, CallSite, CallTools, LayerPlace
from window_consumer.runtime.calls.steps import Called


@frozen
class TtlHeader:
    """A header by which producers set a record's time to live."""

    name: str
    unit_s: float
    form: Literal["text", "int64be"]

    def ttl_s(self, value: bytes) -> float | None:
        """Return the seconds in a header value, None if it is malformed or not above 0."""
        if self.form == "int64be":
            number: float | None = count_of_8_bytes(value)
        else:
            number = number_of(value.decode("utf-8", "replace").strip())
        return number * self.unit_s if number is not None and number > 0 else None


@frozen
class ExpiryRules:
    """A worker's rules: one time to live for all records, or each record's own."""

    ttl_s: float | None = None
    header: TtlHeader | None = None
    on_expired: Literal["dead_letter", "drop"] = "dead_letter"
    max_skew_s: float = MAX_SKEW_S

    @property
    def expires_any(self) -> bool:
        """Whether records may expire."""
        return self.ttl_s is not None or self.header is not None

    def overdue_s(self, ttl_s: float, timestamp_ms: int | None, now_ms: int) -> float | None:
        """Return for how many seconds a record has been expired, None if it is not.

        A record without a timestamp, or with one in the future, never expires. Clocks may differ by
        ``max_skew_s``.
        """
        if timestamp_ms is None or timestamp_ms <= 0:
            return None
        overdue_s = (now_ms - timestamp_ms) / 1000 - ttl_s
        return overdue_s if overdue_s > self.max_skew_s else None


__handler_layer__ = True  # its frames are no part of a failure, see runtime/stack.py


_SHOWN_BYTES = 40


@frozen
class ExpiryLayer:
    """Raises Expired instead of calling the handler for an expired record.

    A malformed header expires nothing; the first one is a warning.
    """

    rules: ExpiryRules
    place: LayerPlace = LayerPlace.EXPIRY
    in_children: None = None

    def refuse(self, form: CallForm) -> None:
        """Refuse nothing."""

    def wrap(self, call: Called, site: CallSite) -> Called:
        """See CallLayer."""
        if not self.rules.expires_any:
            return call
        return site.form.before(lambda each: _expiring(each, self.rules, site.tools), call)


@frozen
class ExpiryTurns(TurnRule):
    """Removes records that expired before their first call. Owner: poll thread.

    It checks the rest of a run only if the first one has expired: the layer checks before each call
    anyway, and this rule only spares the slots an expired backlog.
    """

    rules: ExpiryRules
    tools: CallTools
    _check: Called = field(init=False)

    @_check.default
    def _make_check(self) -> Called:
        tools = evolve(self.tools, warn=_ignore)  # the layer warns about malformed headers
        return _expiring(_accept, self.rules, tools)

    def turns(
        self, partition: Partition, messages: Sequence[Message], now: float, wall_ms: float
    ) -> Mapping[int, Turn]:
        """See TurnRule."""
        del partition, now, wall_ms
        found: dict[int, Turn] = {}
        for index, message in enumerate(messages):
            try:
                self._check(Record.of(message, _NO_CALL))
            except Expired as error:
                found[index] = Leave(self.tools.faults.failure(error))
            if not found:
                break
        return found


_NO_CALL = Call()


def _accept(_record: Record) -> None:
    """Let the record be called."""


def _ignore(_event: LogEvent, _text: str) -> None:
    """Log nothing."""


def _expiring(call: Called, rules: ExpiryRules, tools: CallTools) -> Called:
    fixed, header = rules.ttl_s, rules.header
    read = None if header is None else _header_reader(header, tools.warn)
    is_copy, wall_ms = tools.is_copy, tools.wall_ms

    def call_in_time(record: Record) -> object:
        ttl_s = fixed if read is None else read(record)
        if ttl_s is not None:
            timestamp = first_timestamp(record, is_copy)
            overdue_s = rules.overdue_s(ttl_s, timestamp, wall_ms())
            if overdue_s is not None:
                raise Expired(
                    f"expired {overdue_s:.1f} s ago, its time to live was {ttl_s:g} s",
                    rules.on_expired,
                )
        return call(record)

    return call_in_time


def _header_reader(header: TtlHeader, warn: Warn) -> Callable[[Record], float | None]:
    logged = False

    def read(record: Record) -> float | None:
        nonlocal logged
        value = record.header(header.name)
        if value is None:
            return None
        ttl_s = header.ttl_s(value)
        if ttl_s is None and not logged:
            logged = True
            warn(
                LogEvent.TTL_IGNORED,
                f"{record.topic}[{record.partition}]@{record.offset}: the header {header.name!r} is"
                f" not a time to live in the form {header.form}: {value[:_SHOWN_BYTES]!r}; records"
                " with such a header do not expire (logged once)",
            )
        return ttl_s

    return read
