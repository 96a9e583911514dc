"""The results of a run, and of several runs together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from attrs import field, frozen

from benchmarks.workloads import RATIO_OF, Baseline, Floor, Workload


@frozen
class Run:
    """One run of a workload or of a baseline, in a separate process."""

    records_per_s: float
    cpu_s: float = 0.0
    """Processor time of the process from the start of its consumer to the end."""
    max_rss_mb: float = 0.0
    lost: int = 0
    duplicates: int = 0
    order_violations: int = 0
    committed_equals_end: bool = True
    ratios: dict[str, float] = field(factory=dict)
    """Ratios that need no baseline."""
    notes: dict[str, float] = field(factory=dict)
    """Other measurements; the names contain the unit."""
    variants: dict[str, dict[str, Any]] = field(factory=dict)
    """The measurements of each variant, where a run has several."""
    worst: dict[str, str] = field(factory=dict)
    """The variant that a note is of, where notes are the worst of several."""


@frozen
class Spread:
    """Several measurements of one thing."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median."""
        return median(self.values)

    def as_json(self) -> dict[str, float]:
        """Return the smallest and the largest."""
        return {"min": min(self.values), "max": max(self.values)}


@frozen
class Measured:
    """All runs of a workload and of its baselines."""

    workload: Workload
    runs: Sequence[Run]
    baselines: Mapping[Baseline, Sequence[Run]] = field(factory=dict)
    checks: Sequence[Run] = ()
    """Untimed runs, with a handler that records every call."""

    @property
    def records_per_s(self) -> Spread:
        """The rates of the workload."""
        return _rates(self.runs)

    def baseline(self, name: Baseline) -> Spread:
        """Return the rates of a baseline."""
        return _rates(self.baselines[name])

    @property
    def ratios(self) -> dict[str, float]:
        """The ratio of the median rate to each baseline's, and the runs' own ratios."""
        compared = {
            RATIO_OF.get(name, name): self.records_per_s.median / self.baseline(name).median
            for name in self.baselines
        }
        runs = self.runs
        own = {ratio: median(run.ratios[ratio] for run in runs) for ratio in runs[0].ratios}
        return compared | own

    @property
    def ratio_spreads(self) -> dict[str, Spread]:
        """The ratios of the runs, each to the baselines' runs that followed it."""
        runs = self.runs
        compared = {
            RATIO_OF.get(name, name): Spread(
                tuple(
                    ours / other
                    for ours, other in zip(self.records_per_s.values, rates, strict=True)
                )
            )
            for name in self.baselines
            for rates in [self.baseline(name).values]
        }
        own = {ratio: Spread(tuple(run.ratios[ratio] for run in runs)) for ratio in runs[0].ratios}
        return compared | own

    @property
    def notes(self) -> dict[str, float]:
        """The medians of the other measurements; of a guarantee the worst, as none may break it."""
        worst = {each.ratio: each.worst for each in self.workload.floors if each.is_guarantee}
        return {
            name: worst.get(name, median)([run.notes[name] for run in self.runs])
            for name in self.runs[0].notes
        }

    @property
    def figures(self) -> dict[str, float]:
        """Everything that a floor can refer to."""
        return {"records_per_s": self.records_per_s.median, **self.notes, **self.ratios}

    @property
    def lost(self) -> int:
        """Records that were never handled, over all runs."""
        return sum(run.lost for run in self._watched)

    @property
    def duplicates(self) -> int:
        """Records that were handled again, over all runs."""
        return sum(run.duplicates for run in self._watched)

    @property
    def order_violations(self) -> int:
        """Records that began too early, over all runs."""
        return sum(run.order_violations for run in self._watched)

    @property
    def committed_equals_end(self) -> bool:
        """Whether the committed offsets reached the end of the log after each run."""
        return all(run.committed_equals_end for run in self._watched)

    @property
    def _watched(self) -> Sequence[Run]:
        return [*self.runs, *self.checks]

    def failures(self) -> Iterator[str]:
        """Yield failures that invalidate the figures."""
        if self.lost:
            yield f"{self.lost:,} records were lost"
        allowed = self.workload.may_repeat * len(self.checks)
        if self.duplicates > allowed:
            but = f"{allowed:,} may be" if allowed else "although nothing broke"
            yield f"{self.duplicates:,} records were handled twice, {but}"
        if invented := sum(run.notes.get("invented", 0) for run in self._watched):
            yield f"{invented:,.0f} effects or results belong to no record"
        if self.order_violations:
            yield f"{self.order_violations:,} records were handled out of order"
        if late := sum(run.notes.get("dead_letters_late", 0) for run in self._watched):
            yield f"{late:,.0f} dead letters came later than the policy states"
        for floor, value in self.missed():
            if floor.is_guarantee:
                yield f"{floor.ratio} is {value:,.4g} instead of {floor}"
        if not self.committed_equals_end:
            yield "the committed offsets do not reach the end of the log"

    def missed(self) -> Iterator[tuple[Floor, float]]:
        """Yield the missed floors, with the measured values."""
        for floor in self.workload.floors:
            value = self.figures[floor.ratio]
            if not floor.holds(value):
                yield floor, value


def _rates(runs: Sequence[Run]) -> Spread:
    return Spread(tuple(run.records_per_s for run in runs))


def exit_code(measured: Sequence[Measured], *, strict: bool) -> int:
    """Return 1 for a failure of any workload, and with ``strict`` for a missed floor, else 0."""
    failed = any(any(each.failures()) for each in measured)
    missed = any(any(True for _ in each.missed()) for each in measured)
    return int(failed or (strict and missed))
