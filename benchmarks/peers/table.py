"""The comparison as Markdown, for docs/lab/peers.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from benchmarks.peers.comparison import Comparison, Row
from benchmarks.peers.roster import PEERS, Peer
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
_RATES = (
    "**Records/s.** In brackets: the share of the records that was finished when a peer was"
    " stopped, if it was not all; after a slash: the share of what the busiest key allows."
)
_TIMES = "**From hand-over to end**, p50 and p99 in ms."
_FAULTS = "**Faults.** All others have none; commits are judged where a run finished all records."
_COUNTS = {"lost": "lost", "repeated": "repeated"}
_COUNTS_OF_ORDER = {"out_of_order": "out of order", "at_once": "overlapping"}
"""Counts that are faults only of peers that keep an order."""


def section(comparison: Comparison, chart: str) -> str:
    """Return everything between the markers; ``chart`` is the picture's place."""
    parts = [
        f"![Records per second of every peer in every workload]({chart})",
        _where(comparison),
        "\n".join(_described(comparison)),
        _matrix(comparison, _RATES, _rate),
        _matrix(comparison, _TIMES, _times),
        _faults(comparison),
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


def _described(comparison: Comparison) -> Iterator[str]:
    for name in comparison.workloads:
        yield f"- `{name}`: {what(in_order(comparison, name))}"


def _matrix(comparison: Comparison, title: str, cell: Callable[[Row], str]) -> str:
    """Return a table with a row for each peer and a column for each workload."""
    names = comparison.workloads
    lines = [title, "", f"| order kept | peer | {' | '.join(f'`{name}`' for name in names)} |"]
    lines.append(f"|---|---|{'---:|' * len(names)}")
    for peer in _by_order(comparison):
        rows = (comparison.row(peer.name, name) for name in names)
        cells = (cell(row) if row and row.turns else _absent(row) for row in rows)
        name = f"**{peer.title}**" if peer.ours else peer.title
        lines.append(f"| {peer.order} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _by_order(comparison: Comparison) -> Sequence[Peer]:
    return sorted(_measured(comparison), key=lambda peer: ORDERS.index(peer.order))


def _absent(row: Row | None) -> str:
    return "failed" if row and row.failed else NOTHING


def _rate(row: Row) -> str:
    rate = "?" if row.records_per_s is None else f"{row.records_per_s:,.0f}"
    done = "" if row.complete else f" ({row.handled / row.records:.0%})"
    share = possible(row) if WORKLOADS[row.workload].possible else None
    return f"{rate}{done}" if share is None else f"{rate}{done} / {share:.2f}"


def _times(row: Row) -> str:
    return f"{_ms(row.milliseconds('p50_ms'))}, {_ms(row.milliseconds('p99_ms'))}"


def _faults(comparison: Comparison) -> str:
    lines = [_FAULTS, ""]
    for peer in _by_order(comparison):
        rows = [row for row in comparison.rows if row.peer == peer.name and row.turns]
        said = [f"`{row.workload}` {faults}" for row in rows if (faults := _faults_of(row, peer))]
        if said:
            lines.append(f"- {peer.title}: {'; '.join(said)}")
    return "\n".join(lines)


def _faults_of(row: Row, peer: Peer) -> str:
    names = _COUNTS if peer.order == "unordered" else {**_COUNTS, **_COUNTS_OF_ORDER}
    counts = [(row.most(name), said) for name, said in names.items()]
    counts.append((row.uncommitted, "not committed"))
    return ", ".join(f"{count:,} {said}" for count, said in counts if count)


def _ms(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


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
