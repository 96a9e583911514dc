"""The SDK is set up as the variables say, where nobody has done so before."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from tests.golden_texts import Golden
from window_consumer.metrics.otel import providers
from window_consumer.metrics.otel.environment import ChosenExporters, missing_files

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
    asked = ChosenExporters.by(given)
    assert (asked.traces, asked.metrics) == (traces, metrics)
    assert bool(asked.because) == bool(traces or metrics)


def test_files_are_only_looked_for_where_something_is_exported(
    tmp_path: Path, golden: Golden
) -> None:
    (tmp_path / "ca.pem").write_text("")
    given = {
        "OTEL_EXPORTER_OTLP_CERTIFICATE": str(tmp_path / "ca.pem"),
        "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY": "/nowhere/key.pem",
        "OTEL_EXPORTER_OTLP_METRICS_CLIENT_CERTIFICATE": "/nowhere/cert.pem",
    }
    assert list(missing_files(given)) == []
    given |= {ENDPOINT: "https://c:4318", "OTEL_TRACES_EXPORTER": "none"}
    (said,) = missing_files(given)
    golden(said)


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


def run(script: str, **variables: str) -> None:
    """Run a program that asserts: providers are set once in a process."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    env = clean | variables
    subprocess.run([sys.executable, "-c", dedent(script)], env=env, timeout=60, check=True)


def test_where_nothing_can_be_set_up_one_line_says_so_and_nothing_is_exported() -> None:
    run("""
        import sys
        from window_consumer.metrics.otel import sdk

        said = []

        def set_up(**environment):
            used = sdk.set_up("shop", sdk.Sdk(), environment, lambda *warning: said.append(warning))
            assert used.tracer() is None and used.measure(()) is None
            used.end()

        set_up()
        assert not said and "opentelemetry.sdk" not in sys.modules
        sys.modules["window_consumer.metrics.otel.providers"] = None
        set_up(OTEL_TRACES_EXPORTER="otlp")
        ((event, text),) = said
        assert event == "otel.sdk_missing" and "OTEL_TRACES_EXPORTER" in text
        said.clear()
        del sys.modules["window_consumer.metrics.otel.providers"]
        set_up(OTEL_TRACES_EXPORTER="zipkni", OTEL_EXPORTER_OTLP_CERTIFICATE="/nowhere.pem")
        (missing, file), (failed, why) = said
        assert missing == "otel.file_missing" and "/nowhere.pem" in file
        assert failed == "otel.setup_failed" and "'zipkni'" in why
        """)


def test_a_propagator_that_is_not_installed_is_said_and_those_of_w3c_are_used() -> None:
    run(
        """
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.trace import set_span_in_context
        from window_consumer import App
        from window_consumer.metrics.otel import sdk
        from window_consumer.metrics.otel.attributes import propagator

        said = []
        asked = {"OTEL_TRACES_EXPORTER": "console"}
        used = sdk.set_up("shop", sdk.Sdk(), asked, lambda *warning: said.append(warning))
        ((event, text),) = said
        assert event == "otel.propagators_ignored" and "zipkin" in text
        span, headers = used.tracer().start_span("x"), {}
        propagator().inject(headers, set_span_in_context(span))
        assert f"{span.get_span_context().span_id:016x}" in headers["traceparent"]
        used.tracers.shutdown()
        """,
        OTEL_PROPAGATORS="tracecontext,zipkin",
    )


def test_providers_of_others_are_used_and_left_alone() -> None:
    run("""
        from opentelemetry import metrics, trace
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.trace import TracerProvider
        from window_consumer.metrics.otel import sdk

        theirs = TracerProvider(), MeterProvider()
        trace.set_tracer_provider(theirs[0])
        metrics.set_meter_provider(theirs[1])
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
        used = sdk.set_up("shop", sdk.Sdk(), environment, warn=None)
        assert used.tracers is used.meters is None
        assert (trace.get_tracer_provider(), metrics.get_meter_provider()) == theirs
        assert used.measure(()) is not None
        used.end()
        assert used.tracer().start_span("x").is_recording()
        """)


def test_a_collector_that_is_down_or_hangs_costs_the_end_no_more_than_it_was_given() -> None:
    run("""
        import os
        from time import monotonic

        from tests.telemetry.collector import Collector, GrpcCollector
        from window_consumer.metrics.otel import providers, sdk

        grpc = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
        nobody = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
        os.environ["OTEL_EXPORTER_OTLP_TIMEOUT"] = "600"
        with Collector(hangs=True) as one, GrpcCollector(hangs=True) as two:
            for environment in (nobody, {**nobody, **grpc}, one.env, two.env):
                os.environ.update({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", **environment})
                used = sdk.Sdk(asked=sdk.ChosenExporters.by(os.environ))
                who = providers.resource("shop")
                exporters = [sdk._exporter(each, "traces") for each in used.asked.traces]
                used.tracers, used.exported, _ = providers.tracers(who, exporters)
                exporters = [sdk._exporter(each, "metrics") for each in used.asked.metrics]
                used.meters = providers.meters(who, exporters, used.figures)
                began = monotonic()
                used.tracers.get_tracer("tests").start_span("x").end()
                assert monotonic() - began < 0.4, "nobody who makes spans waits"
                used.end(0.3)
                assert monotonic() - began < 5, environment
        """)
