"""The live window in the terminal: each partition's cells, sliding as they complete.

``demo`` and ``top`` share it. Names and texts come from clusters, records and other processes: they
are sanitized here, and never parsed as markup.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from attrs import frozen
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from window_consumer.admin.commands.screen import TopScene, WorkerScene
from window_consumer.engine.guards.breaker_state import BreakerState
from window_consumer.engine.latency_histogram import BOUNDS_S, Histogram
from window_consumer.engine.shares_snapshot import SharesSnapshot
from window_consumer.engine.windows_snapshot import (
    BreakerSnapshot,
    CellState,
    LimitSnapshot,
    ParkedKeys,
    PartitionSnapshot,
    WindowsSnapshot,
)
from window_consumer.model.outcome import OUTCOMES
from window_consumer.model.redaction import printable_line

# Each state has a symbol and a colour, so that it is recognizable without colours.
_LOOK: Mapping[CellState, tuple[str, str]] = {
    CellState.DONE: ("■", "green"),
    CellState.WAITING: ("·", "bright_black"),
    CellState.RUNNING: ("▸", "bright_cyan"),
    CellState.RETRYING: ("r", "yellow"),
    CellState.HOVERING: ("H", "bold white on red"),
}
_FREE = ("_", "bright_black")
_MORE = ("…", "dim")

_LONG_CALL_S = 1.0
_SHOWN_CALLS = 4
_SHOWN_PARKED: Final = 4
"""The most parked keys in a terminal whose height matters."""
_USUAL_NAME: Final = 10
_LEAST_CELLS: Final = 16
"""Other columns are left out before a window shows fewer cells."""
_FEWEST_CELLS: Final = 6
"""A window shows at least this many cells, even in a narrow terminal."""
_SIDES: Final = ("start cell left, end cell right", "start to end", "cells")
_SHOWN_TAIL: Final = 8
"""If not all cells fit, this many from the end of the window are shown."""
_PERCENTILES: Final = (50, 95, 99)
_LEAST_PARTITIONS: Final = 4
"""The fewest partitions per worker, even in a low terminal."""
_LINES_A_WORKER: Final = 10
"""The approximate number of lines per worker, apart from its partitions."""


def legend() -> Text:
    """Return the legend of the symbols."""
    text = Text()
    for state, (sign, style) in _LOOK.items():
        text.append(f" {sign} ", style=style)
        text.append(f"{state.value}  ", style="dim")
    text.append(f" {_FREE[0]} ", style=_FREE[1])
    text.append("free", style="dim")
    return text


def view(scene: TopScene, width: int = 80, height: int | None = None) -> RenderableType:
    """Draw the windows of all workers for a terminal of this width.

    If ``height`` lines are too few for all partitions, the worst ones are shown.
    """
    most = _most_partitions(scene, height)
    parts: list[RenderableType] = [
        _line(f"{scene.title}  {scene.seconds:5.1f} s", "bold"),
        legend(),
    ]
    for worker in scene.workers:
        snapshot = worker.snapshot
        shown = _in_most_trouble(snapshot.partitions, most)
        heading = worker.name
        if len(heading) > _USUAL_NAME:
            parts.append(_line(heading, "bold"))
            heading = "partition"
        parts.append(_windows(heading, shown, width))
        if len(shown) < len(snapshot.partitions):
            parts.append(_line(f"  and {len(snapshot.partitions) - len(shown)} more", "dim"))
        parts.extend(_summary(worker))
        parts.extend(_failures(snapshot))
        parts.extend(_limit(snapshot.limit))
        parts.extend(_breaker(snapshot.breaker))
        parts.extend(_parked(snapshot.parked, None if height is None else _SHOWN_PARKED))
        parts.extend(_shares(snapshot.shares, None if height is None else _SHOWN_PARKED))
        parts.extend(_long_calls(snapshot))
    parts.extend(_line(f"{name}: {why}", "bold red") for name, why in scene.gone.items())
    return Group(*parts)


def _line(text: str, style: str = "") -> Text:
    return Text(printable_line(text), style=style)


def _most_partitions(scene: TopScene, height: int | None) -> int | None:
    if height is None or not scene.workers:
        return None
    left = height - 2 - len(scene.gone)
    return max(_LEAST_PARTITIONS, left // len(scene.workers) - _LINES_A_WORKER)


def _in_most_trouble(
    partitions: Sequence[PartitionSnapshot], most: int | None
) -> Sequence[PartitionSnapshot]:
    if most is None or len(partitions) <= most:
        return partitions
    worst = sorted(partitions, key=_trouble, reverse=True)[:most]
    return [each for each in partitions if each in worst]


def _trouble(partition: PartitionSnapshot) -> tuple[float, float, int]:
    return partition.hovering_s, partition.lag.seconds, partition.lag.records or 0


def _windows(heading: str, partitions: Sequence[PartitionSnapshot], width: int) -> Table:
    columns = _Columns.of(heading, partitions, width)
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column(_line(heading), overflow="fold", width=columns.name)
    if columns.offset:
        table.add_column("from", justify="right", width=columns.offset)
    sides = next(text for text in _SIDES if len(text) <= columns.cells + 2)
    table.add_column(sides, no_wrap=True, width=columns.cells + 2)
    if columns.open:
        table.add_column("open", justify="right", no_wrap=True, width=columns.open)
    table.add_column("lag", justify="right", no_wrap=True, width=columns.lag)
    for partition in partitions:
        row = [_line(str(partition.name))]
        row += [_line(str(partition.next_offset))] if columns.offset else []
        row += [_cells(partition, columns.cells)]
        row += [_open(partition)] if columns.open else []
        table.add_row(*row, _lag(partition))
    return table


@frozen
class _Columns:
    """The width of each column; 0 if there is no room for it."""

    name: int
    offset: int
    cells: int
    open: int
    lag: int

    @classmethod
    def of(cls, heading: str, partitions: Sequence[PartitionSnapshot], width: int) -> _Columns:
        """Give the cells the remaining width, and drop other columns before there are too few."""
        names = max(len(_line(text)) for text in [heading, *(str(one.name) for one in partitions)])
        offset = max([6, *(len(str(one.next_offset)) for one in partitions)])
        open_ = max([6, *(len(_open(one)) for one in partitions)])
        lag = max([3, *(len(_lag(one)) for one in partitions)])
        room = max(1, width - lag - _FEWEST_CELLS - 8)
        name = min(names, max(_USUAL_NAME, width // 2), room)
        most = max([len(_SIDES[0]) - 2, *(one.capacity_cells for one in partitions)])
        for chosen in ((offset, open_, max(10, lag)), (0, open_, lag), (0, 0, lag)):
            # Each column has a blank on both sides, and the cells have brackets.
            cells = width - sum(each + 2 for each in (name, *chosen) if each) - 4
            if cells >= _LEAST_CELLS:
                break
        offset, open_, lag = chosen
        return cls(name, offset, min(most, max(_FEWEST_CELLS, cells)), open_, lag)


def _open(partition: PartitionSnapshot) -> Text:
    waits = " rate" if partition.waits_for_rate else ""
    paused = " by hand" if partition.halted else " paused" if partition.paused else ""
    return _line(f"{partition.open}{paused}{waits}")


def _lag(partition: PartitionSnapshot) -> Text:
    records = "?" if partition.lag.records is None else f"{partition.lag.records}"
    return _line(f"{records}, {duration(partition.lag.seconds)}")


def _cells(partition: PartitionSnapshot, most: int) -> Text:
    text = Text("[", style="dim")
    cells = [_LOOK[cell.state] for cell in partition.cells]
    free = max(0, partition.capacity_cells - len(cells))
    if len(cells) + free <= most:
        cells += [_FREE] * free
    elif len(cells) + 2 <= most:
        cells += [*[_FREE] * (most - len(cells) - 1), _MORE]
    else:
        tail = min(_SHOWN_TAIL, most // 2 - 1)
        end = [*cells[-tail:], *[_FREE] * min(1, free)]
        cells = [*cells[: most - len(end) - 1], _MORE, *end]
    for sign, style in cells:
        text.append(sign, style=style)
    text.append("]", style="dim")
    return text


def _summary(worker: WorkerScene) -> Iterator[Text]:
    snapshot = worker.snapshot
    did = snapshot.counters
    rate = "" if worker.per_s is None else f" ({worker.per_s:,.0f}/s)"
    state = f"{worker.state}; " if worker.state else ""
    state += "".join(f"{each.text}; " for each in snapshot.findings)
    by_rule = any(each.pauses for each in snapshot.findings)
    if snapshot.halted:
        pause = snapshot.pause
        who = "" if pause is None else pause.words(duration(pause.seconds))
        state += f"paused {'for that' if by_rule else f'manually{who}'}; "
    beside = "".join(
        f", {number} {row.words}"
        for row in OUTCOMES
        if row.is_beside_done and (number := getattr(did, row.counter))
    )
    yield _line(
        f"  {state}{did.processed} processed{rate}, {did.retried} retried,"
        f" {did.dead_lettered} dead-lettered{beside}; {snapshot.busy} of"
        f" {snapshot.limit_now} slots busy"
    )
    yield _line(f"  {_behind(snapshot)}; {_took(snapshot, worker.durations)}")
    if worker.busy_ratio is not None and worker.time_to_drain_s is not None:
        takes = f"at that pace the lag takes {duration(worker.time_to_drain_s)}"
        if math.isinf(worker.time_to_drain_s):
            takes = "no progress, so the lag stays"
        yield _line(f"  in the last minute {worker.busy_ratio:.0%} busy; {takes}")


def _behind(snapshot: WindowsSnapshot) -> str:
    lags = [each.lag for each in snapshot.partitions]
    known = [lag.records for lag in lags if lag.records is not None]
    seconds = max((lag.seconds for lag in lags), default=0.0)
    least = "at least " if len(known) < len(lags) else ""
    return f"lag {least}{sum(known)} records, {duration(seconds)}"


def _took(snapshot: WindowsSnapshot, histogram: Histogram | None) -> str:
    if histogram is None or not histogram.calls:
        did = snapshot.counters
        if not (did.finished or did.retried):
            return "no calls yet"
        return f"{snapshot.cost_s * 1000:.1f} ms a call"
    return "calls " + " ".join(_percentile(histogram, each) for each in _PERCENTILES)


def _percentile(histogram: Histogram, percent: int) -> str:
    seconds = histogram.quantile(percent / 100) or 0.0
    beyond = ">" if seconds >= BOUNDS_S[-1] else ""
    return f"p{percent} {beyond}{duration(seconds)}"


def _failures(snapshot: WindowsSnapshot) -> Iterator[Text]:
    did = snapshot.counters
    parts = [
        f"{what}: {_counted(by)}"
        for what, by in (("to retry topics", did.moved_to), ("dead letters", did.dead_by))
        if by
    ]
    waiting = sum(each.failed for each in snapshot.partitions)
    if waiting:
        parts.append(f"{waiting} wait for their next call or ack")
    if parts:
        yield _line(f"  {'; '.join(parts)}", "yellow")


def _counted(by: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in by.most_common())


def _limit(limit: LimitSnapshot | None) -> Iterable[Text]:
    if limit is not None and limit.manual is not None:
        lasts = limit.manual.words(duration(limit.manual.seconds))
        yield _line(f"  concurrency {limit.limit}, set manually{lasts}", "yellow")
    elif limit is not None:
        yield _line(f"  concurrency {limit.settled}: {limit.why}", "dim")


def _breaker(breaker: BreakerSnapshot) -> Iterable[Text]:
    if breaker.state is not BreakerState.CLOSED:
        failed = f"{breaker.failed} of {breaker.calls} calls failed"
        yield _line(
            f"  breaker {breaker.state} for {duration(breaker.seconds or 0.0)}:"
            f" {breaker.why or failed}",
            "bold red",
        )


def _parked(parked: ParkedKeys | None, most: int | None) -> Iterable[Text]:
    if parked is None or not parked.followers:
        return
    yield _line(
        f"  keys in the ladder: {parked.keys}; records behind the first of theirs:"
        f" {parked.followers}",
        "yellow",
    )
    for each in parked.longest[:most]:
        yield _line(
            f"    key {each.key!r}, {duration(each.in_ladder_s)}: {each.followers} wait behind"
            f" {each.name}@{each.offset}",
            "yellow",
        )


def _shares(shares: SharesSnapshot | None, most: int | None) -> Iterable[Text]:
    if shares is None or not shares.largest:
        return
    further = f"; records of further classes: {shares.overflow}" if shares.overflow else ""
    yield _line(
        f"  classes that share the slots ({shares.order}): {shares.classes}{further}", "dim"
    )
    for each in shares.largest[:most]:
        starved = f", no call for {duration(each.starved_s)}" if each.starved_s > 1 else ""
        yield _line(
            f"    {each.name}: {each.slots} running, {each.waiting} waiting,"
            f" {duration(each.used_s)} used{starved}",
            "red" if starved else "dim",
        )


def _long_calls(snapshot: WindowsSnapshot) -> Iterable[Text]:
    long = sorted(
        (call for call in snapshot.calls if call.seconds >= _LONG_CALL_S),
        key=lambda call: -call.seconds,
    )
    for call in long[:_SHOWN_CALLS]:
        yield _line(
            f"  {call.name}@{call.offset} attempt {call.attempt} has been running for"
            f" {call.seconds:.1f} s{', abandoned' if call.abandoned else ''}",
            "red",
        )


def duration(seconds: float) -> str:
    """Format a duration as briefly as possible."""
    if seconds < 0.001:
        return "0 s" if seconds <= 0 else f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"
