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
"""The most ticks that are sent before they are recorded; a kill repeats at most so many."""

LATE: Final = timedelta(minutes=1)
"""How late a tick may be with ``missed: none``: longer than others need to take over from a
process that was killed, 45 s by default."""


def text_of(tick: datetime) -> str:
    """Return a tick as it is written in ids and topics: ``2026-11-28T01:00:00Z``."""
    return tick.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment_of(wall_ms: float) -> datetime:
    """Return a time that is given in milliseconds since 1970."""
    return _EPOCH + timedelta(milliseconds=wall_ms)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@frozen
class LastTick:
    """The last tick of a schedule that needs nothing more, and what it ticked by."""

    tick: datetime
    expression: str
    timezone: str


@frozen
class DueTicks:
    """The ticks of a schedule that are due."""

    sent: Sequence[datetime]
    """Those to send, in order."""
    last: datetime
    """Everything up to here is done once they are acked."""
    left_out: bool
    """Whether ``missed`` leaves out others."""


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
        """Return after which time it ticks; ``last`` is what the topic says.

        A schedule that is new, or has another expression or time zone, has missed nothing.
        """
        is_same = last is not None and (last.expression, last.timezone) == (
            self.cron.expression,
            self.cron.timezone,
        )
        return last.tick if last is not None and is_same else now

    def due(self, since: datetime, now: datetime) -> DueTicks | None:
        """Return what is due after ``since``; None if nothing is."""
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

    A process that was frozen may have written an older one behind a newer one. A record that
    cannot be read counts as none.
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
