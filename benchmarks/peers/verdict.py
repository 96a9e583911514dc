"""The checker: what a run's journal shows about the peer. It is the same for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from benchmarks.peers.contents import Filled
from benchmarks.peers.journal import Journal

_NS = 1e9
_MS = 1e6


@frozen
class Verdict:
    """How the records of one run ended."""

    records: int
    handled: int
    """How many of them were finished at least once."""
    lost: int
    """Never finished, although the committed offset covers them: they will never be handled."""
    repeated: int
    """Finished again although nothing broke; each time counts."""
    out_of_order: int
    """Begun, or finished in an untimed run, after a later one of the same key."""
    at_once: int | None
    """Begun before one of the same key had ended; None: the run was not timed."""
    uncommitted: int
    """Finished, but not covered by the committed offsets: a restart handles them again."""
    seconds: float | None
    """From the first begin to the last end; None: the run was untimed, or nothing was handled."""
    p50_ms: float | None
    """From the hand-over by the client to the end of the handler; None: not visible."""
    p99_ms: float | None

    @property
    def complete(self) -> bool:
        """Whether all records were finished."""
        return self.handled == self.records


def judge(journal: Journal, filled: Filled, committed: Mapping[int, int]) -> Verdict:
    """Check a journal against the topic's contents and the group's commits."""
    numbers = set(journal.numbers)
    done_below = [0] * len(filled.log_ends)
    for number in numbers:
        partition = filled.partitions[number]
        done_below[partition] += filled.offsets[number] < committed.get(partition, 0)
    below = [min(committed.get(p, 0), end) for p, end in enumerate(filled.log_ends)]
    waited = _waited(journal)
    return Verdict(
        records=len(filled.keys),
        handled=len(numbers),
        lost=sum(below) - sum(done_below),
        repeated=len(journal.numbers) - len(numbers),
        out_of_order=_out_of_order(journal, filled),
        at_once=_at_once(journal, filled) if journal.timed else None,
        uncommitted=len(numbers) - sum(done_below),
        seconds=_seconds(journal),
        p50_ms=_quantile(waited, 0.50),
        p99_ms=_quantile(waited, 0.99),
    )


def _seconds(journal: Journal) -> float | None:
    if not journal.timed:
        return None
    return (max(journal.ended) - min(journal.started)) / _NS


def _waited(journal: Journal) -> list[int]:
    """Return the sorted durations of the records whose hand-over was seen."""
    return sorted(
        end - fetched
        for fetched, end in zip(journal.fetched, journal.ended, strict=True)
        if fetched
    )


def _quantile(waited: Sequence[int], share: float) -> float | None:
    if not waited:
        return None
    return waited[min(len(waited) - 1, int(len(waited) * share))] / _MS


def _in_turn(journal: Journal) -> Sequence[int]:
    """Return the journal's indices in the order in which calls began, if that is known."""
    places = range(len(journal.numbers))
    return sorted(places, key=journal.started.__getitem__) if journal.timed else places


def _out_of_order(journal: Journal, filled: Filled) -> int:
    """Count the first calls that came after the call of a later record of the key.

    A key's records have the order of their numbers, as each key has one partition.
    """
    latest: dict[int, int] = {}
    seen: set[int] = set()
    found = 0
    for place in _in_turn(journal):
        number = journal.numbers[place]
        if number in seen:
            continue
        seen.add(number)
        key = filled.keys[number]
        if number < latest.get(key, -1):
            found += 1
        else:
            latest[key] = number
    return found


def _at_once(journal: Journal, filled: Filled) -> int:
    """Count the calls that began while another one of the key was running."""
    free_at: dict[int, int] = {}
    found = 0
    for place in _in_turn(journal):
        key = filled.keys[journal.numbers[place]]
        free = free_at.get(key, 0)
        found += journal.started[place] < free
        free_at[key] = max(free, journal.ended[place])
    return found
