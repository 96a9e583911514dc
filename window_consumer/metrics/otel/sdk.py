"""Sets up the SDK as the OTEL_* variables request, unless that was done before.

Providers that were set up manually or by ``opentelemetry-instrument`` stay in use; then nothing is
set up or ended here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field
from opentelemetry import metrics, trace
from opentelemetry.trace import Tracer

from window_consumer.metrics.otel import attributes as names
from window_consumer.metrics.otel.attributes import WHY_NOT_AS_ASKED
from window_consumer.metrics.otel.environment import ChosenExporters, Signal, missing_files
from window_consumer.metrics.otel.instruments import Figures, instrument
from window_consumer.metrics.otel.spans import GiveIds, no_ids
from window_consumer.metrics.otel.trace_ids import LOW, Keeps
from window_consumer.model.log_events import LogEvent, Warn
from window_consumer.runtime.figures.metric import Metric
from window_consumer.runtime.log import own_logger

if TYPE_CHECKING:
    from window_consumer.metrics.otel.exporting import Exported

FLUSH_S: Final = 2.0
"""How long the process waits at its end for a collector to accept the rest."""

_log = own_logger()


@define(eq=False)
class Sdk:
    """The SDK of this process, and which part of it is ours."""

    asked: ChosenExporters = field(factory=ChosenExporters)
    tracers: Any = None
    """Our own TracerProvider, or None."""
    meters: Any = None
    exported: Exported | None = None
    """The figures of the spans, if the exporters are ours."""
    give_ids: GiveIds = no_ids
    figures: Figures = field(factory=Figures)
    _instrumented: object = None

    def tracer(self) -> Tracer | None:
        """Return the current tracer, ours or not; None if no provider is set up."""
        provider = trace.get_tracer_provider()
        if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
            return None
        return trace.get_tracer(names.SCOPE, _version())

    def keeps(self) -> Keeps:
        """Return whether the sampler records a trace, as a function; always true if unknown."""
        sampler = getattr(trace.get_tracer_provider(), "sampler", None)
        if sampler is None:
            return lambda _trace_id: True
        bound = _bound_of(sampler)
        if bound is not None:
            return lambda trace_id: trace_id & LOW < bound

        def keeps(trace_id: int) -> bool:
            result = sampler.should_sample(None, trace_id, "process")
            return bool(result.decision.is_sampled())

        return keeps

    def bound(self) -> int | None:
        """Return the bound below which the lower half of a recorded new trace's id lies.

        None if only the sampler can decide, or if the provider is not ours and chooses the ids.
        """
        ours = trace.get_tracer_provider() is self.tracers
        return _bound_of(self.tracers.sampler) if ours else None

    def measure(self, listed: Iterable[Metric]) -> Figures | None:
        """Return the figures to feed, or None if no metrics are exported.

        The first call creates the instruments of these metrics, which cannot be removed.
        """
        provider = metrics.get_meter_provider()
        if type(provider).__module__.startswith("opentelemetry.metrics"):
            return None  # the API's own ones, which do nothing
        if self._instrumented is not provider:
            self._instrumented = provider
            instrument(metrics.get_meter(names.SCOPE, _version()), self.figures, listed)
        return self.figures

    def end(self, timeout_s: float = FLUSH_S) -> None:
        """Send the rest, for at most ``timeout_s``; end only our own providers."""
        ends = [each.shutdown for each in (self.tracers, self.meters) if each is not None]
        threads = [
            threading.Thread(target=_ended, args=(end,), name="wc-otel-end", daemon=True)
            for end in ends
        ]
        deadline = monotonic() + timeout_s
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline - monotonic()))
        if any(thread.is_alive() for thread in threads):
            _log.warning(
                "OpenTelemetry: the collector did not accept all within %g s; the rest is lost",
                timeout_s,
                extra={"event": LogEvent.OTEL_FLUSH_OVERRUN},
            )


def _warn(event: LogEvent, text: str) -> None:
    _log.warning("%s", text, extra={"event": event})


OF_THIS_PROCESS: Final = Sdk()
"""OpenTelemetry's providers are set once per process, and so are instruments."""


def set_up(
    application: str,
    sdk: Sdk = OF_THIS_PROCESS,
    environment: Mapping[str, str] = os.environ,
    warn: Warn = _warn,
    *,
    spans_only: bool = False,
) -> Sdk:
    """Set up whatever the variables request, unless it exists already; call it once per process.

    ``application`` is the service's name if no variable gives one. Failures are only reported,
    because telemetry must not keep a worker from running.
    """
    sdk.asked = ChosenExporters.by(environment)
    traces = bool(sdk.asked.traces) and sdk.tracer() is None
    figures = bool(sdk.asked.metrics) and not spans_only and _has_no_meters()
    if not (traces or figures):
        return sdk
    if WHY_NOT_AS_ASKED:
        warn(
            LogEvent.OTEL_PROPAGATORS_IGNORED,
            f"OpenTelemetry: OTEL_PROPAGATORS: {WHY_NOT_AS_ASKED} W3C's headers are used instead",
        )
    for sentence in missing_files(environment):
        warn(LogEvent.OTEL_FILE_MISSING, sentence)
    try:
        from window_consumer.metrics.otel import providers  # noqa: PLC0415 - the extra may be missing
    except ImportError as error:
        warn(
            LogEvent.OTEL_SDK_MISSING,
            f"OpenTelemetry: {sdk.asked.because} is set, but the SDK is not installed ({error.name}"
            " is missing): nothing is exported; pip install 'window-consumer[otel]'",
        )
        return sdk
    try:
        resource = providers.resource(application)
        if figures:
            found = [_exporter(name, "metrics") for name in sdk.asked.metrics]
            sdk.meters = providers.meters(resource, found, sdk.figures)
            metrics.set_meter_provider(sdk.meters)
        if traces:
            found = [_exporter(name, "traces") for name in sdk.asked.traces]
            sdk.tracers, sdk.exported, sdk.give_ids = providers.tracers(resource, found)
            trace.set_tracer_provider(sdk.tracers)
    except Exception as error:
        warn(LogEvent.OTEL_SETUP_FAILED, f"OpenTelemetry: not set up: {error}")
    return sdk


def _bound_of(sampler: Any) -> int | None:
    try:
        from window_consumer.metrics.otel import providers as sampling  # noqa: PLC0415 - the extra may be missing
    except ImportError:
        return None
    return sampling.bound_of(sampler)


def _exporter(name: str, signal: Signal) -> Any:
    """Return the exporter of this name. Raise LookupError with the known names otherwise."""
    group = f"opentelemetry_{signal}_exporter"
    for found in metadata.entry_points(group=group, name=name):
        return found.load()()
    known = sorted({each.name for each in metadata.entry_points(group=group)} - {"otlp"})
    raise LookupError(
        f"OTEL_{signal.upper()}_EXPORTER: there is no exporter {name!r}; known are"
        f" otlp (by OTEL_EXPORTER_OTLP_PROTOCOL), {', '.join(known)}"
    )


def _has_no_meters() -> bool:
    provider = metrics.get_meter_provider()
    return type(provider).__module__.startswith("opentelemetry.metrics")


def _ended(end: Callable[[], None]) -> None:
    try:
        end()
    except Exception as error:
        _log.warning(
            "OpenTelemetry: could not be ended: %s",
            error,
            extra={"event": LogEvent.OTEL_END_FAILED},
        )


def _version() -> str:
    try:
        return metadata.version("window-consumer")
    except metadata.PackageNotFoundError:
        return ""
