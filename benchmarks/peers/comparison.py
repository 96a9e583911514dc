"""The peers' results, saved as JSON so that table and chart can be drawn again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import cattrs
from attrs import field, frozen

from benchmarks.peers.roster import PEERS
from benchmarks.peers.turns import Turn
from benchmarks.peers.workloads import WORKLOADS
from window_consumer.model.errors import UsageError


@frozen
class Row:
    """A peer in a workload: its runs, or why there are none."""

    peer: str
    workload: str
    records: int
    shortest_s: float
    """The shortest time that the workload can take, with each key in order; 0 without waits."""
    turns: Sequence[Turn] = ()
    failed: str = ""
    """Why it could not be measured, if it failed."""

    @property
    def telling(self) -> Sequence[Turn]:
        """The runs that show the rate: the untimed ones, if any."""
        untimed = [turn for turn in self.turns if not turn.timed]
        return untimed or self.turns

    @property
    def records_per_s(self) -> float | None:
        """The median of their rates."""
        rates = [turn.records_per_s for turn in self.telling if turn.records_per_s]
        return median(rates) if rates else None

    @property
    def handled(self) -> int:
        """The fewest records that one of them finished."""
        return min((turn.verdict.handled for turn in self.telling), default=0)

    @property
    def complete(self) -> bool:
        """Whether each of them finished all records."""
        return bool(self.turns) and self.handled == self.records

    @property
    def uncommitted(self) -> int | None:
        """The most uncommitted records of a run that finished all; None: none did."""
        found = [turn.verdict.uncommitted for turn in self.turns if turn.verdict.complete]
        return max(found, default=None)

    def milliseconds(self, name: str) -> float | None:
        """Return the median of ``p50_ms`` or ``p99_ms``."""
        found = [getattr(turn.verdict, name) for turn in self.turns]
        seen = [value for value in found if value is not None]
        return median(seen) if seen else None

    def most(self, name: str) -> int | None:
        """Return the largest count of this name in any run; None: no run could count it."""
        found = [getattr(turn.verdict, name) for turn in self.turns]
        return max((count for count in found if count is not None), default=None)

    @property
    def problems(self) -> Sequence[str]:
        """The problems that the runners reported."""
        return sorted({turn.problem for turn in self.turns if turn.problem})


@frozen
class Comparison:
    """All results, and the machine."""

    machine: Mapping[str, Any] = field(factory=dict)
    rows: Sequence[Row] = ()
    missing: Mapping[str, str] = field(factory=dict)
    """Peers that could not be installed, with the reason."""

    def row(self, peer: str, workload: str) -> Row | None:
        """Return the row of a peer in a workload, if there is one."""
        for row in self.rows:
            if (row.peer, row.workload) == (peer, workload):
                return row
        return None

    @property
    def workloads(self) -> Sequence[str]:
        """The workloads that have a row, in their order."""
        there = {row.workload for row in self.rows}
        return [name for name in WORKLOADS if name in there]

    def with_rows_of(self, before: Comparison) -> Comparison:
        """Return this with an earlier comparison's rows that were not measured again."""
        measured = {(row.peer, row.workload) for row in self.rows}
        kept = [row for row in before.rows if (row.peer, row.workload) not in measured]
        asked = {row.peer for row in self.rows} | set(self.missing)
        missing = {name: why for name, why in before.missing.items() if name not in asked}
        return Comparison(self.machine, [*kept, *self.rows], {**missing, **self.missing})

    def versions(self, peer: str) -> Mapping[str, str]:
        """Return the versions that a peer reported."""
        for row in self.rows:
            if row.peer == peer and row.turns:
                return row.turns[-1].versions
        return {}

    def save(self, path: Path) -> None:
        """Write the comparison to a file."""
        path.write_text(json.dumps(cattrs.unstructure(self), indent=1) + "\n", "utf-8")

    @classmethod
    def load(cls, path: Path) -> Comparison:
        """Read a comparison. Raises UsageError if the file is missing or invalid."""
        if not path.is_file():
            raise UsageError(f"{path} is not there: `python -m benchmarks peers` makes it")
        try:
            found = cattrs.structure(json.loads(path.read_text("utf-8")), cls)
        except (ValueError, cattrs.BaseValidationError) as error:
            raise UsageError(f"{path} is no comparison of peers: {error}") from error
        known = [row for row in found.rows if row.peer in PEERS and row.workload in WORKLOADS]
        return Comparison(found.machine, known, found.missing)
