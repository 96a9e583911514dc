"""A schedule: when it ticks, which of its ticks are sent, and the records for them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Any, Final

from attrs import frozen

from window_consumer.config import Config
from window_consumer.model import headers as names
from window_consumer.model.protocols import Copy
from window_consumer.model.record import Message
from window_consumer.schedules.config import ScheduleConfig
from window_consumer.schedules.cron import Cron

AT_ONCE: Final = 100
"""The most ticks to send before they are recorded; a kill repeats at most this many."""

LATE: Final = timedelta(minutes=1)
"""How late a tick may be with ``missed: none``: longer than the takeover from a killed process,
which takes 45 s by default."""


def text_of(tick: datetime) -> str:
    """Return a tick as text for ids and topics: ``2026-11-28T01:00:00Z``."""
    return tick.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment_of(wall_ms: float) -> datetime:
    """Return a time from milliseconds since 1970."""
    return _EPOCH + timedelta(milliseconds=wall_ms)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@frozen
class LastTick:
    """The last finished tick of a schedule, with its expression and time zone."""

    tick: datetime
    expression: str
    timezone: str


@frozen
class DueTicks:
    """The ticks of a schedule that are due."""

    sent: Sequence[datetime]
    """Those to send, in order."""
    last: datetime
    """Everything up to this time is done once they are acked."""
    left_out: bool
    """Whether ``missed`` omits others."""


@frozen
class Schedule:
    """One schedule."""

    name: str
    cron: Cron
    config: ScheduleConfig

    @classmethod
    def all_of(cls, config: Config) -> tuple[Schedule, ...]:
        """Return the schedules of a configuration, in its order."""
        return tuple(
            cls(name, Cron(each.cron, each.timezone), each)
            for name, each in config.named(ScheduleConfig).items()
        )

    def begin(self, last: LastTick | None, now: datetime) -> datetime:
        """Return the time after which it ticks; ``last`` is from the topic.

        A schedule that is new, or has a new expression or time zone, has missed nothing.
        """
        is_same = last is not None and (last.expression, last.timezone) == (
            self.cron.expression,
            self.cron.timezone,
        )
        return last.tick if last is not None and is_same else now

    def due(self, since: datetime, now: datetime) -> DueTicks | None:
        """Return the ticks due after ``since``; None without any."""
        first = next(self.cron.after(since), None)
        if first is None or first > now:
            return None
        if self.config.missed == "all":
            ticks = takewhile(lambda tick: tick <= now, self.cron.after(since))
            sent = list(islice(ticks, AT_ONCE))
            return DueTicks(sent, sent[-1], left_out=False)
        newest = self.cron.newest(since, now) or first
        if self.config.missed == "none" and now - newest > LATE:
            return DueTicks((), newest, left_out=True)
        return DueTicks([newest], newest, left_out=newest != first)

    def coming(self, now: datetime, count: int) -> list[datetime]:
        """Return the next ticks."""
        return list(islice(self.cron.after(now), count))

    def record(self, tick: datetime) -> Copy:
        """Return the record of a tick."""
        config = self.config
        headers: list[tuple[str, bytes | None]] = [
            *((name, text.encode()) for name, text in config.headers),
            (names.ID, f"schedule/{self.name}/{text_of(tick)}".encode()),
        ]
        return Copy(config.to, None, _bytes(config.key), _bytes(config.value), headers)

    def state_record(self, topic: str, tick: datetime) -> Copy:
        """Return the record that keeps its last tick."""
        value = {
            "tick": text_of(tick),
            "cron": self.cron.expression,
            "timezone": self.cron.timezone,
        }
        return Copy(topic, None, self.name.encode(), json.dumps(value).encode(), ())


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def last_ticks(notes: Iterable[Message]) -> dict[str, LastTick]:
    """Return the last tick of each schedule in records of the topic that keeps them.

    A frozen process may have written an older tick after a newer one. Unreadable records are
    ignored.
    """
    found: dict[str, LastTick] = {}
    for name, last in _read(notes):
        known = found.get(name)
        same = known is not None and (known.expression, known.timezone) == (
            last.expression,
            last.timezone,
        )
        if known is None or not same or last.tick > known.tick:
            found[name] = last
    return found


def _read(notes: Iterable[Message]) -> Iterator[tuple[str, LastTick]]:
    for note in notes:
        try:
            value: Mapping[str, Any] = json.loads(note.value() or b"")
            tick = datetime.fromisoformat(value["tick"])
            last = LastTick(tick.astimezone(UTC), value["cron"], value["timezone"])
            yield (note.key() or b"").decode(), last
        except (ValueError, KeyError, TypeError):
            continue
