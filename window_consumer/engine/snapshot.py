"""Takes the snapshot of an Engine's windows: the only module that reads an Engine for display."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from math import isfinite

from window_consumer.engine.engine import Engine
from window_consumer.engine.guards.circuit_breaker import CircuitBreaker
from window_consumer.engine.guards.interventions import ConcurrencyRequest, PauseRequest
from window_consumer.engine.lag import lag_of
from window_consumer.engine.partition import Partition
from window_consumer.engine.partition_state import HoldReason
from window_consumer.engine.scheduling.concurrency.adaptive_concurrency import AdaptiveConcurrency
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.engine.shares_snapshot import snapshot_of
from window_consumer.engine.window import Window
from window_consumer.engine.windows_snapshot import (
    BreakerSnapshot,
    CallSnapshot,
    CellSnapshot,
    CellState,
    LimitSnapshot,
    PartitionSnapshot,
    PauseSnapshot,
    WindowsSnapshot,
    key_text,
)

SHOWN_HOVERING_S = 1.0
"""A start cell without progress for this long is shown as blocked: long for a person watching.

The log reports it much later, see ``EngineRules.hover_s``.
"""


def take_snapshot(
    engine: Engine, now: float, wall_ms: float, *, cells: bool = True
) -> WindowsSnapshot:
    """Take a snapshot; ``wall_ms`` is the same moment in milliseconds since 1970.

    Without ``cells``, windows have only their rows, which is many times cheaper.
    """
    of: defaultdict[Partition, list[Slice]] = defaultdict(list)
    for slice_ in _slices(engine):
        of[slice_.partition].append(slice_)
    return WindowsSnapshot(
        partitions=tuple(
            _partition(engine, partition, of[partition], now, wall_ms, cells=cells)
            for partition in sorted(engine.partitions.values(), key=lambda each: each.name)
        ),
        calls=running_calls(engine, now),
        counters=engine.counters.copy(),
        slots=engine.rules.slots,
        queued=len(engine.dispatcher.out),
        asking=_asking(engine),
        abandoned=len(engine.dispatcher.abandoned),
        cost_s=engine.dispatcher.length.cost_s,
        durations=engine.durations.histogram(),
        breaker=_breaker(engine.breaker, now),
        limit=_limit(engine.slot_limit.adaptive, engine.slot_limit.by_user, now),
        changes_s=tuple(now - each for each in engine.epochs.changes),
        halted=engine.pauses.worker,
        pause=_pause(engine.pauses.by_user, now),
        findings=(*engine.pauses.findings(), *engine.turns.findings(now)),
        parked=engine.turns.parked(now),
        shares=None if engine.shares is None else snapshot_of(engine.shares, now),
    )


def running_calls(engine: Engine, now: float) -> tuple[CallSnapshot, ...]:
    """Return the running calls, including abandoned ones and those of a predecessor."""
    inherited = engine.outlived.inherited
    given_up = {*engine.dispatcher.abandoned, *inherited}
    found = (_call(slice_, now, given_up) for slice_ in [*_slices(engine), *inherited])
    return tuple(call for call in found if call is not None)


def _slices(engine: Engine) -> list[Slice]:
    return [*engine.dispatcher.out, *engine.dispatcher.abandoned]


def _limit(
    limiter: AdaptiveConcurrency | None, manual: ConcurrencyRequest | None, now: float
) -> LimitSnapshot | None:
    if manual is not None and manual.limit is not None:
        limit = manual.limit
        settled = limit if limiter is None else limiter.base
        since = _pause(manual, now)
        return LimitSnapshot(limit, settled, str(manual), limiter is not None, since)
    if limiter is None:
        return None
    return LimitSnapshot(limiter.limit, limiter.base, limiter.why)


def _pause(request: PauseRequest | ConcurrencyRequest | None, now: float) -> PauseSnapshot | None:
    if request is None:
        return None
    return PauseSnapshot(request.user, request.reason, max(0.0, now - request.since))


def _breaker(breaker: CircuitBreaker, now: float) -> BreakerSnapshot:
    failed, calls = breaker.calls_within_window(now)
    return BreakerSnapshot(
        breaker.state,
        failed,
        calls,
        max(0.0, now - breaker.since) if isfinite(breaker.since) else 0.0,
        breaker.why,
        breaker.samples.is_declared,
    )


def _partition(
    engine: Engine,
    partition: Partition,
    slices: list[Slice],
    now: float,
    wall_ms: float,
    *,
    cells: bool,
) -> PartitionSnapshot:
    window = partition.window
    failed = engine.failed_records.of(partition)
    # Walks all lines: too slow for a page that takes five snapshots a second.
    line = partition.ordering.longest_line if cells else None
    since = window.hovering_since()
    hovering_s = 0.0 if since is None else max(0.0, now - since)
    hovers = hovering_s > SHOWN_HOVERING_S and HoldReason.MANUAL not in partition.holds
    row = _row(partition, slices, failed, hovers=hovers)
    return PartitionSnapshot(
        name=partition.name,
        next_offset=window.next_offset,
        cells=_cells(window, row, now) if cells else (),
        capacity_cells=engine.rules.window_cells,
        open=window.open,
        buffered=partition.buffered,
        bytes=partition.bytes,
        paused=not partition.is_fetched,
        failed=len(failed),
        lag=lag_of(partition, _with_slots(engine, slices), failed.values(), now, wall_ms),
        level=None if partition.retry_level.level is None else partition.retry_level.level.name,
        hovering_s=hovering_s,
        waits_for_rate=partition.ordering.waits,
        row=row,
        slid=window.slid,
        unread=(
            None
            if partition.log_end is None
            else max(0, partition.log_end - partition.next_delivery)
        ),
        longest_line=0 if line is None else line[1],
        hottest_key=None if line is None else key_text(line[0]),
        halted=HoldReason.MANUAL in partition.holds,
        first_open=_first_open(window),
    )


def _with_slots(engine: Engine, slices: Iterable[Slice]) -> Iterator[Slice]:
    """Yield the calls not abandoned; records of abandoned ones are among the failed records."""
    return (each for each in slices if each not in engine.dispatcher.abandoned)


def _first_open(window: Window) -> int | None:
    if not window.cells or not window.cells[0].open:
        return None
    return window.offsets.offset_of(window.cells[0].first_open_seq())


def _cells(window: Window, row: str, now: float) -> tuple[CellSnapshot, ...]:
    return tuple(
        CellSnapshot(
            CellState.of_letter(letter),
            window.offsets.offset_of(cell.first_seq),
            len(cell.states),
            cell.open,
            max(0.0, now - cell.opened),
        )
        for letter, cell in zip(row, window.cells, strict=True)
    )


def _row(partition: Partition, slices: list[Slice], failed: Iterable[int], *, hovers: bool) -> str:
    """Return a letter for the state of each cell."""
    cells = partition.window.cells
    letters = ["w" if cell.open else "d" for cell in cells]
    # In increasing precedence: if several states apply, the last one wins.
    running = {seq for slice_ in slices for seq in _ends(slice_)}
    for seqs, letter in ((running, "r"), (failed, "y")):
        for seq in seqs:
            index = partition.window.place_of(seq)
            if index is not None and cells[index].open:
                letters[index] = letter
    if hovers and cells and cells[0].open:
        letters[0] = "H"
    return "".join(letters)


def _asking(engine: Engine) -> int | None:
    if not engine.rules.stall.leases:
        return None
    return max(0, engine.dispatcher.present_slots - len(engine.dispatcher.out))


def _ends(slice_: Slice) -> tuple[int, ...]:
    """Return the first and last sequence number of a running slice."""
    if not slice_.started or not slice_.seqs:
        return ()
    return slice_.seqs[0], slice_.seqs[-1]


def _call(slice_: Slice, now: float, abandoned: Container[Slice]) -> CallSnapshot | None:
    message = slice_.running()
    if message is None:
        return None
    return CallSnapshot(
        name=slice_.partition.name,
        offset=message.offset(),
        attempt=slice_.call.number_of(message),
        seconds=max(0.0, now - slice_.started),
        thread=slice_.thread,
        abandoned=slice_ in abandoned,
        lease_left_s=max(0.0, slice_.lease_until - now) if slice_.lease_until else None,
    )
