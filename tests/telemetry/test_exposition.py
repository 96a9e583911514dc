"""The text that Prometheus scrapes."""

from __future__ import annotations

import re
from typing import Any

import attrs
import pytest

from tests.docs.pages import ROOT
from tests.engine.driver import Driven
from tests.engine.support import at_least, notes
from tests.engine.test_fair_shares import SLOTS
from tests.engine.test_fair_shares import Shop as FairShop
from tests.kernel import FEATURES, METRICS
from window_consumer.audit.metrics import AuditFigures
from window_consumer.engine.latency_histogram import BOUNDS_S, Histogram
from window_consumer.metrics.exposition import exposition, joined, metrics_page, prometheus_name
from window_consumer.runtime.figures.measures import FeatureFigures, Measures
from window_consumer.runtime.figures.metric import Metric, MetricKind
from window_consumer.runtime.figures.worker_snapshot import WorkerSnapshot
from window_consumer.trace.metrics import TraceFigures


def measures(worker: str = "charge", **more: Any) -> Measures:
    driven = Driven(slots=2)
    driven.deliver(*notes(0, 1, 2))
    driven.tick()
    driven.finish(driven.out[0])
    driven.engine.counters.dead_by["EXPIRED"] += 2
    windows = more.pop("windows", driven.snapshot())
    seen = WorkerSnapshot(name=worker, group="shop", is_ready=True, silent_s=0.25, windows=windows)
    return Measures(seen, driven.engine.counters, "key", **more)


def test_with_auto_it_learns_what_was_found_best_and_why() -> None:
    limited = Driven(slots=8, limit=at_least(2))
    limited.limit_changed("slower_calls", 3)
    shown = limited.snapshot()
    limited_measures = attrs.evolve(measures(windows=shown), counters=shown.counters)
    reported = samples(exposition([limited_measures]))
    name = "window_consumer_concurrency_"
    assert reported[f'{name}settled{{worker="charge"}}'] == 8
    changes = {
        key: value for key, value in reported.items() if key.startswith(f"{name}changes_total")
    }
    assert changes == {
        f'{name}changes_total{{worker="charge",reason="{cause}"}}': 3.0 * (cause == "slower_calls")
        for cause in ("more_throughput", "as_much_with_fewer", "slower_calls")
    }
    assert f"{name}settled" not in exposition([measures()]).replace("# ", "")


def test_classes_tell_how_long_their_records_wait_and_what_slots_they_have() -> None:
    shop = FairShop()
    shop.send("big", 30)
    shop.run(8, 1.0)
    shop.send("small", 2)
    shown = shop.snapshot()
    reported = samples(exposition([measures(windows=shown)]))
    big, small = (f'{{worker="charge",class="{each}"' for each in ("big", "small"))
    name = "window_consumer_class_"
    assert reported[f"{name}slots{big}}}"] == SLOTS
    assert reported[f"{name}waiting{big}}}"] == 30 - 8 - SLOTS
    assert reported[f"{name}waiting{small}}}"] == 2
    assert reported[f"{name}slot_time_seconds_total{big}}}"] == pytest.approx(8.0)
    assert reported[f"{name}wait_duration_seconds_count{big}}}"] == 8 + SLOTS
    assert reported[f'{name}wait_duration_seconds_bucket{big},le="+Inf"}}'] == 8 + SLOTS
    assert reported[f"{name}wait_duration_seconds_sum{big}}}"] == pytest.approx(4 * 1.0 + 4 * 2.0)
    assert reported[f"{name}wait_duration_seconds_count{small}}}"] == 0
    assert shown.shares is not None
    of_keys = attrs.evolve(shown, shares=attrs.evolve(shown.shares, of_keys=True))
    hidden = exposition([measures(windows=of_keys)])
    assert f"{name}waiting{{" in hidden
    assert 'class="big"' not in hidden


def metric(kind: MetricKind, unit: str, *samples: Any, labels: tuple[str, ...] = ()) -> Metric:
    return Metric("shop.time.spent", kind, unit, "How long.", lambda _measures: samples, labels)


def samples(text: str) -> dict[str, float]:
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def of_process(lost: int = 3) -> FeatureFigures:
    trace = TraceFigures(100, {"disk": lost, "memory": 0}, 1, 4096, 12.5)
    return FeatureFigures((trace, AuditFigures(40, {"disk": 0, "sends": 7}, 2, 512, 0.0)))


def test_what_is_the_whole_processs_is_reported_once_and_of_no_worker() -> None:
    shared = of_process()
    workers = [measures(of_process=shared), measures("refund", of_process=shared)]
    text = exposition(workers, METRICS, common={"process": "2"})
    found = {name: figure for name, figure in samples(text).items() if "worker=" not in name}
    assert found == {
        'window_consumer_trace_events_total{process="2"}': 100,
        'window_consumer_trace_dropped_total{process="2",reason="disk"}': 3,
        'window_consumer_trace_dropped_total{process="2",reason="memory"}': 0,
        'window_consumer_trace_torn_total{process="2"}': 1,
        'window_consumer_trace_held_bytes{process="2"}': 4096,
        'window_consumer_trace_blocked_seconds{process="2"}': 12.5,
        'window_consumer_audit_counts_total{process="2"}': 40,
        'window_consumer_audit_dropped_total{process="2",reason="disk"}': 0,
        'window_consumer_audit_dropped_total{process="2",reason="sends"}': 7,
        'window_consumer_audit_torn_total{process="2"}': 2,
        'window_consumer_audit_held_bytes{process="2"}': 512,
        'window_consumer_audit_blocked_seconds{process="2"}': 0,
    }
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == len(samples(text))
    assert "\nwindow_consumer_trace_torn_total 1\n" in exposition(workers, METRICS)
    assert "window_consumer_trace" not in exposition([measures()], METRICS)


def test_every_metric_has_its_figure_and_is_described_once() -> None:
    text = exposition([measures(), measures("refund")])
    found = samples(text)
    assert found['window_consumer_records_processed_total{worker="charge"}'] >= 1
    assert (
        found['window_consumer_records_dead_lettered_total{worker="refund",reason="EXPIRED"}'] == 2
    )
    assert found['window_consumer_breaker_state{worker="charge",state="closed"}'] == 1
    heads = re.findall("^# TYPE ([a-z_]+) ", text, re.MULTILINE)
    assert len(heads) == len(set(heads)) > 30
    names = {re.split("[{]|_bucket|_sum|_count", name)[0] for name in found}
    assert names == set(heads)


@pytest.mark.parametrize(
    ("kind", "unit", "name"),
    [
        (MetricKind.GAUGE, "s", "shop_time_spent_seconds"),
        (MetricKind.COUNTER, "s", "shop_time_spent_seconds_total"),
        (MetricKind.COUNTER, "{record}", "shop_time_spent_total"),
        (MetricKind.GAUGE, "By", "shop_time_spent_bytes"),
        (MetricKind.GAUGE, "1", "shop_time_spent"),
    ],
)
def test_names_follow_the_rules_for_opentelemetry(kind: MetricKind, unit: str, name: str) -> None:
    assert prometheus_name(metric(kind, unit)) == name


def test_a_histogram_counts_up_to_each_bound() -> None:
    histogram = Histogram((1, 2, *([0] * (len(BOUNDS_S) - 2)), 4), 250.5)
    text = exposition([measures()], [metric(MetricKind.HISTOGRAM, "s", ((), histogram))])
    found = samples(text)
    name = "shop_time_spent_seconds"
    assert found[f'{name}_bucket{{worker="charge",le="1e-05"}}'] == 1
    assert found[f'{name}_bucket{{worker="charge",le="0.0001"}}'] == 3
    assert found[f'{name}_bucket{{worker="charge",le="60"}}'] == 3
    assert found[f'{name}_bucket{{worker="charge",le="+Inf"}}'] == 7
    assert found[f'{name}_count{{worker="charge"}}'] == 7
    assert found[f'{name}_sum{{worker="charge"}}'] == 250.5


def test_what_would_break_a_line_is_escaped() -> None:
    hostile = 'a"b\\c\nd'
    text = exposition(
        [measures()], [metric(MetricKind.GAUGE, "1", ((hostile,), 1.0), labels=("topic",))]
    )
    assert r'{worker="charge",topic="a\"b\\c\nd"} 1' in text
    assert len(text.splitlines()) == 3


def test_without_a_picture_what_only_the_poll_thread_knows_is_left_out() -> None:
    text = exposition([measures(windows=None)])
    assert "window_consumer_records_processed_total" in text
    assert "window_consumer_partition" not in text


def test_texts_of_several_processes_become_one() -> None:
    texts = [exposition([measures()], common={"process": number}) for number in ("1", "2")]
    text = joined(texts)
    assert text.count("# TYPE window_consumer_slots gauge") == 1
    assert samples(text) == {**samples(texts[0]), **samples(texts[1])}
    kinds = re.findall(r"# TYPE window_consumer_slots gauge\n(.*)\n(.*)\n", text)
    assert [re.findall('process="(.)"', line) for line in kinds[0]] == [["1"], ["2"]]


def test_labels_have_few_values() -> None:
    few = {"group", "ordering", "topic", "partition", "level", "reason", "state", "class"}
    assert {label for each in METRICS for label in each.labels} <= few


def test_the_metrics_page_is_what_the_list_says() -> None:
    committed = (ROOT / "docs/metrics.md").read_text("utf-8")
    assert committed == metrics_page(FEATURES.metrics).rstrip() + "\n", (
        "stale: python -m window_consumer metrics > docs/metrics.md"
    )


def test_what_takes_for_ever_is_infinite_for_prometheus() -> None:
    made = measures()
    text = exposition([attrs.evolve(made, snapshot=attrs.evolve(made.snapshot, stands_still=True))])
    assert re.search(r"^window_consumer_time_to_drain_seconds\{.*\} \+Inf$", text, re.MULTILINE)
