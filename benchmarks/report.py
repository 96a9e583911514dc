"""The report of the results: for people, as JSON, and as a table for the documentation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from benchmarks.results import Measured, Spread
from benchmarks.workloads import WORKLOADS, Floor
from window_consumer.model.errors import UsageError

Json = dict[str, Any]


def as_json(measured: Measured, machine: Mapping[str, Any]) -> Json:
    """Return all results of a workload; ``machine`` describes where it was measured."""
    ratios, spreads = measured.ratios, measured.ratio_spreads
    runs = measured.runs
    return {
        "workload": measured.workload.name,
        "records_per_s": measured.records_per_s.median,
        "baselines": {name: measured.baseline(name).median for name in measured.baselines},
        **measured.notes,
        "ratios": ratios,
        "floors": {
            floor.ratio: {
                "at_most" if floor.at_most else "at_least": floor.limit,
                "holds": floor.holds(measured.figures[floor.ratio]),
            }
            for floor in measured.workload.floors
        },
        "cpu_s": Spread(tuple(run.cpu_s for run in runs)).median,
        "max_rss_mb": Spread(tuple(run.max_rss_mb for run in runs)).median,
        "lost": measured.lost,
        "duplicates": measured.duplicates,
        "order_violations": measured.order_violations,
        "committed_equals_end": measured.committed_equals_end,
        **({"variants": runs[-1].variants} if runs[-1].variants else {}),
        **({"worst": runs[-1].worst} if runs[-1].worst else {}),
        "spread": {
            "records_per_s": measured.records_per_s.as_json(),
            "baselines": {name: measured.baseline(name).as_json() for name in measured.baselines},
            "ratios": {name: spread.as_json() for name, spread in spreads.items()},
        },
        "runs": [attrs.asdict(run) for run in runs],
        "baseline_runs": {
            name: [attrs.asdict(run) for run in found] for name, found in measured.baselines.items()
        },
        "machine": dict(machine),
    }


def as_text(measured: Measured) -> str:
    """Return some lines about a workload."""
    runs = len(measured.runs)
    lines = [f"{measured.workload.name}: {measured.workload.what} ({runs} runs, medians)"]
    lines.append(f"  {'records/s':<14}{_rate(measured.records_per_s)}")
    lines.extend(f"  {name:<14}{_rate(measured.baseline(name))}" for name in measured.baselines)
    floors = {floor.ratio: floor for floor in measured.workload.floors}
    spreads = measured.ratio_spreads
    lines.extend(
        f"  ratio {name:<13} {_ratio(spreads[name], value)}{_verdict(floors.get(name), value)}"
        for name, value in measured.ratios.items()
    )
    others = {"records_per_s": measured.records_per_s.median, **measured.notes}
    worst = measured.runs[-1].worst
    lines.extend(
        f"  {name:<15} {value:,.4g}{_verdict(floors.get(name), value)}{_of(worst.get(name))}"
        for name, value in others.items()
        if name in measured.notes or name in floors
    )
    problems = list(measured.failures())
    lines.append(f"  {'FAILED: ' + '; '.join(problems) if problems else 'nothing lost, in order'}")
    return "\n".join(lines)


def table(reports: Sequence[Json]) -> str:
    """Return a Markdown table of JSON reports, in the workloads' order."""
    order = list(WORKLOADS)
    lines = [
        "| workload | records/s | against | ratio | has to hold | CPU s | max. RSS, MiB |",
        "|---|---:|---|---:|---|---:|---:|",
    ]
    for report in sorted(reports, key=lambda report: order.index(report["workload"])):
        lines.extend(_rows(report))
    return "\n".join(lines)


def read_reports(directory: Path) -> list[Json]:
    """Read the reports of a directory; raises UsageError if there are none."""
    found = []
    for path in sorted(directory.glob("*.json")):
        try:
            report = json.loads(path.read_text())
        except ValueError as error:
            raise UsageError(f"{path} is no JSON: {error}") from error
        if not isinstance(report, dict) or report.get("workload") not in WORKLOADS:
            raise UsageError(f"{path} is no report of a workload")
        found.append(report)
    if not found:
        raise UsageError(f"{directory} has no reports: write some with `all --json {directory}`")
    return found


def _rows(report: Json) -> Iterator[str]:
    first = [f"`{report['workload']}`", f"{report['records_per_s']:,.0f}"]
    last = [f"{report['cpu_s']:.1f}", f"{report['max_rss_mb']:.0f}"]
    spreads = report["spread"]["ratios"]
    for name, value in report["ratios"].items():
        floor = report["floors"].get(name, {})
        limit = "".join(f"≥ {floor[key]:g}" for key in ("at_least",) if key in floor)
        limit += "".join(f"≤ {floor[key]:g}" for key in ("at_most",) if key in floor)
        against = (
            f"{name} ({report['baselines'][name]:,.0f})" if name in report["baselines"] else name
        )
        spread = f"{value:.3f} ({spreads[name]['min']:.3f} to {spreads[name]['max']:.3f})"
        cells = [
            *first,
            against,
            spread,
            f"{limit}{'' if floor.get('holds', True) else ', missed'}",
        ]
        yield f"| {' | '.join([*cells, *last])} |"
        first, last = ["", ""], ["", ""]


def _rate(spread: Spread) -> str:
    low, high = min(spread.values), max(spread.values)
    return f"{spread.median:>12,.0f}  ({low:,.0f} to {high:,.0f})"


def _ratio(spread: Spread, value: float) -> str:
    return f"{value:.3f}  ({min(spread.values):.3f} to {max(spread.values):.3f})"


def _of(variant: str | None) -> str:
    return f" ({variant})" if variant else ""


def _verdict(floor: Floor | None, value: float) -> str:
    if floor is None:
        return ""
    return f"  {floor}: {'holds' if floor.holds(value) else 'MISSED'}"
