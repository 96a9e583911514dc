"""Reports of the audit for the page: ``audit report`` runs as a separate process.

Spark is heavy, and this way it shares neither memory nor the interpreter's lock with a worker.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from attrs import define, frozen

from window_consumer.audit.states import ALARMING, TERMS, UNREMARKABLE
from window_consumer.model.errors import UsageError

MOST_BUCKETS: Final = 200
"""Buckets that a page lists, those with losses first, then the latest; the totals cover all."""

_MOST_KEPT: Final = 10
_MOST_NOTES: Final = 10_000
_DEADLINE_S: Final = 1800.0
"""A report that takes longer is stopped."""

_COMMAND: Final = (sys.executable, "-m", "window_consumer", "audit", "report", "--json")
_DONE: Final = (0, 3)
"""Exit codes of a report: nothing is lost, something is."""


@frozen
class ReportQuestion:
    """The subject of a report."""

    kind: Literal["report", "explanation"]
    since: str | None = None
    """How far back a report goes, such as 6h."""
    bucket: str | None = None
    """The start of the bucket to explain, as a report names it."""
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    refresh: bool = False
    """Whether new records of the topic of counts are read into the table first."""

    def options(self) -> list[str]:
        """Return the options of the command."""
        found = [] if self.refresh else ["--no-refresh"]
        if self.since is not None:
            found.append(f"--since={self.since}")
        if self.bucket is not None:
            found.append(f"--explain={self.bucket}")
        found += [f"--topic={each}" for each in self.topics]
        return found + [f"--group={each}" for each in self.groups]


@define
class PageReport:
    """A running report, or its result. Its thread writes it; any thread may read it."""

    number: int
    question: ReportQuestion
    state: Literal["running", "done", "failed"] = "running"
    notes: str = ""
    """The messages of the command: what the report lacks, or why it failed."""
    result: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        question = self.question
        return {
            "number": self.number,
            "kind": question.kind,
            "since": question.since,
            "bucket": question.bucket,
            "topics": list(question.topics),
            "groups": list(question.groups),
            "state": self.state,
            "notes": self.notes,
            "result": self.result,
        }


class PageReports:
    """Runs one report at a time. Owner: the server's event loop."""

    def __init__(self, pipeline: Path, command: Sequence[str] = _COMMAND):
        """``pipeline`` is the configuration of the pipeline."""
        self._command = [*command, "-c", str(pipeline.absolute())]
        self._reports: list[PageReport] = []
        self._started = 0

    def start(self, question: ReportQuestion) -> PageReport:
        """Start a report; raises UsageError while another one runs."""
        if any(each.state == "running" for each in self._reports):
            raise UsageError("a report is already running: each takes a core and a gigabyte")
        self._started += 1
        report = PageReport(self._started, question)
        self._reports = [*self._reports[1 - _MOST_KEPT :], report]
        thread = threading.Thread(
            target=self._run, args=(report,), name="wc-audit-report", daemon=True
        )
        thread.start()
        return report

    def of(self, number: int) -> PageReport | None:
        """Return a report, None if it no longer exists."""
        return next((each for each in self._reports if each.number == number), None)

    def _run(self, report: PageReport) -> None:
        command = [*self._command, *report.question.options()]
        try:
            ended = subprocess.run(  # noqa: S603 - this very program
                command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False
            )
            lines = [json.loads(line) for line in ended.stdout.splitlines()]
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            report.notes, report.state = f"the report failed: {error}", "failed"
            return
        report.notes = ended.stderr.strip()[-_MOST_NOTES:]
        if ended.returncode not in _DONE:
            report.state = "failed"
            return
        summarise = summary if report.question.kind == "report" else explanations
        report.result = summarise(lines)
        report.state = "done"


def summary(lines: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return totals by topic and group, and the buckets that need attention."""
    totals: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    findings: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    states: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    odd, latencies, about = [], [], {}
    for line in lines:
        if line["what"] == "latency":
            latencies.append(line)
        elif line["what"] == "report":
            about = {name: each for name, each in line.items() if name != "what"}
        else:
            place = line["topic"], line["group"]
            totals[place].update({term: line[term] for term in TERMS})
            findings[place][line["finding"]] += 1
            states[place][line["state"]] += 1
            if line["finding"] not in UNREMARKABLE:
                odd.append(line)
    odd.sort(key=lambda line: (line["finding"] not in ALARMING, -line["bucket_ms"], line["topic"]))
    return {
        "places": [
            {
                "topic": topic,
                "group": group,
                "totals": dict(totals[topic, group]),
                "findings": dict(findings[topic, group]),
                "states": dict(states[topic, group]),
            }
            for topic, group in sorted(totals)
        ],
        "buckets": odd[:MOST_BUCKETS],
        "more_buckets": max(0, len(odd) - MOST_BUCKETS),
        "latencies": latencies,
        **about,
    }


def explanations(lines: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the partitions whose records differ, each with its offsets and ids."""
    return {"partitions": [line for line in lines if line["what"] == "explanation"]}
