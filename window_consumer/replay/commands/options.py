"""The options of replay and rewind: points in time, offsets, a rate, ids, conditions."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import click
from attrs import frozen

from window_consumer.cli.options import Duration
from window_consumer.config.sections.rate import RATE_UNITS, parse_rate
from window_consumer.config.units import UnitError, parse_duration
from window_consumer.model.conditions.expressions import Expression, ExpressionError
from window_consumer.model.conditions.values import moment_ms
from window_consumer.replay.conditions import parse_where

_OFFSETS: Final = re.compile(r"[0-9]{1,9}:[0-9]{1,18}(,[0-9]{1,9}:[0-9]{1,18})*")
_LIKE_OFFSETS: Final = re.compile(r"-?[0-9]+:-?[0-9]+(,.*)?")
_A_RATE: Final = "a rate such as 500/s, 30/min or 1000/h"
_LONGEST_S: Final = 100 * 366 * 86_400.0


@frozen
class PointInTime:
    """A time as the user wrote it."""

    ms: int
    """Milliseconds since 1970."""
    text: str


class TimeParam(click.ParamType[PointInTime]):
    """A time, or an age."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> PointInTime:
        """Return the time; ages count back from now."""
        if isinstance(value, PointInTime):
            return value
        text = str(value)
        moment = moment_ms(text)
        if moment is None:
            try:
                age_s = parse_duration(text)
            except UnitError:
                age_s = _LONGEST_S + 1
            moment = round((time.time() - age_s) * 1000)
        if moment < 0:
            self.fail(
                f"{text!r} is no time such as 2026-11-21T10:00 (UTC), and no age such as 1h",
                param,
                ctx,
            )
        return PointInTime(moment, text)


class OffsetsParam(click.ParamType[Mapping[int, int]]):
    """Offsets of partitions, as in 0:1200 or 0:1200,1:1180."""

    name = "offsets"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Mapping[int, int]:
        """Return the offset of each partition."""
        if isinstance(value, Mapping):
            return value
        text = str(value)
        if not _OFFSETS.fullmatch(text):
            self.fail(
                f"{text!r} is no partition and offset, neither of which is negative, as in 0:1200",
                param,
                ctx,
            )
        pairs = [each.split(":") for each in text.split(",")]
        return offsets_once(({int(p): int(o)} for p, o in pairs), param, ctx)


def offsets_once(
    given: Any, param: click.Parameter | None = None, ctx: click.Context | None = None
) -> Mapping[int, int]:
    """Join the offsets of several partitions; fail for a partition that comes twice."""
    found: dict[int, int] = {}
    for each in given:
        for partition, offset in each.items():
            if partition in found:
                raise click.BadParameter(f"partition {partition} is there twice", ctx, param)
            found[partition] = offset
    return found


class PlaceParam(click.ParamType["PointInTime | Mapping[int, int]"]):
    """A time, or offsets of partitions."""

    name = "place"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> PointInTime | Mapping[int, int]:
        """Return the time or the offsets."""
        kind = OffsetsParam() if _LIKE_OFFSETS.fullmatch(str(value)) else TimeParam()
        return kind.convert(value, param, ctx)


class RateParam(click.ParamType[float]):
    """A rate such as 500/s; a bare number is per second."""

    name = "rate"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return records per second."""
        if isinstance(value, float):
            return value
        text = str(value)
        try:
            count, unit = parse_rate(text if "/" in text else f"{text}/s")
        except UnitError as error:
            hint = f": {error.hint}" if error.hint else ""
            self.fail(f"{text!r} {error}{hint}; expected {_A_RATE}", param, ctx)
        if not count:
            self.fail(f"{text!r}: a rate is more than 0, as in 500/s", param, ctx)
        return float(Fraction(count) / RATE_UNITS[unit])


class IdsParam(click.ParamType[frozenset[str]]):
    """A file with the id of a record in each line."""

    name = "file"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> frozenset[str]:
        """Return the ids."""
        if isinstance(value, frozenset):
            return value
        try:
            text = Path(str(value)).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self.fail(f"{value}: {error}", param, ctx)
        ids = frozenset(line.strip() for line in text.splitlines() if line.strip())
        if not ids:
            self.fail(f"{value} holds no ids: write one in each line", param, ctx)
        return ids


class RecordConditionParam(click.ParamType[Expression]):
    """A condition on records."""

    name = "expression"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Expression:
        """Return the parsed condition."""
        if isinstance(value, Expression):
            return value
        try:
            return parse_where(str(value))
        except ExpressionError as error:
            self.fail(str(error), param, ctx)


START_TIMEOUT = click.option(
    "--start-timeout",
    type=Duration(),
    default=10.0,
    metavar="DURATION",
    help="Give up when no broker answers for so long (exit code 1). [default: 10s]",
)
WORKER = click.option("--worker", "-w", required=True, metavar="WORKER", help="The worker.")
