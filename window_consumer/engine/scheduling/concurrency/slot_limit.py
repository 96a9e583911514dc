"""The limit on busy slots: the configured number, the adaptive limit, or a user's limit."""

from __future__ import annotations

from attrs import evolve

from window_consumer.engine.counters import Counters
from window_consumer.engine.decisions import EngineRules
from window_consumer.engine.guards.interventions import ConcurrencyAnswer, ConcurrencyRequest
from window_consumer.engine.guards.start_gate import StartGate
from window_consumer.engine.scheduling.concurrency.adaptive_concurrency import (
    AdaptiveConcurrency,
    LimitNews,
)
from window_consumer.engine.scheduling.dispatcher import SLICES_PER_SLOT
from window_consumer.engine.scheduling.scheduling import Scheduling
from window_consumer.engine.scheduling.slices import Slice


class SlotLimit:
    """Sets the dispatcher's ``slots``. Owner: poll thread."""

    def __init__(
        self, rules: EngineRules, scheduling: Scheduling, start_gate: StartGate, counters: Counters
    ):
        self._rules = rules
        self._scheduling = scheduling
        self._dispatcher = scheduling.dispatcher
        self._start_gate = start_gate
        self._counters = counters
        self.adaptive: AdaptiveConcurrency | None = None
        """None unless trials find the limit."""
        self.by_user: ConcurrencyRequest | None = None
        """How many slots a user allows; None for the configured number."""
        self.slots_ready = True
        """False until the runtime has as many slots as the limit allows."""
        if rules.limit is not None:
            self.adaptive = AdaptiveConcurrency(rules.limit, rules.slots)
            self._dispatcher.slots = self.adaptive.limit

    def request(self, request: ConcurrencyRequest, now: float) -> ConcurrencyAnswer:
        """Limit how many slots may be busy from now on; running calls may finish."""
        limiter, rules = self.adaptive, self._rules
        if rules.stall.leases:
            return ConcurrencyAnswer.LEASES
        if request.limit is not None and request.limit > rules.slots:
            return ConcurrencyAnswer.TOO_MANY
        self._scheduling.advance_clocks(now)
        slots = request.limit or (rules.slots if limiter is None else limiter.limit)
        if slots < self._dispatcher.slots:
            self._start_gate.take_back(now)  # queued slices would run in slots that should idle
        if limiter is None:
            fewer = slots < rules.slots
            self._dispatcher.slices_per_slot = 1 if fewer else self._scheduling.slices_ahead
        self._dispatcher.slots = slots
        self.by_user = None if request.limit is None else evolve(request, since=now)
        return ConcurrencyAnswer.OBEYED

    def slots_can_rest(self) -> None:
        """Record that the runtime enforces the limit itself, so slices may queue for a slot."""
        if self.adaptive is not None and self._scheduling.shares is None:
            self._dispatcher.slices_per_slot = self.adaptive.ahead = SLICES_PER_SLOT

    def record(self, slice_: Slice, now: float) -> None:
        """Measure a finished slice if trials find the limit."""
        limiter = self.adaptive
        if limiter is None:
            return
        records = slice_.settled + len(slice_.messages)
        deviations = slice_.deviations
        if not records or not slice_.elapsed:
            return
        failed = 0 if deviations is None else len(deviations.failed)
        limiter.record(slice_.sent, now, records, failed, slice_.elapsed)

    def adjust(self, now: float) -> LimitNews | None:
        """Set the limit that the trials ask for; return its lasting change, if any."""
        limiter = self.adaptive
        if limiter is None:
            return None
        if not self.slots_ready or self.by_user is not None:
            limiter.wait(now)
            return None
        news = limiter.adjust(now, len(self._dispatcher.out))
        if news is not None:
            self._counters.limit_changes[news.cause] += 1
        self._dispatcher.slots = limiter.limit
        return news
