"""The live window in the terminal: each partition's cells, sliding as they complete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from window_consumer.core.breaker import BreakerState
from window_consumer.core.snapshot import (
    BreakerPicture,
    CellState,
    LimitPicture,
    PartitionPicture,
    Snapshot,
)

# A letter and a colour each: the states can be told apart without seeing colours.
_LOOK: Mapping[CellState, tuple[str, str]] = {
    CellState.DONE: ("■", "green"),
    CellState.WAITING: ("·", "bright_black"),
    CellState.RUNNING: ("▸", "bright_cyan"),
    CellState.RETRYING: ("r", "yellow"),
    CellState.HOVERING: ("H", "bold white on red"),
}
_FREE = ("_", "bright_black")

_LONG_CALL_S = 1.0
_SHOWN_CALLS = 4


def legend() -> Text:
    """Return what the signs mean."""
    text = Text()
    for state, (sign, style) in _LOOK.items():
        text.append(f" {sign} ", style=style)
        text.append(f"{state.value}  ", style="dim")
    text.append(f" {_FREE[0]} ", style=_FREE[1])
    text.append("free", style="dim")
    return text


def view(snapshots: Mapping[str, Snapshot], title: str, seconds: float) -> RenderableType:
    """Draw the windows of all workers."""
    parts: list[RenderableType] = [Text(f"{title}  {seconds:5.1f} s", style="bold"), legend()]
    for name, snapshot in snapshots.items():
        parts.append(_worker(name, snapshot))
        parts.append(_summary(snapshot))
        parts.extend(_limit(snapshot.limit))
        parts.extend(_breaker(snapshot.breaker))
        parts.extend(_long_calls(snapshot))
    return Group(*parts)


def _worker(name: str, snapshot: Snapshot) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column(name)
    table.add_column("from offset", justify="right")
    table.add_column("window: start cell left, end cell right", no_wrap=True)
    table.add_column("open", justify="right")
    for partition in snapshot.partitions:
        table.add_row(
            str(partition.name),
            str(partition.next_offset),
            _cells(partition),
            f"{partition.open}{' paused' if partition.paused else ''}"
            f"{' waits for its rate' if partition.waits_for_rate else ''}",
        )
    return table


def _cells(partition: PartitionPicture) -> Text:
    text = Text("[", style="dim")
    for cell in partition.cells:
        sign, style = _LOOK[cell.state]
        text.append(sign, style=style)
    free = max(0, partition.capacity_cells - len(partition.cells))
    text.append(_FREE[0] * free, style=_FREE[1])
    text.append("]", style="dim")
    return text


def _summary(snapshot: Snapshot) -> Text:
    did = snapshot.counters
    slots = snapshot.limit.limit if snapshot.limit else snapshot.slots
    busy = min(sum(not call.abandoned for call in snapshot.calls), snapshot.slots)
    return Text(
        f"  {did.processed} processed, {did.retried} retried, {did.dead_lettered} dead-lettered;"
        f" {busy} of {slots} slots busy, {snapshot.cost_s * 1000:.1f} ms a call"
    )


def _limit(limit: LimitPicture | None) -> Iterable[Text]:
    if limit is not None:
        yield Text(f"  concurrency {limit.settled}: {limit.why}", style="dim")


def _breaker(breaker: BreakerPicture) -> Iterable[Text]:
    if breaker.state is not BreakerState.CLOSED:
        yield Text(
            f"  breaker {breaker.state} for {breaker.seconds:.1f} s: {breaker.failed} of"
            f" {breaker.calls} calls failed",
            style="bold red",
        )


def _long_calls(snapshot: Snapshot) -> Iterable[Text]:
    long = sorted(
        (call for call in snapshot.calls if call.seconds >= _LONG_CALL_S),
        key=lambda call: -call.seconds,
    )
    for call in long[:_SHOWN_CALLS]:
        yield Text(
            f"  {call.name}@{call.offset} attempt {call.attempt} has been running for"
            f" {call.seconds:.1f} s{', abandoned' if call.abandoned else ''}",
            style="red",
        )
