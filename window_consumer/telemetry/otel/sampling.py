"""What the SDK's samplers go by, where that can be told without asking them each time."""

from __future__ import annotations

from opentelemetry.sdk.trace import sampling
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler, TraceIdRatioBased

from window_consumer.telemetry.otel.traces import LOW


def bound_of(sampler: Sampler) -> int | None:
    """Return below what the lower half of a trace's id lies where it is recorded.

    It is that of a trace that begins here: it has no parent to go by. None for samplers that go by
    something else than the id.
    """
    if type(sampler).should_sample is ParentBased.should_sample:
        sampler = sampler._root  # type: ignore[attr-defined]  # noqa: SLF001 - nothing else tells
    if type(sampler) is TraceIdRatioBased:
        return int(sampler.bound)
    if sampler is sampling.ALWAYS_ON:
        return LOW + 1
    return 0 if sampler is sampling.ALWAYS_OFF else None
