"""Likely causes of lag: their names, and the shape of a finding."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from attrs import field, frozen

from window_consumer.model.record import TopicPartition

Figure = float | int | str | None


class CauseKind(StrEnum):
    """The kind of a cause; the names are stable."""

    BREAKER_OPEN = "breaker_open"
    HALTED = "halted"
    CANNOT_WRITE = "cannot_write"
    NOT_IN_GROUP = "not_in_group"
    REBALANCES = "rebalances"
    HOVERING = "hovering"
    POISON_RECORD = "poison_record"
    HOT_KEY = "hot_key"
    HOT_PARTITION = "hot_partition"
    RATE = "rate"
    GIL_BOUND = "gil_bound"
    LOOP_BOUND = "loop_bound"
    LOOP_BLOCKED = "loop_blocked"
    HANDLER_SLOW = "handler_slow"
    OUTBOX_WAITS = "outbox_waits"
    BROKER_AWAY = "broker_away"
    BROKER_SLOW = "broker_slow"
    FETCH_BOUND = "fetch_bound"
    NOBODY_READS = "nobody_reads"
    UNKNOWN = "unknown"


@frozen
class LikelyCause:
    """One likely cause."""

    kind: CauseKind
    worker: str
    sentence: str
    figures: Mapping[str, Figure]
    """The figures behind the sentence; seconds end in ``_s``, rates in ``_per_s``."""
    partition: TopicPartition | None = None
    where: str = field(default="", kw_only=True)
    """The process in words; empty if there is only one."""
    weight: float = field(default=0.0, kw_only=True)
    stack: str = field(default="", kw_only=True)


BUSY: Final = 0.85
"""At this ratio slots are the bottleneck: the rest is hand-over time."""

IDLE: Final = 0.5
"""Below this ratio slots mostly wait for work."""


def duration(seconds: float) -> str:
    """Format a duration: below two minutes with three digits."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes, rest_s = divmod(round(seconds), 60)
    hours, rest = divmod(minutes, 60)
    parts = ((hours, "h"), (rest, "min"), (0 if hours else rest_s, "s"))
    return " ".join(f"{count} {unit}" for count, unit in parts if count)
