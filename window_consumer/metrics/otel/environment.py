"""Reads the OTEL_* variables.

https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/. Variables that
concern only the SDK are left to it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Final, Literal

from attrs import frozen

Signal = Literal["traces", "metrics"]

_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_PROTOCOL: Final = "OTEL_EXPORTER_OTLP_PROTOCOL"

_EXPORTERS: Final = {
    "http/protobuf": "otlp_proto_http",
    "http/json": "otlp_proto_http",  # the SDK has nothing closer
    "grpc": "otlp_proto_grpc",
}


@frozen
class ChosenExporters:
    """The requested exporters, by the names of their entry points."""

    traces: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    because: str = ""
    """The variable that requests them."""

    @classmethod
    def by(cls, environment: Mapping[str, str]) -> ChosenExporters:
        """Read the variables. Without an exporter or endpoint in them, nothing is requested."""
        if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
            return cls()
        traces, why_traces = _exporters(environment, "traces")
        metrics, why_metrics = _exporters(environment, "metrics")
        return cls(traces, metrics, why_traces or why_metrics)


def missing_files(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each unreadable file that a variable names for OTLP."""
    asked = ChosenExporters.by(environment)
    for signal, exporters in (("", True), ("TRACES_", asked.traces), ("METRICS_", asked.metrics)):
        for what in ("CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE"):
            variable = f"OTEL_EXPORTER_OTLP_{signal}{what}"
            path = environment.get(variable, "")
            if asked.because and exporters and path and not os.access(path, os.R_OK):
                yield (
                    f"OpenTelemetry: {variable}: {path} does not exist, or may not be read: nothing"
                    " will reach the collector until the file is there"
                )


def _exporters(environment: Mapping[str, str], signal: Signal) -> tuple[tuple[str, ...], str]:
    """Return a signal's exporters, and the variable that requests them."""
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    own_endpoint = f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT"
    given = environment.get(variable, "").strip()
    because = variable
    if not given:
        because = next((name for name in (own_endpoint, _ENDPOINT) if environment.get(name)), "")
        given = "otlp" if because else "none"
    names = [name.strip() for name in given.split(",")]
    wanted = [name for name in names if name and name != "none"]
    if not wanted:
        return (), ""
    return tuple(_otlp(environment, signal) if name == "otlp" else name for name in wanted), because


def _otlp(environment: Mapping[str, str], signal: Signal) -> str:
    own = environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL")
    protocol = (own or environment.get(_PROTOCOL) or "http/protobuf").strip().lower()
    return _EXPORTERS.get(protocol, protocol)
