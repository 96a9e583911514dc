"""The Grafana dashboard: what somebody looks at first, made from a list of rows.

``python -m docs.dashboard`` writes docs/monitoring/dashboard.json, for Grafana 10 and later.
The first row answers whether there is trouble, each further one what kind of trouble it is.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attrs import frozen

FILE = Path(__file__).parent / "monitoring" / "dashboard.json"

WIDTH = 24
"""Of Grafana's grid."""

HEIGHT = 8

_SOURCE = {"type": "prometheus", "uid": "${source}"}
_CHOSEN = '{job=~"$job", worker=~"$worker"}'


@frozen
class Line:
    """What a panel draws: PromQL, in which ``@`` stands for the workers that were chosen."""

    expression: str
    legend: str = "{{worker}}"

    @property
    def query(self) -> str:
        """The expression for the chosen workers."""
        return self.expression.replace("@", _CHOSEN)


@frozen
class Panel:
    """A diagram, or a figure where ``kind`` is stat."""

    title: str
    unit: str
    lines: tuple[Line, ...]
    meaning: str = ""
    kind: str = "timeseries"
    width: int = 8
    warn: float | None = None
    """Beyond it a figure is highlighted."""
    stacked: bool = False


@frozen
class Row:
    """Panels that answer one question, the title of the row."""

    title: str
    panels: tuple[Panel, ...]


def _per_second(name: str, by: str = "worker") -> str:
    return f"sum by ({by}) (rate(window_consumer_{name}@[$__rate_interval]))"


def _of_process(name: str) -> str:
    rate = f'rate(window_consumer_{name}{{job=~"$job"}}[$__rate_interval])'
    return f"sum by (instance, reason) ({rate})"


def _figure(title: str, unit: str, expression: str, warn: float, meaning: str) -> Panel:
    line = Line(expression, "")
    return Panel(title, unit, (line,), meaning, kind="stat", width=4, warn=warn)


def _percentile(share: float) -> Line:
    buckets = "sum by (le) (rate(messaging_process_duration_seconds_bucket@[$__rate_interval]))"
    return Line(f"histogram_quantile({share}, {buckets})", f"p{share * 100:g}")


ROWS = (
    Row(
        "Is anything wrong?",
        (
            _figure(
                "Oldest unfinished record",
                "s",
                "max(window_consumer_partition_lag_duration_seconds@)",
                300,
                "Its age. Records are late by this much.",
            ),
            _figure(
                "Longest hovering",
                "s",
                "max(window_consumer_partition_hovering_seconds@)",
                60,
                "For how long nothing has become of a window's start; what follows waits.",
            ),
            _figure(
                "Dead letters, 1 h",
                "short",
                "sum(increase(window_consumer_records_dead_lettered_total@[1h]))",
                1,
                "Records that were given up within the last hour.",
            ),
            _figure(
                "Breakers open",
                "short",
                'sum(window_consumer_breaker_state{job=~"$job", worker=~"$worker", state="open"})',
                1,
                "Workers whose calls fail so often that nothing new is started.",
            ),
            _figure(
                "Abandoned calls",
                "short",
                "sum(window_consumer_slots_abandoned@)",
                1,
                "Calls that were given up and have not returned.",
            ),
            _figure(
                "Workers not ready",
                "short",
                "count(window_consumer_worker_ready@ == 0) or vector(0)",
                1,
                "Workers that are not in their group.",
            ),
        ),
    ),
    Row(
        "Does it keep up?",
        (
            Panel(
                "Lag in seconds",
                "s",
                (Line("max by (worker) (window_consumer_partition_lag_duration_seconds@)"),),
                "The age of the oldest record that was read and is not finished.",
            ),
            Panel(
                "Lag in records",
                "short",
                (Line("sum by (worker) (window_consumer_partition_lag@)"),),
            ),
            Panel(
                "Time to drain",
                "s",
                (Line("max by (worker) (window_consumer_time_to_drain_seconds@)"),),
                "How long all that lags takes at the pace of the last minute.",
            ),
            Panel(
                "Records per second",
                "reqps",
                (
                    Line(_per_second("records_delivered_total"), "{{worker}} read"),
                    Line(_per_second("records_processed_total"), "{{worker}} processed"),
                ),
            ),
            Panel(
                "Slots",
                "short",
                (
                    Line("sum by (worker) (window_consumer_slots_busy@)", "{{worker}} busy"),
                    Line(
                        "sum by (worker) (window_consumer_concurrency_limit@)", "{{worker}} limit"
                    ),
                ),
                "All busy while the lag grows: more concurrency, or more processes.",
            ),
            Panel(
                "Busy ratio",
                "percentunit",
                (Line("avg by (worker) (window_consumer_busy_ratio@)"),),
                "The share of the slots' time spent in calls in the last minute.",
            ),
        ),
    ),
    Row(
        "How long do calls take?",
        (
            Panel(
                "Handler calls",
                "s",
                (_percentile(0.5), _percentile(0.95), _percentile(0.99)),
                "Quick calls, which run many in a row, count with their mean.",
                width=12,
            ),
            Panel(
                "Hovering by partition",
                "s",
                (
                    Line(
                        "topk(8, window_consumer_partition_hovering_seconds@)",
                        "{{worker}} {{topic}}[{{partition}}]",
                    ),
                ),
                width=12,
            ),
        ),
    ),
    Row(
        "What fails?",
        (
            Panel(
                "Further calls per second",
                "reqps",
                (Line(_per_second("calls_retried_total")),),
                "Retries without leaving the process.",
                width=6,
            ),
            Panel(
                "To retry topics, by level",
                "reqps",
                (Line(_per_second("records_moved_total", "level"), "{{level}}"),),
                width=6,
                stacked=True,
            ),
            Panel(
                "Dead letters, by reason",
                "reqps",
                (Line(_per_second("records_dead_lettered_total", "reason"), "{{reason}}"),),
                width=6,
                stacked=True,
            ),
            Panel(
                "Stalled and abandoned calls",
                "short",
                (
                    Line("sum by (worker) (increase(window_consumer_calls_stalled_total@[5m]))"),
                    Line("sum by (worker) (window_consumer_slots_abandoned@)", "{{worker}} now"),
                ),
                width=6,
            ),
            Panel(
                "Circuit breaker",
                "short",
                (
                    Line(
                        "sum by (worker, state) (window_consumer_breaker_state@)",
                        "{{worker}} {{state}}",
                    ),
                ),
                width=12,
            ),
            Panel(
                "Refused by the broker",
                "reqps",
                (
                    Line(_per_second("publish_failures_total"), "{{worker}} copies and results"),
                    Line(_per_second("commits_failures_total"), "{{worker}} commits"),
                ),
                width=12,
            ),
        ),
    ),
    Row(
        "Is the group at rest?",
        (
            Panel(
                "Changes of partitions, 5 min",
                "short",
                (Line("sum by (worker) (increase(window_consumer_rebalances_total@[5m]))"),),
            ),
            Panel(
                "Payload held",
                "bytes",
                (Line("sum by (worker) (window_consumer_partition_memory_bytes@)"),),
            ),
            Panel(
                "Poll thread",
                "s",
                (Line("max by (worker) (window_consumer_poll_silence_seconds@)"),),
                "For how long it has not been seen at work. /livez fails after 60 s.",
            ),
        ),
    ),
    Row(
        "Does telemetry arrive?",
        (
            Panel(
                "Lost by the message trace",
                "reqps",
                (Line(_of_process("trace_dropped_total"), "{{instance}} {{reason}}"),),
                "Events that nobody gets. Handlers never wait for them.",
                width=6,
            ),
            Panel(
                "Missing in the audit",
                "reqps",
                (Line(_of_process("audit_dropped_total"), "{{instance}} {{reason}}"),),
                "Records that are in no count: sums will not balance.",
                width=6,
            ),
            Panel(
                "Spans that nobody gets",
                "reqps",
                (
                    Line(
                        _per_second("telemetry_spans_dropped_total", "worker, reason"),
                        "{{worker}} {{reason}}",
                    ),
                ),
                "limit: spans_per_second; queue and refused: the collector.",
                width=6,
            ),
            Panel(
                "Nothing gets away",
                "s",
                (
                    Line(
                        'max by (instance) (window_consumer_trace_blocked_seconds{job=~"$job"})',
                        "{{instance}} trace",
                    ),
                    Line(
                        'max by (instance) (window_consumer_audit_blocked_seconds{job=~"$job"})',
                        "{{instance}} audit",
                    ),
                ),
                "For how long. Topic missing, no right to write, brokers away, disk full.",
                width=6,
            ),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row in ROWS:
        panels.append(_row(row.title, len(panels) + 1, top))
        top += 1
        left, height = 0, 0
        for panel in row.panels:
            if left + panel.width > WIDTH:
                left, top = 0, top + height
            height = HEIGHT // 2 if panel.kind == "stat" else HEIGHT
            place = {"x": left, "y": top, "w": panel.width, "h": height}
            panels.append(_panel(panel, len(panels) + 1, place))
            left += panel.width
        top += height
    return {
        "uid": "window-consumer",
        "title": "window_consumer",
        "tags": ["kafka"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": panels,
    }


def _variables() -> list[dict[str, Any]]:
    source = {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    return [source, _values_of("job"), _values_of("worker", '{job=~"$job"}')]


def _values_of(label: str, among: str = "") -> dict[str, Any]:
    query = f"label_values(window_consumer_worker_ready{among}, {label})"
    return {
        "name": label,
        "type": "query",
        "label": label,
        "datasource": _SOURCE,
        "query": {"query": query, "refId": label},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _row(title: str, number: int, top: int) -> dict[str, Any]:
    place = {"x": 0, "y": top, "w": WIDTH, "h": 1}
    return {"id": number, "type": "row", "title": title, "gridPos": place, "panels": []}


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.warn is not None:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": panel.warn}]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    if panel.kind == "timeseries":
        stacking = {"mode": "normal" if panel.stacked else "none"}
        defaults["custom"] = {"fillOpacity": 40 if panel.stacked else 8, "stacking": stacking}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.meaning,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "expr": line.query,
                "legendFormat": line.legend,
                "instant": panel.kind == "stat",
            }
            for index, line in enumerate(panel.lines)
        ],
    }


def text() -> str:
    """Return the file's content."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
