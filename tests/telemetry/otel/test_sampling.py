"""What a sampler would say is known before anything is made, where it goes by the trace's id."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    DEFAULT_OFF,
    DEFAULT_ON,
    AlwaysRecordSampler,
    Decision,
    ParentBased,
    ParentBasedTraceIdRatio,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)

from window_consumer.metrics.otel.providers import bound_of
from window_consumer.metrics.otel.sdk import Sdk
from window_consumer.metrics.otel.trace_ids import LOW


class OfItsOwn(ParentBased):
    """Goes by its parent, and by something else."""

    def should_sample(self, *given: Any, **more: Any) -> SamplingResult:
        return super().should_sample(*given, **more)


@pytest.mark.parametrize(
    "sampler",
    [
        ALWAYS_ON,
        ALWAYS_OFF,
        DEFAULT_ON,
        DEFAULT_OFF,
        TraceIdRatioBased(0.3),
        ParentBasedTraceIdRatio(0.3),
        ParentBased(TraceIdRatioBased(1.0)),
        ParentBased(TraceIdRatioBased(0.0)),
    ],
    ids=lambda sampler: str(sampler.get_description()),
)
def test_the_bound_says_what_the_sampler_says_of_a_trace_that_begins(sampler: Sampler) -> None:
    bound, rng = bound_of(sampler), Random(3)
    assert bound is not None
    edges = [each for each in (0, bound - 1, bound, LOW) if 0 <= each <= LOW]
    for trace_id in [*edges, *(rng.getrandbits(128) for _ in range(200))]:
        said = sampler.should_sample(Context(), trace_id, "process orders")
        assert (said.decision is not Decision.DROP) is (trace_id & LOW < bound)


@pytest.mark.parametrize(
    "sampler",
    [AlwaysRecordSampler(ALWAYS_OFF), OfItsOwn(ALWAYS_ON), ParentBased(OfItsOwn(ALWAYS_ON))],
)
def test_of_other_samplers_nothing_is_said_before(sampler: Sampler) -> None:
    assert bound_of(sampler) is None


def test_only_a_provider_of_ours_takes_ids_that_were_chosen_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = TracerProvider(TraceIdRatioBased(0.5), shutdown_on_exit=False)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: ours)
    assert Sdk(tracers=ours).bound() == 1 << 63
    assert Sdk(tracers=None).bound() is None
    # What is chosen by a record's own id is asked of anybody's sampler.
    keeps = Sdk(tracers=None).keeps()
    assert (keeps((1 << 63) - 1), keeps(1 << 63)) == (True, False)
