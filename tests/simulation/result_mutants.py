"""Engines with one planted bug each in their handling of results."""

from __future__ import annotations

from typing import Any

from window_consumer.engine.decisions import Decisions
from window_consumer.engine.engine import Engine
from window_consumer.engine.retry.output import Production
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.fault import Failure
from window_consumer.model.outcome import Outcome


class FinishesBeforeResultsAreAcked(Engine):
    """A record is done when its call has returned, whatever becomes of the results."""

    def on_tick(self, now: float, wall_ms: float) -> Decisions:
        decisions = super().on_tick(now, wall_ms)
        for production in decisions.produce:
            for seq in production.seqs:
                if production.partition.window.is_open(seq):
                    production.partition.window.finish((seq,), Outcome.DONE, now)
        return decisions

    def on_produced(
        self, production: Production, index: int, error: PublishFailedError | None, now: float
    ) -> None:
        if self.output.answered(production, index, error) and production.partition.accepts_results:
            self.output.over(production)
            for seq in production.seqs:
                failed = self.failed_records.of(production.partition).get(seq)
                if failed is not None:
                    self.failed_records.finish(failed)
            production.hold.release()
            self.outcomes.advance(production.partition, now)


class WaitsForTheFirstAckOnly(Engine):
    """The first ack counts for all results of a call."""

    def on_produced(
        self, production: Production, index: int, error: PublishFailedError | None, now: float
    ) -> None:
        if error is None and not production.answers:
            production.results = production.results[:1]
            self.output.unacked -= production.sent - 1
            production.sent = 1
        elif production.answers >= production.sent:
            return
        super().on_produced(production, index, error, now)


class SendsOnlyTheLostOnesAgain(Engine):
    """Results behind a lost one stay in place."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        honest = self.output.advance

        def go_on(production: Production, now: float) -> bool:
            lost = production.error
            if lost is not None and not production.alone:
                production.results = [*production.results[: lost[0] + 1]]
            return honest(production, now)

        self.output.advance = go_on  # type: ignore[method-assign] # a planted bug


class FreesTheLaneWhileResultsAreOut(Engine):
    """The next of a lane goes on when the results before it have been sent."""

    def on_tick(self, now: float, wall_ms: float) -> Decisions:
        decisions = super().on_tick(now, wall_ms)
        for production in decisions.produce:
            production.hold.release()
            self.dispatcher.wake(production.partition)
        return decisions


class TakesARefusalForAnAck(Engine):
    """Results that the broker refuses for good are forgotten."""

    def on_produced(
        self, production: Production, index: int, error: PublishFailedError | None, now: float
    ) -> None:
        kept = error if error is not None and not error.refused else None
        super().on_produced(production, index, kept, now)


class TriesARefusalForEver(Engine):
    """A record whose result is refused for good never leaves."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)

        def refusal(production: Production) -> Failure | None:  # noqa: ARG001 - that is the bug
            return None

        self.output.refusal = refusal  # type: ignore[method-assign] # a planted bug


class TakesInAnyNumberOfResults(Engine):
    """Calls continue however many results wait for acks."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.output._limit = 1e12
