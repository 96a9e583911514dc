"""How contexts stand in headers: as ``OTEL_PROPAGATORS`` says, else as W3C does.

OpenTelemetry reads that variable while it is imported, and raises where it names a propagator that
is not installed. A worker runs all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator


def _found() -> tuple[Callable[[], TextMapPropagator], str]:
    try:
        from opentelemetry import propagate  # noqa: PLC0415 - the import itself may raise
    except Exception as error:
        # Whatever it is that a propagator's module raises: telemetry is no reason not to run.
        ours = CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])
        return lambda: ours, str(error) or type(error).__name__
    return propagate.get_global_textmap, ""


_FOUND: Final = _found()

WHY_NOT_AS_ASKED: Final = _FOUND[1]
"""Why the variable is not obeyed, empty where it is."""


def propagator() -> TextMapPropagator:
    """Return who reads and writes headers now: an application may have chosen another."""
    return _FOUND[0]()
