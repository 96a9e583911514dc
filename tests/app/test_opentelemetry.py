"""What goes to OpenTelemetry is what the configuration says."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import Tracer

from tests.telemetry.otel.memory import SAMPLED, Memory, record
from window_consumer import App, Record
from window_consumer.app import Plan
from window_consumer.app.opentelemetry import metering, spanning
from window_consumer.runtime.faults import Faults
from window_consumer.telemetry.health import Health
from window_consumer.telemetry.otel.instruments import Figures
from window_consumer.telemetry.otel.sdk import Sdk


class Recording(Sdk):
    """An SDK of which somebody has set up everything, and nothing is global."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = Memory()

    def tracer(self) -> Tracer | None:
        return self.memory.spans.tracer

    def measure(self) -> Figures | None:
        return self.figures


def planned(directory: Path, section: str) -> Plan:
    app = App("shop")

    @app.handler("orders", group="shop-charge", kafka={"client.id": "till"})
    def charge(_order: Record) -> None: ...

    file = directory / "workers.yaml"
    file.write_text(
        "kafka: {bootstrap.servers: 'localhost:9092'}\n"
        "workers: {charge: {}}\n"
        f"opentelemetry: {section}\n"
    )
    return app.plan(file)


def test_spans_and_metrics_can_be_switched_off(tmp_path: Path) -> None:
    sdk = Recording()
    plan = planned(tmp_path, "{spans: off, metrics: off}")
    with ExitStack() as beside:
        assert spanning(plan, beside, sdk) is None
        with metering(plan, Health({"process": "1"}), sdk):
            assert sdk.figures.labels == {}


def test_metrics_go_there_with_the_labels_of_the_process(tmp_path: Path) -> None:
    sdk = Recording()
    with metering(planned(tmp_path, "{}"), Health({"process": "1"}), sdk):
        assert sdk.figures.labels == {"process": "1"}
        assert sdk.figures.now() == []  # no worker runs yet


def test_spans_name_the_worker_and_are_counted_among_its_metrics(tmp_path: Path) -> None:
    sdk = Recording()
    plan = planned(tmp_path, "{spans_per_second: 1}")
    with ExitStack() as beside:
        spans = spanning(plan, beside, sdk)
        assert spans is not None
        assert spans.figures_of("charge") is None
        calls = spans.calls_of(plan.workers[0], Faults())
        for offset in range(3):
            span = calls.of_record(record(offset, headers=SAMPLED))
            if span is not None:
                span.leave(None)
    figures = spans.figures_of("charge")
    assert figures is not None
    assert figures.made == len(sdk.memory.ended) > 0
    assert figures.dropped == {"limit": 3 - figures.made, "failed": 0}
    attributes: Any = sdk.memory.ended[0].attributes
    assert attributes["window_consumer.worker"] == "charge"
    assert attributes["messaging.consumer.group.name"] == "shop-charge"
    assert attributes["messaging.client.id"] == "till"


@pytest.mark.parametrize(("records", "chosen"), [("0%", False), ("100%", True)])
def test_a_share_of_the_records_is_chosen_without_a_producer(
    tmp_path: Path, records: str, *, chosen: bool
) -> None:
    plan = planned(tmp_path, f"{{records: {records}}}")
    with ExitStack() as beside:
        spans = spanning(plan, beside, Recording())
        assert spans is not None
        calls = spans.calls_of(plan.workers[0], Faults())
        assert (calls.of_record(record(1)) is not None) == chosen
