"""The gate: checks that every promised figure still holds.

The promises are the ``floors`` of each workload in ``workloads``. The long form runs all of them
unchanged. The short form is for CI: a few of the ratios, with fewer records, and a tolerance for a
busy machine of two cores. ``SHORT`` is its table; a line adds a ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from attrs import evolve, frozen

from benchmarks.results import Measured
from benchmarks.workloads import RATIO_OF, WORKLOADS, Floor, Workload
from window_consumer.model.errors import RunError

SHARE_OF_FLOOR = 0.6
"""The share of its floor below which a ratio fails the short form. Other load on the machine takes
a fifth; a broken hot path costs more than half.
"""

SHORT_RUNS = 3
"""Runs of each workload and baseline; the median counts."""

CHANCES = 2
"""A figure fails the short form only if it is too low this many times."""


@frozen
class Short:
    """What the short form runs of a workload, for one of its ratios."""

    workload: str
    ratio: str
    records: int
    """The fewest that give a reliable ratio: a second or two of work."""
    share: float = SHARE_OF_FLOOR


SHORT: tuple[Short, ...] = (
    Short("noop-unordered", "tuned-loop", 400_000),
    Short("noop-key", "tuned-loop", 400_000),
    Short("wait10-100", "ideal", 20_000, 0.8),
)


@frozen
class Verdict:
    """One figure, as measured and as promised."""

    workload: str
    figure: str
    value: float | None
    """None where nothing could be measured."""
    limit: str
    problem: str = ""
    """Why it is invalid or falls short; empty where it holds."""


Measure = Callable[[Workload], Measured]


def long_form(only: Sequence[str] = ()) -> list[Workload]:
    """Return the workloads with promises, all or those that are named."""
    return [each for each in WORKLOADS.values() if each.floors and (not only or each.name in only)]


def short_form() -> list[Workload]:
    """Return the workloads of the short form, with their size and their one floor there."""
    return [_shortened(WORKLOADS[each.workload], each) for each in SHORT]


def judge(workloads: Sequence[Workload], measure: Measure, chances: int = 1) -> list[Verdict]:
    """Measure workloads and judge each of their floors.

    A low figure is measured again, up to ``chances`` times in all. Lost or reordered records
    are final, and so is a run that fails.
    """
    verdicts: list[Verdict] = []
    for workload in workloads:
        for chance in range(1, chances + 1):
            try:
                measured = measure(workload)
            except RunError as error:
                verdicts.append(Verdict(workload.name, "-", None, "-", f"did not run: {error}"))
                break
            found = list(_verdicts(measured))
            wrong = any(True for _ in measured.failures())
            if wrong or chance == chances or not any(each.problem for each in found):
                verdicts += found
                break
    return verdicts


def table(verdicts: Sequence[Verdict]) -> str:
    """Return the results as a table for people, with all failures repeated at its end."""
    rows = [("workload", "figure", "measured", "has to be", "")]
    for each in verdicts:
        value = "-" if each.value is None else f"{each.value:,.4g}"
        rows.append((each.workload, each.figure, value, each.limit, each.problem or "holds"))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]])
        for row in rows
    ]
    short = [each for each in verdicts if each.problem]
    lines.append("")
    lines.extend(f"falls short: {each.workload}, {each.figure}: {each.problem}" for each in short)
    if not short:
        lines.append(f"all {len(verdicts)} figures hold")
    return "\n".join(line.rstrip() for line in lines)


def _shortened(workload: Workload, short: Short) -> Workload:
    (floor,) = (each for each in workload.floors if each.ratio == short.ratio)
    limit = floor.limit / short.share if floor.at_most else floor.limit * short.share
    return evolve(
        workload,
        topic=evolve(workload.topic, records=short.records),
        baselines=tuple(
            name for name in workload.baselines if RATIO_OF.get(name, name) == short.ratio
        ),
        floors=(evolve(floor, limit=round(limit, 3)),),
        runs=SHORT_RUNS,
    )


def _verdicts(measured: Measured) -> Iterator[Verdict]:
    wrong = "; ".join(measured.failures())
    for floor in measured.workload.floors:
        value = measured.figures[floor.ratio]
        problem = wrong or ("" if floor.holds(value) else _missed(floor, value))
        yield Verdict(measured.workload.name, floor.ratio, value, str(floor), problem)


def _missed(floor: Floor, value: float) -> str:
    return f"MISSED: {value:,.4g} instead of {floor}"
