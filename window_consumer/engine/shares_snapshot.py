"""The use and the waiting of classes of records, for display."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import field, frozen

from window_consumer.engine.latency_histogram import Histogram
from window_consumer.engine.scheduling.shares.share_classes import ShareClass, ShareClasses

SHOWN: Final = 20
"""How many classes are shown individually: those that have used most."""

NONE: Final = "(none)"
"""The name of the records without a class."""

REST: Final = "(rest)"
"""The name for all classes that are not shown individually."""


@frozen
class ShareSnapshot:
    """One class, or the sum of several."""

    name: str
    weight: float
    """0 for a sum."""
    waiting: int
    """Records in windows that have not started."""
    slots: int
    """Its slices in progress."""
    used_s: float
    """The slot time that it has used."""
    waits: Histogram = field(factory=Histogram)
    """How long its records waited in windows before their first call."""
    starved_s: float = 0.0
    """How long its records have waited while none ran or started."""


@frozen
class SharesSnapshot:
    """The classes of one worker."""

    order: str
    classes: int
    """How many there are."""
    overflow: int
    """Records counted as having no class because there were too many classes."""
    of_keys: bool
    """The classes are keys."""
    largest: tuple[ShareSnapshot, ...]
    """The classes that have used most, then the sum of the others, if any."""


def snapshot_of(shares: ShareClasses, now: float) -> SharesSnapshot:
    """Return the snapshot of a worker's classes."""
    found = sorted(shares.classes(), key=lambda each: -each.used_s - each.waiting)
    found = [each for each in found if each.used_s or not each.is_idle]
    shown = [_snapshot(each, now) for each in found[:SHOWN]]
    rest = [_snapshot(each, now) for each in found[SHOWN:]]
    return SharesSnapshot(
        shares.rules.order,
        len(found),
        shares.overflow,
        shares.rules.of_keys,
        (*shown, *([sum_of(rest)] if rest else [])),
    )


def _snapshot(share: ShareClass, now: float) -> ShareSnapshot:
    is_starved = share.waiting and not share.slots
    return ShareSnapshot(
        _shown(share.name),
        share.weight,
        share.waiting,
        share.slots,
        share.used_s,
        share.waits.histogram(),
        max(0.0, now - share.last_start) if is_starved else 0.0,
    )


def _shown(name: str | None) -> str:
    """Return the displayed name of a class; a tenant may be called ``(none)``, or ""."""
    if name is None:
        return NONE
    return f'"{name}"' if name in ("", NONE, REST) else name


def sum_of(rest: Sequence[ShareSnapshot]) -> ShareSnapshot:
    """Return several classes as one."""
    columns = zip(*(each.waits.counts for each in rest), strict=True)
    return ShareSnapshot(
        REST,
        0.0,
        sum(each.waiting for each in rest),
        sum(each.slots for each in rest),
        sum(each.used_s for each in rest),
        Histogram(tuple(map(sum, columns)), sum(each.waits.seconds for each in rest)),
        max(each.starved_s for each in rest),
    )
