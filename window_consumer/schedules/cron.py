"""The times of a cron expression: the only module that knows cronsim.

An expression for every hour stays hourly when the clocks change. Any other expression ticks once
for each local time that it names, as in Debian's cron: a time in an hour that the clocks skip ticks
at the end of that hour, and of a repeated hour only the first counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from attrs import define, field

_HOURS: Final = -4
"""The place of the hours among the fields; one for seconds may come first."""

_WINDOWS: Final = (timedelta(minutes=1), timedelta(hours=1), timedelta(days=1))
"""The periods in which to look for the newest tick, growing; each has few ticks."""


class CronError(ValueError):
    """An expression or a time zone cannot be used."""


def zone_of(name: str) -> ZoneInfo:
    """Return a time zone by its name in the tz database; raise CronError."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise CronError(
            "is unknown on this machine; without a tz database, install the package tzdata"
        ) from None


@define
class Cron:
    """A cron expression in a time zone. Immutable. Times are in UTC, and whole seconds.

    Raises CronError for an expression that is invalid, or never ticks.
    """

    expression: str
    timezone: str = "UTC"
    _zone: ZoneInfo = field(init=False, repr=False, eq=False)
    _fields: str = field(init=False, repr=False, eq=False)
    _is_hourly: bool = field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        self._zone = zone_of(self.timezone)
        fields = self.expression.split()
        epoch = datetime(2000, 1, 1)  # noqa: DTZ001 - a local time
        self._is_hourly = len(_simulated(self.expression, epoch).hours) == 24
        if self._is_hourly:
            fields[_HOURS] = "*"
        self._fields = " ".join(fields)
        if next(_simulated(self._fields, epoch), None) is None:
            raise CronError("never ticks")

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Yield the ticks after a moment, each once and in order."""
        local = moment.astimezone(self._zone)
        begin = local if self._is_hourly else local.replace(tzinfo=None)
        last = moment
        for found in _simulated(self._fields, begin):
            tick = (found if self._is_hourly else self._shown(found)).astimezone(UTC)
            if tick > last:
                yield tick
                last = tick

    def _shown(self, local: datetime) -> datetime:
        """Return when clocks first show a local time; if none does, a later one."""
        while True:
            found = local.replace(tzinfo=self._zone, fold=0)
            if found.astimezone(UTC).astimezone(self._zone).replace(tzinfo=None) == local:
                return found
            local += timedelta(minutes=1)

    def newest(self, since: datetime, until: datetime) -> datetime | None:
        """Return the last tick after ``since`` and not after ``until``; None if there is none."""
        for window in (*_WINDOWS, until - since):
            begin = max(since, until - window)
            newest = None
            for tick in self.after(begin):
                if tick > until:
                    break
                newest = tick
            if newest is not None or begin == since:
                return newest
        return None


def _simulated(expression: str, begin: datetime) -> Any:
    """Return the times of an expression after ``begin``; raise CronError for a bad one."""
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - few applications have schedules

    try:
        return CronSim(expression, begin)
    except CronSimError as error:
        raise CronError(f"cannot be read: {str(error)[:1].lower()}{str(error)[1:]}") from None
