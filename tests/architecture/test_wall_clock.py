"""The wall clock may jump: it is read for what leaves the process, and no rule depends on it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.sources import trees

WALL = {"time", "time_ns", "localtime", "gmtime", "now", "utcnow", "today", "fromtimestamp"}
"""Of the modules time and datetime; ``Clock.now`` of ours is the steady one."""

MAY_READ_IT = {
    "runtime/clock.py": {"time_ns"},
    "cli/logs.py": {"fromtimestamp"},
    "cli/check.py": {"time"},
    "kafka/login/gcp.py": {"time"},
    "kafka/login/oidc.py": {"time"},
    "metrics/otel/call_spans.py": {"time_ns"},
    "metrics/otel/exporting.py": {"time_ns"},
    "metrics/otel/slice_spans.py": {"time_ns"},
    "sqs/worker_queue.py": {"time_ns"},
    "kafka/traced_producer.py": {"time_ns"},
    "producer/producer.py": {"time_ns"},
    "trace/recording/writer.py": {"time"},
    "admin/board.py": {"time_ns"},
    "sqs/queue_attributes.py": {"time"},
    "admin/guard.py": {"time"},
    "admin/commands/top.py": {"time"},
    "audit/commands/report.py": {"time_ns"},
    "audit/commands/printing.py": {"fromtimestamp"},
    "audit/spark/report.py": {"fromtimestamp"},
    "spark/commands/maintain.py": {"now"},
    "trace/commands/index.py": {"fromtimestamp"},
    "trace/commands/show.py": {"fromtimestamp"},
    "trace/commands/search.py": {"time"},
    "trace/page.py": {"time_ns"},
    "trace/spark/search.py": {"fromtimestamp"},
    "dlq/commands/report.py": {"time"},
    "dlq/report/formatting.py": {"fromtimestamp"},
    "dlq/report/suggested_commands.py": {"fromtimestamp"},
    "dlq/spark/ranges.py": {"fromtimestamp"},
    "dlq/spark/summary.py": {"fromtimestamp"},
    "spark/backfill/ranges.py": {"fromtimestamp"},
    "cli/options.py": {"now"},
    "database/outbox/store.py": {"now"},
    "database/outbox/row.py": {"now"},
    "spark/commands/backfill.py": {"time"},
    "audit/commands/alerts.py": {"fromtimestamp", "time"},
    "dlq/commands/export.py": {"time"},
    "dlq/commands/list.py": {"time"},
    "dlq/commands/purge.py": {"time", "fromtimestamp"},
    "dlq/commands/show.py": {"fromtimestamp"},
    "dlq/page.py": {"time"},
    "dlq/page_answers.py": {"time"},
    "replay/commands/options.py": {"time"},
    "replay/commands/rewind.py": {"fromtimestamp"},
    "replay/job.py": {"fromtimestamp"},
    "delay/cancel_topic.py": {"time"},
    "delay/commands/cancel.py": {"fromtimestamp"},
    "delay/commands/send.py": {"time", "fromtimestamp"},
    "delay/commands/status.py": {"time"},
}
"""SystemClock.wall_ms, the time of a log line, a token's expiry, which is a date, when something
happened that is traced, here or in OpenTelemetry, when a record was sent, when a picture was taken,
the end of a browser's session, what is asked of the trace and the audit, which range a backfill or
a replay is about, the age of dead letters, which are counted, shown and deleted by it, and when a
row of an outbox, or a record of the delay service, is due."""

MAY_ASK_FOR_IT = {
    "runtime/poll_loop.py",
    "runtime/figures/inspection.py",
    "dlq/redrive.py",
    "dlq/redrive_setup.py",
    "audit/sink.py",
    "replay/job.py",
    "schedules/ownership.py",
    "delay/wheel/wheels.py",
    "runtime/partitions/broadcast_offsets.py",
}
"""Where a copy's headers are written, or that a dead letter is resolved; where a copy comes in that
is due at a time of the wall; where a condition on records speaks of their age, and a run of a
replay gets its name; where a result, or what is put back, gets the timestamp that it is counted
by; where a schedule ticks; where delayed records are due; where
a broadcast worker begins at an age."""


def calls(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the module and the name of what is called, as far as it is time or datetime."""
    modules = {"time", "datetime", "date"}
    imported = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "time"
        for alias in node.names
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in imported:
            yield "time", imported[node.func.id]
        elif (
            isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id in modules
        ):
            yield node.func.value.id, node.func.attr


def test_the_wall_clock_is_read_where_times_leave_the_process_and_nowhere_else() -> None:
    read = {}
    for name, tree in trees().items():
        found = {function for _, function in calls(tree) if function in WALL}
        if found:
            read[name] = found
    assert read == MAY_READ_IT


def test_the_wall_clock_is_asked_for_where_times_are_written_or_compared() -> None:
    asking = {
        name
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "wall_ms"
        and not name.startswith(("simulator/", "testing/"))
    }
    assert asking == MAY_ASK_FOR_IT
