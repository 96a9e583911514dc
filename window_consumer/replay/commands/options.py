"""The options of replay and rewind: points in time, offsets, a rate, ids, conditions."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Final

import click
from attrs import frozen

from window_consumer.cli.options import workers_named
from window_consumer.config.sections.rate import RATE_UNITS, parse_rate
from window_consumer.config.units import UnitError, parse_duration
from window_consumer.model.conditions.values import moment_ms

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


def read_time(text: str) -> PointInTime:
    """Read a time, or an age counted back from now."""
    moment = moment_ms(text)
    if moment is None:
        try:
            age_s = parse_duration(text)
        except UnitError:
            age_s = _LONGEST_S + 1
        moment = round((time.time() - age_s) * 1000)
    if moment < 0:
        raise ValueError(
            f"{text!r} is neither a time such as 2026-11-21T10:00 (UTC) nor an age such as 1h"
        )
    return PointInTime(moment, text)


def read_offsets(text: str) -> Mapping[int, int]:
    """Read offsets of partitions, as in 0:1200 or 0:1200,1:1180."""
    if not _OFFSETS.fullmatch(text):
        raise ValueError(f"{text!r} is not a partition and an offset, as in 0:1200")
    pairs = [each.split(":") for each in text.split(",")]
    return offsets_once({int(p): int(o)} for p, o in pairs)


def offsets_once(given: Iterable[Mapping[int, int]]) -> Mapping[int, int]:
    """Join the offsets of several partitions; fail if a partition is given twice."""
    found: dict[int, int] = {}
    for each in given:
        for partition, offset in each.items():
            if partition in found:
                raise click.BadParameter(f"partition {partition} is given twice")
            found[partition] = offset
    return found


def read_place(text: str) -> PointInTime | Mapping[int, int]:
    """Read a time, or offsets of partitions."""
    return read_offsets(text) if _LIKE_OFFSETS.fullmatch(text) else read_time(text)


def read_rate(text: str) -> float:
    """Read a rate such as 500/s, in records per second; a bare number is one."""
    try:
        count, unit = parse_rate(text if "/" in text else f"{text}/s")
    except UnitError as error:
        hint = f": {error.hint}" if error.hint else ""
        raise ValueError(f"{text!r} {error}{hint}; expected {_A_RATE}") from None
    if not count:
        raise ValueError(f"{text!r}: a rate is more than 0, as in 500/s")
    return float(Fraction(count) / RATE_UNITS[unit])


def read_ids(file: str) -> frozenset[str]:
    """Read the file with the id of a record in each line."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: {error}") from None
    ids = frozenset(line.strip() for line in text.splitlines() if line.strip())
    if not ids:
        raise ValueError(f"{file} has no ids: write one per line")
    return ids


WORKER = click.option(
    "--worker",
    "-w",
    required=True,
    metavar="WORKER",
    shell_complete=workers_named,
    help="The worker.",
)
