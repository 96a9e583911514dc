"""The SDK is set up as the variables say, where nobody has done so before."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from textwrap import dedent

import pytest

from window_consumer.telemetry.otel import providers
from window_consumer.telemetry.otel.environment import Asked

HTTP, GRPC = "otlp_proto_http", "otlp_proto_grpc"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.mark.parametrize(
    ("given", "traces", "metrics"),
    [
        ({}, (), ()),
        ({ENDPOINT: "http://c:4318"}, (HTTP,), (HTTP,)),
        ({ENDPOINT: ""}, (), ()),
        ({ENDPOINT: "http://c:4318", "OTEL_SDK_DISABLED": "True"}, (), ()),
        ({ENDPOINT: "http://c:4318", "OTEL_METRICS_EXPORTER": "none"}, (HTTP,), ()),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, (HTTP,), ()),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, (GRPC,), ()),
        (
            {
                ENDPOINT: "http://c:4317",
                "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
                "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf",
            },
            (GRPC,),
            (HTTP,),
        ),
        ({"OTEL_METRICS_EXPORTER": "console, otlp"}, (), ("console", HTTP)),
    ],
)
def test_nothing_is_exported_that_no_variable_asks_for(
    given: Mapping[str, str], traces: tuple[str, ...], metrics: tuple[str, ...]
) -> None:
    asked = Asked.by(given)
    assert (asked.traces, asked.metrics) == (traces, metrics)
    assert bool(asked.because) == bool(traces or metrics)


def test_the_service_is_named_by_the_variable_or_like_the_application(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=blue")
    about = providers.resource("shop").attributes
    assert (about["service.name"], about["team"]) == ("shop", "blue")
    assert about["service.instance.id"]
    monkeypatch.setenv("OTEL_SERVICE_NAME", "till")
    assert providers.resource("shop").attributes["service.name"] == "till"
    monkeypatch.delenv("OTEL_SERVICE_NAME")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=desk,service.instance.id=7")
    about = providers.resource("shop").attributes
    assert (about["service.name"], about["service.instance.id"]) == ("desk", "7")


def run(script: str) -> None:
    """Run a program that asserts: providers are set once in a process."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    subprocess.run([sys.executable, "-c", dedent(script)], env=clean, timeout=60, check=True)


def test_where_nothing_can_be_set_up_one_line_says_so_and_nothing_is_exported() -> None:
    run("""
        import sys
        from window_consumer.telemetry.otel import sdk

        said = []

        def set_up(**environment):
            told = sdk.set_up("shop", sdk.Sdk(), environment, said.append)
            assert told.tracer() is None and told.measure() is None
            told.end()

        set_up()
        assert not said and "opentelemetry.sdk" not in sys.modules
        sys.modules["window_consumer.telemetry.otel.providers"] = None
        set_up(OTEL_TRACES_EXPORTER="otlp")
        assert "OTEL_TRACES_EXPORTER is set, but the SDK is not installed" in said[0]
        assert "pip install 'window-consumer[otel]'" in said.pop()
        del sys.modules["window_consumer.telemetry.otel.providers"]
        set_up(OTEL_TRACES_EXPORTER="zipkni")
        assert "OTEL_TRACES_EXPORTER: there is no exporter 'zipkni'; there are otlp" in said.pop()
        assert not said
        """)


def test_providers_of_others_are_used_and_left_alone() -> None:
    run("""
        from opentelemetry import metrics, trace
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.trace import TracerProvider
        from window_consumer.telemetry.otel import sdk

        theirs = TracerProvider(), MeterProvider()
        trace.set_tracer_provider(theirs[0])
        metrics.set_meter_provider(theirs[1])
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
        told = sdk.set_up("shop", sdk.Sdk(), environment, warn=None)
        assert told.tracers is told.meters is None
        assert (trace.get_tracer_provider(), metrics.get_meter_provider()) == theirs
        assert told.measure() is not None
        told.end()
        assert told.tracer().start_span("x").is_recording()
        """)
