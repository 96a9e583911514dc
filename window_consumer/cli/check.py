"""``window-consumer check``: the bounds of a configuration, as text or JSON."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Any

import attrs
from attrs import field, frozen

from window_consumer.app.connect import ClusterFindings, findings_of
from window_consumer.app.limits import RetryWait, WorkerBounds, bounds_of
from window_consumer.app.limits.process import ProcessBounds, container_limit, process_bounds_of
from window_consumer.config.units import brief_duration, format_duration, format_size
from window_consumer.engine.commits.delivery_guarantee import DeliveryMode
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.definition import AppDefinition
from window_consumer.plan.feature import CheckFindings


@frozen
class CheckReport:
    """The result of ``check`` if nothing is wrong."""

    file: str
    workers: tuple[WorkerBounds, ...]
    process: ProcessBounds
    cluster: tuple[ClusterFindings, ...] = ()
    other_warnings: tuple[str, ...] = ()
    findings: Mapping[str, Sequence[CheckFindings]] = field(factory=dict)
    """Findings of features outside Kafka, and upcoming events, by their keys in the JSON."""

    @property
    def process_warnings(self) -> list[str]:
        """Return the warnings that concern the whole process."""
        return [*self.process.warnings, *self.other_warnings]

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values; times in seconds, sizes in bytes."""
        connected = {each.worker: each for each in self.cluster}
        return {
            "ok": True,
            "file": self.file,
            "process": {**attrs.asdict(self.process), "warnings": self.process_warnings},
            "workers": {
                bounds.worker: {
                    **attrs.asdict(bounds),
                    **(
                        {"cluster": attrs.asdict(connected[bounds.worker])}
                        if bounds.worker in connected
                        else {}
                    ),
                }
                for bounds in self.workers
            },
            **{key: [_plain(each) for each in found] for key, found in self.findings.items()},
        }

    def as_text(self) -> str:
        """Return the report as text for people."""
        lines = [f"{self.file}: fine"]
        connected = {each.worker: each for each in self.cluster}
        for bounds in self.workers:
            lines.append("")
            lines.extend(_in_words(bounds))
            if bounds.worker in connected:
                lines.extend(connected[bounds.worker].in_words())
            lines.extend(f"  warning: {warning}" for warning in bounds.warnings)
        for each in chain.from_iterable(self.findings.values()):
            lines += ["", *each.in_words()]
        lines += ["", *_of_the_process(self.process)]
        lines += [f"  warning: {warning}" for warning in self.process_warnings]
        return "\n".join(lines)


def check(
    app: AppDefinition,
    plan: AppPlan,
    *,
    connect: bool,
    start_timeout: float | None,
    processes: int = 1,
    rate: float | None = None,
) -> CheckReport:
    """Compute the bounds of a plan; ask databases and the cluster if ``connect`` is set."""
    findings: dict[str, Sequence[CheckFindings]] = {
        feature.findings_key: feature.findings(plan, start_timeout) if connect else ()
        for feature in app.features.each
        if feature.findings_key is not None
    }
    found = findings_of(app, plan, start_timeout) if connect else ()
    times = {each.worker: each.group_times for each in found}
    bounds = tuple(
        bounds_of(
            worker,
            times.get(worker.name),
            dlq_retention_s=plan.config.topics.dlq_retention,
            rate=rate,
        )
        for worker in plan.workers
    )
    process = process_bounds_of(bounds, container_limit(), processes)
    warnings = app.features.warnings(plan)
    findings |= app.features.bounds(plan, rate)
    findings |= app.features.outlook(plan.config, time.time() * 1000)
    return CheckReport(plan.file, bounds, process, found, warnings, findings)


def _plain(findings: Any) -> dict[str, Any]:
    return attrs.asdict(findings)


def _of_the_process(bounds: ProcessBounds) -> Iterator[str]:
    limit = bounds.container_limit_bytes
    container = "no limit for its container"
    if limit is not None:
        container = f"its container's limit is {format_size(_rounded(limit))}"
    yield "the process" if bounds.processes == 1 else f"all {bounds.processes} processes"
    yield (
        f"  at most about {format_size(_rounded(bounds.resident_bytes))} resident, plus what the"
        f" application loads; {container}"
    )
    yield f"  terminationGracePeriodSeconds: {bounds.termination_grace_period_s}"


def _in_words(bounds: WorkerBounds) -> Iterator[str]:
    auto = bounds.least_concurrency is not None
    concurrency = f"auto, {bounds.least_concurrency} to " if auto else ""
    concurrency += f"{bounds.concurrency}"
    yield f"{bounds.worker} (ordering: {bounds.ordering}, concurrency: {concurrency})"
    yield (
        f"  holds at most {bounds.window_records} records a partition in its window, then"
        f" {bounds.buffer_records} in its buffer"
    )
    if bounds.waiting_records:
        yield (
            f"  holds at most {bounds.waiting_records} records a partition of a retry topic before"
            " they are due"
        )
    yield (
        f"  holds at most {format_size(bounds.max_bytes)} of payload, prefetch included, and one"
        f" batch over it (about {format_size(bounds.overshoot_bytes)}); some"
        f" {format_size(_rounded(bounds.resident_bytes))} resident"
    )
    if bounds.once_table_bytes is not None:
        size = format_size(_rounded(bounds.once_table_bytes))
        yield f"  the ids of once take about {size} in the database at that rate"
    if bounds.fair is not None:
        yield (
            f"  classes of records {bounds.fair}; this applies within the"
            f" {bounds.window_records} records of a partition's window"
        )
    if bounds.rate is not None:
        yield f"  starts calls no faster than {bounds.rate} in this process, retries included"
    if bounds.children_bytes:
        up_to, size = "at most " if auto else "", format_size(bounds.children_bytes)
        yield (
            f"  {up_to}{bounds.concurrency} child processes: about {size} more resident, plus what"
            " the application loads in each"
        )
    if bounds.max_abandoned:
        yield (
            f"  at most {bounds.concurrency + bounds.max_abandoned} handler calls run at once,"
            f" {bounds.max_abandoned} of them given up because they do not return"
        )
    yield from _after_a_crash(bounds)
    yield f"  a stop takes at most {format_duration(bounds.stop_s)}"
    yield from (f"  {line}" for line in _retries(bounds))
    if bounds.child_deaths is not None:
        alone, in_batch = bounds.child_deaths
        where = f", about {in_batch} where it was in a full batch" if in_batch > alone else ""
        yield f"  a record that kills its child process leaves after {alone} such deaths{where}"
    if bounds.delivery not in (DeliveryMode.BROADCAST, DeliveryMode.AT_MOST_ONCE):
        fewest, most = bounds.crash_ends
        yield (
            f"  a record that kills the process leaves after {fewest} crashes, or {most} if a"
            " whole window ran before it; a restart counts once it has begun to read"
        )
    yield from _calls(bounds)
    yield (
        "  one record that stays open for X seconds limits its partition to"
        f" {bounds.window_records} / X records/s (60 s: {bounds.records_per_s_beside(60):.0f}/s)"
    )


def _after_a_crash(bounds: WorkerBounds) -> Iterator[str]:
    if bounds.begins is not None:
        yield f"  each process reads all partitions, at every start from {bounds.begins}"
        return
    if bounds.delivery is DeliveryMode.AT_MOST_ONCE:
        yield (
            f"  after a crash the records that are running or queued in its {bounds.concurrency}"
            " slots are lost; none runs again"
        )
    elif bounds.delivery is DeliveryMode.EXACTLY_ONCE:
        yield (
            f"  after a crash at most {bounds.rerun_running} running records run again, and those"
            " whose transaction had not ended; readers of committed records see no output of those"
        )
    else:
        yield (
            f"  after a crash at most {bounds.rerun_running} running records run again, and those"
            f" that finished in the last {bounds.rerun_finished_s:.1f} s"
        )
    fits = "always fits" if bounds.metadata_fits else "does NOT always fit"
    yield (
        f"  (commit metadata: at most {bounds.metadata_bytes} bytes, which {fits} the 4095 of a"
        f" commit; if another program overwrites it, {bounds.rerun_records_without_metadata} a"
        " partition)"
    )
    times = bounds.group_times
    yield (
        f"  if a member crashes or hangs, others take over its partitions after at most"
        f" {format_duration(bounds.crash_takeover_s)}: session"
        f" {format_duration(times.session_s)} ({times.session_from}), heartbeat"
        f" {format_duration(times.heartbeat_s)} ({times.heartbeat_from}), and the longest call of"
        f" the others, at most {format_duration(bounds.revoke_timeout_s)} (revoke_timeout)"
    )


_UNROUTABLE = {
    "dead_letter": "goes to the dead letters",
    "skip": "is skipped",
    "stop": "stops the worker",
}
_EXPIRED = {"dead_letter": "goes to the dead letters", "drop": "is dropped"}


def _calls(bounds: WorkerBounds) -> Iterator[str]:
    """Yield the conditions that select a record's handler."""
    if len(bounds.routes) > 1 or bounds.otherwise is not None:
        first, *others = bounds.routes
        yield f"  calls {first}"
        yield from (f"  else {route}" for route in others)
        if bounds.otherwise is not None:
            yield f"  else the record {_UNROUTABLE[bounds.otherwise]}"
    if bounds.ttl is not None:
        after = f"{bounds.ttl} after its own time"
        if bounds.ttl.startswith("{"):
            after = f"by its header, {bounds.ttl}"
        yield f"  a record expires {after} and {_EXPIRED[bounds.on_expired]}"


def _rounded(size: int) -> int:
    mebibyte = 1024**2
    return -(-size // mebibyte) * mebibyte


def _retries(bounds: WorkerBounds) -> Iterator[str]:
    later = brief_duration(bounds.retry_later_longest_s)
    if bounds.calls is None or bounds.retry_elapsed_s is None:
        yield "a failing record is called again without end; its lane waits"
        yield f"  RetryLater waits at most {later}, the upper end of backoff"
        return
    end = _SPENT[bounds.when_spent]
    if not bounds.retry_waits:
        yield f"a failing record is called once, then {end}; with RetryLater, too"
        return
    shortest, longest = map(brief_duration, bounds.retry_elapsed_s)
    yield (
        f"a failing record is called {bounds.calls} times, over {shortest} to {longest} and the"
        f" calls themselves, then {end}"
    )
    for level, found in groupby(bounds.retry_waits, lambda wait: wait.level):
        waits = list(found)
        if level is None:
            yield f"  again where it is after {_listed(waits)}"
            continue
        first, *others = waits
        late = brief_duration(first.longest_s - first.shortest_s)
        then = f", then after {_listed(others)}" if others else ""
        yield f"  again at level {level}, at most {late} late{then}"
    if any(wait.level is not None for wait in bounds.retry_waits):
        yield (
            "  RetryLater for longer than the upper end of backoff moves on to the first level that"
            f" waits that long, {later} at most"
        )
        return
    longer = "" if bounds.begins else ": longer waits need retry.levels"
    yield (
        f"  RetryLater waits at most {later}, the upper end of backoff, and counts as one of"
        f" these calls{longer}"
    )


_SPENT = {
    "dead_letter": "goes to the dead letters",
    "drop": "is dropped",
    "stop": "stops the worker",
}

_MOST_LISTED = 6
"""More waits in one place would only repeat."""


def _listed(waits: Sequence[RetryWait]) -> str:
    listed = [
        f"{brief_duration(wait.shortest_s)}..{brief_duration(wait.longest_s)}" for wait in waits
    ]
    if len(listed) > _MOST_LISTED:
        *listed, last = listed
        left_out = len(listed) - _MOST_LISTED + 1
        listed = [*listed[: _MOST_LISTED - 1], f"{left_out} more, {last}"]
    return ", ".join(listed)
