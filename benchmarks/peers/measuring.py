"""Runs the peers in turn, workload by workload."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.peers.comparison import Comparison, Row
from benchmarks.peers.contents import fill
from benchmarks.peers.environments import ENVIRONMENTS, NotInstalledError
from benchmarks.peers.filling import filled
from benchmarks.peers.roster import Peer
from benchmarks.peers.turns import Turn, take_turn
from benchmarks.peers.workloads import PeerWorkload
from benchmarks.topics import Say, Topics
from window_consumer.model.errors import WindowConsumerError

Commands = Mapping[str, Sequence[str]]


def install(peers: Sequence[Peer], say: Say) -> tuple[Commands, Mapping[str, str]]:
    """Return the command of each peer's runner, and why the others cannot be installed."""
    commands: dict[str, Sequence[str]] = {}
    missing: dict[str, str] = {}
    failed: dict[str, str] = {}
    for peer in peers:
        environment = ENVIRONMENTS[peer.environment]
        if peer.environment not in failed:
            try:
                directory = environment.prepare(peer.environment, say)
                commands[peer.name] = environment.command(directory, peer.runner)
                continue
            except NotInstalledError as error:
                failed[peer.environment] = str(error)
                say(f"{peer.environment} is not installed: {error}")
        missing[peer.name] = failed[peer.environment]
    return commands, missing


def compare(
    peers: Sequence[Peer],
    workloads: Sequence[PeerWorkload],
    topics: Topics,
    runs: int,
    say: Say,
    machine: Mapping[str, Any],
) -> Iterator[Comparison]:
    """Run each installed peer ``runs`` times in each workload.

    Yields all results so far after each peer's turn, so that they can be saved at once.
    """
    commands, missing = install(peers, say)
    there = [peer for peer in peers if peer.name in commands]
    rows: list[Row] = []
    for workload in workloads:
        filled(topics, workload.contents, say)
        held = fill(workload.contents)
        shortest_s = held.shortest_s(workload.slots) if workload.waits else 0.0
        for peer in there:
            turns, failed = _turns(peer, commands[peer.name], workload, topics, runs)
            records = workload.contents.records
            rows.append(Row(peer.name, workload.name, records, shortest_s, turns, failed))
            say(_in_words(rows[-1]))
            yield Comparison(machine, list(rows), missing)
    if not rows:
        yield Comparison(machine, rows, missing)


def _turns(
    peer: Peer, command: Sequence[str], workload: PeerWorkload, topics: Topics, runs: int
) -> tuple[Sequence[Turn], str]:
    """Return the runs, and the reason if some are missing.

    Where the handler does nothing, recording costs as much as handling. There the first run is
    timed record by record, and the rate comes from further, untimed runs.
    """
    turns: list[Turn] = []
    kinds = [True] * runs if workload.waits else [True, *[False] * runs]
    for timed in kinds:
        try:
            turns.append(take_turn(peer, command, workload, topics, timed=timed))
        except (WindowConsumerError, OSError, ValueError) as error:
            return turns, str(error)
    return turns, ""


def _in_words(row: Row) -> str:
    if row.failed:
        return f"{row.workload}: {row.peer}: failed: {row.failed}"
    kinds = ("lost", "repeated", "out_of_order", "at_once")
    counts = {**{kind: row.most(kind) for kind in kinds}, "uncommitted": row.uncommitted}
    found = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    p99_ms = row.milliseconds("p99_ms")
    return (
        f"{row.workload}: {row.peer}: {row.records_per_s or 0:,.0f} records/s"
        f"{'' if row.complete else f', not finished: {row.handled:,} of {row.records:,}'}"
        f"{'' if p99_ms is None else f', p99 {p99_ms:,.1f} ms'}{f' ({found})' if found else ''}"
        f"{''.join(f' [{problem}]' for problem in row.problems)}"
    )
