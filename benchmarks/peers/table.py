"""The comparison as Markdown, for docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.peers.comparison import Comparison, Row
from benchmarks.peers.roster import PEERS, Peer, Slots
from benchmarks.peers.workloads import WORKLOADS
from window_consumer.model.errors import UsageError

BEGIN = "<!-- peers: written by `python -m benchmarks peers` -->"
END = "<!-- peers: end -->"

ORDERS = ("unordered", "key", "partition")
"""The order of groups in tables and chart: peers that keep the same order are compared."""

NOTHING = "\N{EN DASH}"

_QUIET_LOAD = 1.0
_BUSY = (
    " **The machine was busy with other things: that says what each loses, repeats or reorders,"
    " and little about how fast it is.**"
)
_SLOTS: dict[Slots, str] = {
    "given": "{slots}",
    "one": "1",
    "partitions": "{partitions}",
    "keys": "a key each",
    "unbounded": "all",
}
_HEAD = (
    "| order kept | peer | at once | records/s | p50 ms | p99 ms | lost | repeated"
    " | out of order | overlapping | not committed |{possible}"
)
_RULE = "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"


def section(comparison: Comparison, chart: str) -> str:
    """Return everything between the markers; ``chart`` is the picture's place."""
    parts = [
        f"![Records per second of every peer in every workload]({chart})",
        _where(comparison),
        *(_workload(comparison, name) for name in comparison.workloads),
        _settings(comparison),
    ]
    if comparison.missing:
        parts.append(_missing(comparison))
    return "\n\n".join(part for part in parts if part)


def put_into(page: str, text: str) -> str:
    """Return a page with a text between its markers. Raises UsageError without the markers."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise UsageError(f"the page has no lines {BEGIN!r} and {END!r}")
    return f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}"


def in_order(comparison: Comparison, workload: str) -> Sequence[Row]:
    """Return a workload's rows: by the order that is kept, the fastest first."""
    rows = [row for row in comparison.rows if row.workload == workload]
    return sorted(
        rows, key=lambda row: (ORDERS.index(PEERS[row.peer].order), -(row.records_per_s or 0.0))
    )


def what(rows: Sequence[Row]) -> str:
    """Return the description of some rows' workload, with the number of records if not all."""
    workload = WORKLOADS[rows[0].workload]
    records = sorted({row.records for row in rows})
    if records == [workload.contents.records]:
        return workload.what
    return f"{workload.what} (run with {', '.join(f'{count:,}' for count in records)} records)"


def possible(row: Row) -> float | None:
    """Return the share of the possible rate, by keys and slots, of a peer that keeps an order."""
    rate = row.records_per_s
    if not rate or not row.shortest_s or PEERS[row.peer].order == "unordered":
        return None
    return rate / (row.records / row.shortest_s)


def _where(comparison: Comparison) -> str:
    machine = comparison.machine
    if not machine:
        return ""
    cores, gib = machine["cores"], machine["memory_gib"]
    busy = machine["load_before"] > _QUIET_LOAD
    return (
        f"Measured {machine['measured']} on {cores} cores of an {machine['processor']},"
        f" {gib:g} GiB, {machine['system']}, with Apache Kafka {machine['kafka']}"
        f" on the same cores; {machine['runs']}; load before: {machine['load_before']:g}."
        f"{_BUSY if busy else ''}"
    )


def _workload(comparison: Comparison, name: str) -> str:
    workload = WORKLOADS[name]
    rows = in_order(comparison, name)
    lines = [f"**`{name}`**: {what(rows)}", ""]
    lines.append(_HEAD.format(possible=" of what is possible |" if workload.possible else ""))
    lines.append(_RULE + ("---:|" if workload.possible else ""))
    lines.extend(_row(row) for row in rows)
    return "\n".join(lines)


def _row(row: Row) -> str:
    peer, workload = PEERS[row.peer], WORKLOADS[row.workload]
    name = f"**{peer.title}**" if peer.ours else peer.title
    cells = [peer.order, name, _at_once(peer, row)]
    if not row.turns:
        reason = f"failed: {row.failed.splitlines()[0]}" if row.failed else "not run"
        cells += [reason, *[NOTHING] * 7]
    else:
        cells += [_rate(row), *(_ms(row.milliseconds(name)) for name in ("p50_ms", "p99_ms"))]
        counts = ["lost", "repeated", "out_of_order", "at_once"]
        cells += [_count(row.most(name)) for name in counts]
        cells.append(_count(row.uncommitted))
    if workload.possible:
        share = possible(row)
        cells.append(NOTHING if share is None else f"{share:.2f}")
    return f"| {' | '.join(cells)} |"


def _at_once(peer: Peer, row: Row) -> str:
    workload = WORKLOADS[row.workload]
    if "concurrency" in peer.options:
        return f"{int(peer.options['concurrency']):,}"
    partitions = workload.contents.partitions
    return _SLOTS[peer.slots].format(slots=workload.slots, partitions=partitions)


def _rate(row: Row) -> str:
    rate = "?" if row.records_per_s is None else f"{row.records_per_s:,.0f}"
    if row.complete:
        return rate
    return f"{rate}, not finished: {row.handled:,} of {row.records:,}"


def _ms(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _count(count: int | None) -> str:
    return NOTHING if count is None else f"{count:,}"


def _settings(comparison: Comparison) -> str:
    lines = ["**How each is set up**", "", "| peer | versions | settings |", "|---|---|---|"]
    lines.extend(_setting(comparison, peer) for peer in _measured(comparison))
    lines.extend(f"\n{peer.title}: {problem}." for peer, problem in _problems(comparison))
    return "\n".join(lines)


def _setting(comparison: Comparison, peer: Peer) -> str:
    versions = comparison.versions(peer.name).items()
    said = ", ".join(f"{name} {version}" for name, version in versions) or NOTHING
    return f"| {peer.title} | {said} | {peer.settings} |"


def _measured(comparison: Comparison) -> Iterator[Peer]:
    there = {row.peer for row in comparison.rows}
    yield from (peer for name, peer in PEERS.items() if name in there)


def _problems(comparison: Comparison) -> Iterator[tuple[Peer, str]]:
    for peer in _measured(comparison):
        for row in comparison.rows:
            if row.peer == peer.name:
                problems = [*row.problems, *([row.failed.splitlines()[0]] if row.failed else [])]
                yield from ((peer, f"`{row.workload}`: {problem}") for problem in problems)


def _missing(comparison: Comparison) -> str:
    lines = ["**Not installed**", ""]
    lines.extend(
        f"- {PEERS[name].title}: {reason}"
        for name, reason in comparison.missing.items()
        if name in PEERS
    )
    return "\n".join(lines)
